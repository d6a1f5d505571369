"""One module and what it needs from its package, as one flat text: how `python -m dpbook copy` makes a file.

The text is cut from the sources, so comments and layout stay. From the module itself every statement is kept; from the
modules that it imports, only the top-level statements that it reaches. Names change as little as can be:

* a name that is imported (``from dpbook._exact import up``) keeps its name;
* a name that is reached through its module (``_validate.positive``) gets an underscore for the dot
  (``_validate_positive``), so that no line where it is used changes its length, and none of its readers its meaning
  when a function has a variable of that name (``rows = _validate.rows(...)``);
* a name that would mean two things in the one file is given its module's name in front as well.

What cannot be made flat (a module passed as a value, ``import *``) is refused with the place, never guessed.
"""

import ast
import re
import sys
import textwrap
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dpbook._reader import (
    DEFINITIONS,
    CopyError,
    Definition,
    External,
    Module,
    Own,
    Package,
    Reference,
    Source,
    Statement,
)

LINE = 120


@dataclass
class Flat:
    """The parts of a flat file."""

    docstring: str  # as it stands in the source, with its quotes
    imports: list[str]
    body: str
    api: list[str]  # public functions and classes of the module, in their order
    modules: list[str]  # the modules that the text is cut from, in their order
    third_party: list[str]


# --- choosing what is needed, and the names ---------------------------------------------------------------------------


def needed(package: Package, module: str) -> tuple[list[str], dict[str, list[Statement]]]:
    """Return the modules in the order of their imports, and the statements that are kept of each."""
    order: list[str] = []

    def visit(name: str, above: tuple[str, ...] = ()) -> None:
        if name in order or name in above:
            return
        for other in sorted({other for other in package.source(name).needs if other}):
            visit(other, (*above, name))
        order.append(name)

    kept: dict[str, list[Statement]] = {module: list(package.source(module).statements)}
    known: set[Definition] = set()
    for name in package.source(module).exported or []:
        meaning = package.source(module).meaning(name)
        if meaning is None or isinstance(meaning, Module):
            raise CopyError(f"{package.name}/{module}.py: __all__ names {name}, which is no definition")
        known.add(meaning)
    todo: list[Statement] = list(kept[module])
    head = package.source(module).head
    if head is not None:
        todo.append(head)
    searching = True
    while searching:
        for statement in todo:
            known |= {reference.meaning for reference in statement.references}
        modules = {meaning.module for meaning in known if isinstance(meaning, Own)} | {module}
        todo = []
        for name in sorted(modules):
            source = package.source(name)
            chosen = kept.setdefault(name, [])
            for statement in source.statements:
                wanted = any(Own(name, bound) in known for bound in statement.binds)
                alone = isinstance(statement.node, ast.Expr) and not statement.changes  # such as np.seterr(...)
                if (wanted or alone or statement.changes & known) and not any(statement is each for each in chosen):
                    chosen.append(statement)
                    todo.append(statement)
        searching = bool(todo)
    for name in sorted(kept):
        visit(name)
        for each in (each for statement in kept[name] for each in statement.references):
            there, bound = each.meaning.module, each.meaning.name
            elsewhere = isinstance(each.meaning, Own) and there != name and "." not in each.text
            if elsewhere and bound in package.source(there).rebound:  # an import has the value of one moment
                raise package.source(name).error(each.row, f"{each.text} changes; write {there}.{bound}")
        kept[name].sort(key=lambda statement: statement.first)
    for meaning in sorted(meaning for meaning in known if isinstance(meaning, Own)):
        package.definition(meaning)
    order = [name for name in order if name == module or kept.get(name)]
    order.remove(module)
    return [*order, module], kept


def prefixed(meaning: Own) -> str:
    """Return the name with its module in front: of one length with ``module.name``."""
    if meaning.module == "__init__":
        return f"_{meaning.name}"
    if meaning.name.startswith("_") and not meaning.module.startswith("_"):
        return f"_{meaning.module}{meaning.name}"
    return f"{meaning.module}_{meaning.name}"


def choose_names(module: str, references: list[Reference]) -> dict[Definition, str]:
    """Return one name for every definition of the flat file."""
    names: dict[Definition, str] = {}
    through_module: set[Definition] = set()
    hiding: dict[Definition, set[str]] = {}  # local variables that would hide a new name
    for each in references:
        if isinstance(each.meaning, Own) and each.meaning.module == module:
            names[each.meaning] = each.meaning.name
        if "." in each.text and not each.imported:
            through_module.add(each.meaning)
        # Where the text stays as it is, it already means what it says.
        hiding.setdefault(each.meaning, set()).update(each.local - {each.text})
    own = sorted(each for each in set(hiding) - set(names) if isinstance(each, Own))
    external = sorted(each for each in hiding if isinstance(each, External))
    used = set(names.values())
    for other in sorted(external, key=lambda each: each.module != "builtins"):
        names[other] = free([other.bound, f"_{other.bound}"], used, hiding[other])
        used.add(names[other])
    plain = Counter(each.name for each in own if each not in through_module)
    for meaning in own:
        bare = [] if meaning in through_module or plain[meaning.name] > 1 else [meaning.name]
        names[meaning] = free([*bare, prefixed(meaning)], used, hiding[meaning])
        used.add(names[meaning])
    return names


def free(candidates: list[str], used: set[str], hiding: set[str]) -> str:
    while True:
        for name in candidates:
            if name not in used and name not in hiding:
                return name
        candidates = [f"{candidates[-1]}_"]


# --- writing ----------------------------------------------------------------------------------------------------------


def rewritten(source: Source, statement: Statement, names: dict[Definition, str]) -> str:
    """Return the lines of a statement with the new names in place."""
    edits: set[tuple[int, int, int, str]] = set()
    for each in statement.references:
        name = names[each.meaning]
        if name == (each.bound or each.text):
            continue
        if each.frozen:
            raise source.error(each.row, f"{each.text} must be renamed to {name}, but stands inside a text")
        new = f"{each.imported} as {name}" if each.imported else name
        edits.add((each.row, each.start, each.end, new))
    lines = {row: source.lines[row - 1] for row in range(statement.first, statement.last + 1)}
    grown: dict[int, int] = {}
    for row, start, end, new in sorted(edits, reverse=True):
        lines[row] = lines[row][:start] + new.encode() + lines[row][end:]
        grown[row] = grown.get(row, 0) + len(new.encode()) - (end - start)
    for row in {row for row, by in grown.items() if by < 0 or (by > 0 and len(lines[row].decode()) > LINE)}:
        first, last = code_line(statement.node, source, row)
        if (grown[row] > 0 or first < last) and last and b"# fmt: skip" not in lines[last]:
            lines[last] += b"  # fmt: skip"  # a formatter would break the line, or join it with the next
    drops = statement.drops | {row + 1 for row in statement.drops if not lines.get(row + 1, b"x").strip()}
    return "\n".join(line.decode() for row, line in lines.items() if row not in drops)


def code_line(top: ast.stmt, source: Source, row: int) -> tuple[int, int]:
    """Return the first and last row of the statement, or of the head of the compound statement, that a row lies in.

    For a row of a docstring, which formatters leave alone, both are 0.
    """
    best = top
    for node in ast.walk(top):
        if isinstance(node, ast.stmt) and node.lineno <= row <= (node.end_lineno or row) and node.lineno >= best.lineno:
            best = node
    if isinstance(best, ast.Expr) and isinstance(best.value, ast.Constant):
        return 0, 0
    body = getattr(best, "body", None)
    if not body:
        return best.lineno, best.end_lineno or best.lineno
    last = body[0].lineno - 1
    while last > row and not source.lines[last - 1].partition(b"#")[0].rstrip().endswith(b":"):
        last -= 1
    return best.lineno, last


def section(source: Source, statements: list[Statement], names: dict[Definition, str]) -> str:
    """Return the kept statements of a module, with the blank lines of the source, or as many as a formatter wants."""
    parts: list[str] = []
    heads = {each.paragraph: each for each in reversed(source.statements)}
    before: Statement | None = None
    for statement in statements:
        same = before is not None and statement.paragraph == before.paragraph
        comments, head = statement.comments, heads[statement.paragraph]
        if not same and head is not statement:
            comments = [*head.comments, *comments]
        if before is not None:
            apart = isinstance(statement.node, DEFINITIONS) or isinstance(before.node, DEFINITIONS)
            parts.append("\n\n\n" if apart else "\n" if same else "\n\n")
        parts.append("\n".join([*comments, rewritten(source, statement, names)]))
        before = statement
    return "".join(parts)


def wrapped(text: str, width: int) -> list[str]:
    """Return the lines of a text; from a line that is too long, the rest of its paragraph is filled anew."""
    lines: list[str] = []
    rest = text.split("\n")
    while rest:
        row = rest.pop(0)
        if len(row) > width:
            indent = row[: len(row) - len(row.lstrip())]
            part = [row.strip()]
            while rest and rest[0].strip() and not re.match(r"\s*([-*]|\d+\.) ", rest[0]):
                indent = rest[0][: len(rest[0]) - len(rest[0].lstrip())]
                part.append(rest.pop(0).strip())
            first = row[: len(row) - len(row.lstrip())]
            lines += textwrap.wrap(
                " ".join(part),
                width,
                initial_indent=first,
                subsequent_indent=indent,
                break_long_words=False,
                break_on_hyphens=False,
            )
        else:
            lines.append(row)
    return lines


def import_lines(
    sources: list[Source], names: dict[Definition, str], used: dict[str, set[Definition]]
) -> tuple[list[str], set[str]]:
    """Return the import statements in the usual order, and the names of the third-party packages."""
    whole: set[tuple[str, str]] = set()
    members: dict[str, set[tuple[str, str]]] = {}
    remarks: dict[str, str] = {}
    for source in sources:
        for meaning in used[source.name]:
            if not isinstance(meaning, External):
                continue
            name = names[meaning]
            remark = source.remarks.get(meaning.bound, "")
            if meaning.name:
                if meaning.module == "builtins" and name == meaning.name:
                    continue
                members.setdefault(meaning.module, set()).add((meaning.name, name))
                if remark:
                    remarks[f"from {meaning.module}"] = remark
                continue
            parts = source.whole.get(meaning.bound) if meaning.module == meaning.bound else None
            for module in parts or {meaning.module}:
                whole.add((module, name))
                if remark:
                    remarks[f"import {module}"] = remark
                if name != meaning.bound and "." in module:
                    raise CopyError(f"import {module} must be renamed; write import {module} as a name")
    third: set[str] = set()
    sections: dict[int, list[tuple[int, str, str]]] = {}

    def place(module: str) -> int:
        root = module.split(".")[0]
        if module == "__future__":
            return 0
        if root in sys.stdlib_module_names:
            return 1
        third.add(root)
        return 2

    for module, name in whole:
        line = f"import {module}" if name in (module, module.split(".")[0]) else f"import {module} as {name}"
        text = "  ".join(filter(None, [line, remarks.get(f"import {module}", "")]))
        sections.setdefault(place(module), []).append((0, module, text))
    for module, found in members.items():
        texts = [name if name == new else f"{name} as {new}" for name, new in sorted(found, key=member_key)]
        line = f"from {module} import {', '.join(texts)}"
        remark = remarks.get(f"from {module}", "")
        if len(line) > LINE:
            line = f"from {module} import (\n" + "".join(f"    {text},\n" for text in texts) + ")"
        sections.setdefault(place(module), []).append((1, module, "  ".join(filter(None, [line, remark]))))
    blocks = ["\n".join(text for *_, text in sorted(sections[key])) for key in sorted(sections)]
    return blocks, third


def member_key(pair: tuple[str, str]) -> tuple[int, str]:
    """Constants, then classes, then the rest: the order that isort and ruff keep."""
    name = pair[0]
    kind = 0 if name.isupper() and len(name) > 1 else 1 if name[:1].isupper() else 2
    return kind, name


def flatten(folder: Path, package_name: str, module: str) -> Flat:
    """Return a module of the package in `folder`, with all it needs from the other modules, as one flat text."""
    package = Package(folder, package_name)
    order, kept = needed(package, module)
    sources = [package.source(name) for name in order]
    main = sources[-1]
    references = [each for source in sources for statement in kept[source.name] for each in statement.references]
    references += main.head.references if main.head else []
    for name in main.exported or []:
        meaning = main.meaning(name)
        if isinstance(meaning, (Own, External)):
            references.append(Reference(meaning, 0, 0, 0, name, frozenset()))
    names = choose_names(module, references)
    for name in main.exported or []:
        meaning = main.meaning(name)
        if isinstance(meaning, (Own, External)) and names[meaning] != name:
            raise CopyError(f"{package_name}/{module}.py: __all__ names {name}, which the copy calls {names[meaning]}")
    future = {
        External("__future__", meaning.name, bound)
        for source in sources
        for bound, meaning in source.external.items()
        if meaning.module == "__future__"
    }
    names.update({meaning: meaning.name for meaning in future})
    used: dict[str, set[Definition]] = {
        source.name: {each.meaning for statement in kept[source.name] for each in statement.references}
        | {meaning for meaning in future if meaning in source.external.values()}
        | {source.external[name] for name in (main.exported or []) if source is main and name in source.external}
        for source in sources
    }
    imports, third = import_lines(sources, names, used)
    for source in sources:
        for statement in kept[source.name]:
            third |= package.third_party(source, statement.node)
    blocks: list[str] = []
    for source in sources:
        title = f"# --- {package_name}/{source.name}.py "
        head = [title + "-" * (LINE - len(title))] if len(sources) > 1 else []
        if source is not main and source.docstring is not None:
            head += [f"# {line}".rstrip() for line in wrapped(ast.get_docstring(source.tree) or "", LINE - 2)]
        statements = kept[source.name]
        gap = "\n\n\n" if statements and isinstance(statements[0].node, DEFINITIONS) else "\n\n"
        blocks.append(gap.join(filter(None, ["\n".join(head), section(source, statements, names)])))
    docstring = rewritten(main, main.head, names) if main.head else ""
    api = main.exported
    if api is None:
        api = [
            each.node.name
            for each in main.statements
            if isinstance(each.node, DEFINITIONS) and not each.node.name.startswith("_")
        ]
    return Flat(docstring, imports, "\n\n\n".join(blocks) + "\n", list(dict.fromkeys(api)), order, sorted(third))
