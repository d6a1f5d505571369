"""Reading the modules of a flat package: which statement refers to which, and where, by Python's rules for names."""

import ast
import builtins
import doctest
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

DUNDERS = {"__name__", "__file__", "__doc__", "__spec__", "__annotations__"}
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
DEFINITIONS = (*FUNCTIONS, ast.ClassDef)
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)


class CopyError(ValueError):
    """A module that cannot be made flat, or is not there."""


class Module(NamedTuple):
    """A module of the package, "" for the package itself, as the meaning of a name."""

    name: str


class Own(NamedTuple):
    """What a top-level statement of a module of the package binds."""

    module: str
    name: str


class External(NamedTuple):
    """What an import from elsewhere binds: ``from module import name as bound``, or the module with no name."""

    module: str
    name: str
    bound: str


Meaning = Module | Own | External
Definition = Own | External


class Reference(NamedTuple):
    """A place that names a definition."""

    meaning: Definition
    row: int
    start: int  # in bytes, as `ast` counts
    end: int
    text: str
    local: frozenset[str]  # the names that functions around this place bind
    frozen: bool = False  # True where the text cannot be changed
    imported: str = ""  # in an import below the top level: the name in the module
    bound: str = ""  # and the name here


class Scope(NamedTuple):
    """A function, class, comprehension or doctest: its own names, and those that it imports from the package."""

    names: set[str]
    imported: dict[str, Meaning]
    globals: set[str]  # declared global
    is_class: bool = False
    is_comprehension: bool = False


@dataclass
class Statement:
    """A top-level statement with the comments above it."""

    node: ast.stmt
    first: int  # row of its first line, decorators included, and of its last one
    last: int
    comments: list[str]  # the lines directly above
    paragraph: int  # statements without a blank line between them share one, and the comments above its first
    binds: set[str]
    changes: set[Definition] = field(default_factory=set)  # what it alters without binding it
    references: list[Reference] = field(default_factory=list)
    drops: set[int] = field(default_factory=set)  # rows that are left out


def own_nodes(nodes: Iterable[ast.AST]) -> Iterator[ast.AST]:
    """Yield these nodes and what is in them, except for what lies in a scope of its own."""
    todo = list(nodes)
    while todo:
        node = todo.pop()
        yield node
        if isinstance(node, COMPREHENSIONS):  # an assignment expression in it binds outside of it
            yield from (each.target for each in ast.walk(node) if isinstance(each, ast.NamedExpr))
        elif not isinstance(node, (*DEFINITIONS, ast.Lambda)):
            todo += ast.iter_child_nodes(node)


def bindings(nodes: Iterable[ast.AST]) -> tuple[set[str], set[str]]:
    """Return the names that these nodes bind in their own scope, and those that they declare global."""
    bound: set[str] = set()
    outer: dict[type[ast.AST], set[str]] = {ast.Global: set(), ast.Nonlocal: set()}
    for node in own_nodes(nodes):
        if isinstance(node, DEFINITIONS):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            bound.add(node.id)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name.split(".")[0])
        elif isinstance(node, (ast.ExceptHandler, ast.MatchAs, ast.MatchStar)) and node.name:
            bound.add(node.name)
        elif isinstance(node, ast.MatchMapping) and node.rest:
            bound.add(node.rest)
        elif isinstance(node, (ast.Global, ast.Nonlocal)):
            outer[type(node)].update(node.names)
    return bound - outer[ast.Global] - outer[ast.Nonlocal], outer[ast.Global]


def docstring_node(node: ast.AST) -> ast.Constant | None:
    body = getattr(node, "body", None)
    if isinstance(body, list) and body and isinstance(body[0], ast.Expr) and isinstance(body[0].value, ast.Constant):
        return body[0].value if isinstance(body[0].value.value, str) else None
    return None


class Source:
    """One module of the package, read and taken apart."""

    def __init__(self, package: "Package", name: str) -> None:
        self.package, self.name, self.path = package, name, package.folder / f"{name}.py"
        text = self.path.read_text(encoding="utf-8")
        self.text = text
        self.lines = [line.encode() for line in text.split("\n")]  # only \n ends a line, as for the parser
        self.tree = ast.parse(text)
        self.docstring = docstring_node(self.tree)
        self.imported: dict[str, Meaning] = {}  # from the package itself
        self.external: dict[str, External] = {}
        self.whole: dict[str, set[str]] = {}  # for "import a.b", by the name bound: the modules
        self.remarks: dict[str, str] = {}  # comments after an import, by the name bound
        self.needs: list[str] = []  # modules of the package imported at the top level
        self.head: Statement | None = None  # the docstring
        self.statements: list[Statement] = []
        self.by_name: dict[str, list[Statement]] = {}
        self.exported: list[str] | None = None  # __all__
        self.rebound: set[str] = set()  # globals that functions assign to
        self._cut()

    def error(self, row: int, problem: str) -> CopyError:
        return CopyError(f"{self.package.name}/{self.name}.py, line {row}: {problem}")

    def _cut(self) -> None:
        end, paragraph = 0, 0
        for node in self.tree.body:
            first = min([node.lineno, *(each.lineno for each in getattr(node, "decorator_list", []))])
            last = node.end_lineno or node.lineno
            if first <= end:
                raise self.error(first, "two statements on one line")
            gap = [line.decode().rstrip() for line in self.lines[end : first - 1]]
            inside = max((i + 1 for i, line in enumerate(gap) if line.startswith((" ", "\t"))), default=0)
            if self.statements:  # an indented comment belongs to the statement above
                self.statements[-1].last += inside
            gap = gap[inside:]
            if "" in gap or not self.statements:
                paragraph += 1
            comments = gap[max((i + 1 for i, line in enumerate(gap) if not line), default=0) :]
            if not comments:  # a heading, with a blank line below
                comments = [line for line in gap if line]
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                self._import(node)
            else:
                is_docstring = self.docstring is not None and node is self.tree.body[0]
                binds = bindings([node])[0]
                self._statement(Statement(node, first, last, comments, paragraph, binds), is_docstring)
            end = last
        rest = [i for i, line in enumerate(self.lines) if line.strip() and i >= end]
        if rest and self.statements:  # comments at the end of the file
            self.statements[-1].last = rest[-1] + 1

    def _import(self, node: ast.Import | ast.ImportFrom) -> None:
        own = self.package.imports(self, node)
        if own is not None:
            self.imported.update(own)
            for meaning in own.values():
                self.needs.append(meaning.name if isinstance(meaning, Module) else meaning.module)
            if isinstance(node, ast.Import):
                self.needs += [alias.name.partition(".")[2] for alias in node.names]
            return
        _, mark, remark = self.lines[(node.end_lineno or node.lineno) - 1].decode().partition("#")
        for alias in node.names:
            bound = alias.asname or alias.name.split(".")[0]
            if isinstance(node, ast.ImportFrom):
                self.external[bound] = External(node.module or "", alias.name, bound)
            elif alias.asname:
                self.external[bound] = External(alias.name, "", bound)
            else:
                self.external[bound] = External(bound, "", bound)
                self.whole.setdefault(bound, set()).add(alias.name)
            if mark:
                self.remarks[bound] = mark + remark.rstrip()

    def _statement(self, statement: Statement, is_docstring: bool) -> None:
        node = statement.node
        if is_docstring:
            self.head = statement
            return
        if statement.binds == {"__all__"} and isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value:
            try:
                self.exported = [str(name) for name in ast.literal_eval(node.value)]
            except ValueError:
                raise self.error(node.lineno, "__all__ must be a list of names") from None
            return
        self.statements.append(statement)
        for name in statement.binds:
            self.by_name.setdefault(name, []).append(statement)

    def read(self) -> None:
        """Find out what every statement refers to (once the modules are known by name)."""
        for statement in self.statements:
            Reader(self, statement).top()
        if self.head is not None and self.docstring is not None:
            Reader(self, self.head).examples(self.docstring)

    def meaning(self, name: str) -> Meaning | None:
        """Return what a global name of this module means; None for what Python itself defines."""
        if name in self.by_name:
            return Own(self.name, name)
        if name in self.imported:
            found = self.imported[name]
            return self.package.definition(found) if isinstance(found, Own) else found
        return self.external.get(name)


class Package:
    """The modules of a flat package, read when they are needed."""

    def __init__(self, folder: Path, name: str) -> None:
        self.folder, self.name = folder, name
        self.sources: dict[str, Source] = {}

    def has(self, module: str) -> bool:
        return re.fullmatch(r"\w+", module) is not None and (self.folder / f"{module}.py").is_file()

    def source(self, module: str) -> Source:
        if module not in self.sources:
            if not self.has(module):
                raise CopyError(f"there is no module {self.name}.{module}")
            self.sources[module] = Source(self, module)
            self.sources[module].read()
        return self.sources[module]

    def imports(self, source: Source, node: ast.Import | ast.ImportFrom) -> dict[str, Meaning] | None:
        """Return what an import of the package's own modules binds; None for an import from elsewhere."""
        if isinstance(node, ast.Import):
            ours = [alias for alias in node.names if alias.name.split(".")[0] == self.name]
            if not ours:
                return None
            if len(ours) < len(node.names):
                raise source.error(node.lineno, f"{self.name} and another module in one import")
            found: dict[str, Meaning] = {}
            for alias in ours:
                module = alias.name.partition(".")[2]
                found[alias.asname or self.name] = Module(module if alias.asname else "")
            return found
        if node.level > 1:
            raise source.error(node.lineno, "an import from above the package")
        path = node.module or ""
        if node.level == 0:
            if path.split(".")[0] != self.name:
                if any(alias.name == "*" for alias in node.names):
                    raise source.error(node.lineno, "import *: name what is needed")
                return None
            path = path.partition(".")[2]
        names = {}
        for alias in node.names:
            if alias.name == "*":
                raise source.error(node.lineno, "import *: name what is needed")
            names[alias.asname or alias.name] = self.member(path, alias.name)
        return names

    def third_party(self, source: Source, node: ast.stmt) -> set[str]:
        """Return the packages from elsewhere that are imported inside a statement."""
        found: set[str] = set()
        for each in ast.walk(node):
            if isinstance(each, ast.Import):
                found |= {alias.name.split(".")[0] for alias in each.names}
            elif isinstance(each, ast.ImportFrom) and each.level == 0:
                found.add((each.module or "").split(".")[0])
        return found - set(sys.stdlib_module_names) - {self.name}

    def member(self, module: str, name: str) -> Meaning:
        if module == "" and self.has(name):
            return Module(name)
        return Own(module or "__init__", name)

    def definition(self, meaning: Own) -> Meaning:
        """Follow imports inside the package to the statement that defines a name."""
        source = self.source(meaning.module)
        found = source.meaning(meaning.name)
        if found is None:
            raise CopyError(f"{self.name}/{meaning.module}.py does not define {meaning.name}")
        return found


class Reader(ast.NodeVisitor):
    """Collects what one top-level statement refers to, and where, with Python's rules for the scope of names."""

    def __init__(self, source: Source, statement: Statement) -> None:
        self.source, self.package, self.statement = source, source.package, statement
        self.scopes: list[Scope] = []
        self.at: Callable[[int, int], tuple[int, int]] = lambda row, column: (row, column)
        self.frozen = False

    def error(self, node: ast.AST, problem: str) -> CopyError:
        return self.source.error(self.at(getattr(node, "lineno", 1), 0)[0], problem)

    def top(self) -> None:
        node = self.statement.node
        self.visit(node)
        changed: list[ast.AST] = []
        for target in getattr(node, "targets", []):  # REGISTRY["x"] = f changes what another statement has bound
            while isinstance(target, (ast.Subscript, ast.Attribute)):
                target = target.value
            changed.append(target)
        if isinstance(node, ast.Expr):  # REGISTRY.update(...)
            changed += ast.walk(node)
        for each in changed:
            meaning = self.source.meaning(each.id) if isinstance(each, ast.Name) else None
            if isinstance(meaning, Own):
                self.statement.changes.add(meaning)

    # --- names ---

    def resolve(self, name: str) -> Meaning | None:
        """Return the meaning of a name here; None for a local one."""
        for i, scope in enumerate(reversed(self.scopes)):
            if scope.is_class and i > 0:
                continue
            if name in scope.globals:
                break
            if name in scope.imported:
                return scope.imported[name]
            if name in scope.names:
                return None
        meaning = self.source.meaning(name)
        if meaning is None and name not in DUNDERS:
            if not hasattr(builtins, name):
                return Own(self.source.name, name)  # nobody defines it: `needed` says so
            return External("builtins", name, name)
        return meaning

    def refer(
        self, meaning: Meaning | None, node: ast.AST, text: str, column: int = -1, imported: str = "", bound: str = ""
    ) -> None:
        if isinstance(meaning, Own):
            source = self.package.source(meaning.module)
            if meaning.name not in source.by_name:
                meaning = self.package.definition(meaning)
        if meaning is None:
            return
        if isinstance(meaning, Module):
            raise self.error(node, f"the module {text} is used as a value; write {text}.name")
        row, start = self.at(node.lineno, node.col_offset if column < 0 else column)  # type: ignore[attr-defined]
        end = start + len(text.encode())
        if not self.frozen and self.source.lines[row - 1][start:end] != text.encode():
            raise self.error(node, f"cannot find {text} in the source; write it on one line")
        local: frozenset[str] = frozenset().union(*(scope.names for scope in self.scopes))
        self.statement.references.append(Reference(meaning, row, start, end, text, local, self.frozen, imported, bound))

    def visit_Name(self, node: ast.Name) -> None:
        if not isinstance(node.ctx, ast.Load) and self.scopes and node.id not in self.scopes[-1].globals:
            return  # a local variable
        self.refer(self.resolve(node.id), node, node.id)

    def visit_Attribute(self, node: ast.Attribute) -> None:
        chain: list[ast.Attribute] = []
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            chain.append(base)
            base = base.value
        meaning = self.resolve(base.id) if isinstance(base, ast.Name) else None
        if not isinstance(base, ast.Name) or not isinstance(meaning, Module):
            self.visit(node.value)
            return
        text = base.id
        while isinstance(meaning, Module) and chain:
            inner = chain.pop()
            text += f".{inner.attr}"
            meaning = self.package.member(meaning.name, inner.attr)
            if isinstance(meaning, Own):
                meaning = self.package.definition(meaning)
            if not isinstance(meaning, Module) and not isinstance(inner.ctx, ast.Load):
                raise self.error(node, f"{text} is assigned to from another module")
        self.refer(meaning, base, text)

    def visit_Global(self, node: ast.Global) -> None:
        line = self.source.lines[self.at(node.lineno, 0)[0] - 1]
        for name in node.names:
            place = re.search(rf"\b{name}\b".encode(), line[node.col_offset + 6 :])
            if place is None:
                raise self.error(node, "a global statement over several lines")
            meaning = self.source.meaning(name)
            self.source.rebound.add(name)
            self.refer(meaning, node, name, column=node.col_offset + 6 + place.start())

    # --- scopes ---

    def scope(self, nodes: Iterable[ast.AST], arguments: ast.arguments | None = None) -> Scope:
        nodes = list(nodes)
        names, declared = bindings(nodes)
        imported: dict[str, Meaning] = {}
        for node in own_nodes(nodes):
            if isinstance(node, (ast.Import, ast.ImportFrom)):
                imported.update(self.package.imports(self.source, node) or {})
        if arguments is not None:
            every = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
            names |= {each.arg for each in every if each is not None}
        return Scope(names - set(imported), imported, declared)

    def visit_FunctionDef(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for decorator in node.decorator_list:
            self.visit(decorator)
        self._arguments(node.args)
        if node.returns:
            self.annotation(node.returns)
        self._definition(node)
        self.scopes.append(self.scope(node.body, node.args))
        self._body(node)
        self.scopes.pop()

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self.visit_FunctionDef(node)

    def visit_Lambda(self, node: ast.Lambda) -> None:
        self._arguments(node.args)
        self.scopes.append(self.scope([node.body], node.args))
        self.visit(node.body)
        self.scopes.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        for each in (*node.decorator_list, *node.bases, *(keyword.value for keyword in node.keywords)):
            self.visit(each)
        self._definition(node)
        self.scopes.append(self.scope(node.body)._replace(names=set(), is_class=True))
        self._body(node)
        self.scopes.pop()

    def _definition(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        if not self.scopes:
            line = self.source.lines[node.lineno - 1]
            found = re.compile(rb"(?:async\s+)?(?:def|class)\s+").match(line, node.col_offset)
            if found is None:
                raise self.error(node, f"cannot find the name of {node.name}")
            self.refer(Own(self.source.name, node.name), node, node.name, column=found.end())

    def _arguments(self, arguments: ast.arguments) -> None:
        for each in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg):
            if each is not None and each.annotation:
                self.annotation(each.annotation)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self.visit(default)

    def _body(self, node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> None:
        docstring = docstring_node(node)
        for statement in node.body:
            self.visit(statement)
            if isinstance(node, ast.ClassDef):  # in a class, a name is the global one until it is bound
                self.scopes[-1].names.update(bindings([statement])[0] - set(self.scopes[-1].imported))
        if docstring is not None:
            self.examples(docstring)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        first, *others = node.generators
        self.visit(first.iter)
        names = bindings([each.target for each in node.generators])[0]
        self.scopes.append(Scope(names, {}, set(), is_comprehension=True))
        for each in node.generators:
            self.visit(each.target)
            for condition in each.ifs:
                self.visit(condition)
        for each in others:
            self.visit(each.iter)
        for part in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(part)
        self.scopes.pop()

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension

    def visit_NamedExpr(self, node: ast.NamedExpr) -> None:
        scopes = self.scopes  # it binds outside of the comprehensions that it stands in
        while self.scopes and self.scopes[-1].is_comprehension:
            self.scopes = self.scopes[:-1]
        self.visit(node.target)
        self.scopes = scopes
        self.visit(node.value)

    def visit_ExceptHandler(self, node: ast.ExceptHandler | ast.MatchAs | ast.MatchStar) -> None:
        if node.name and not self.scopes:  # the name stands in no node of its own, so it cannot be changed
            frozen, self.frozen = self.frozen, True
            self.refer(Own(self.source.name, node.name), node, node.name)
            self.frozen = frozen
        self.generic_visit(node)

    visit_MatchAs = visit_MatchStar = visit_ExceptHandler

    # --- imports below the top level ---

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        own = self.package.imports(self.source, node)
        if own is None:
            if not self.scopes:  # try: import x
                for alias in node.names:
                    bound = alias.asname or alias.name.split(".")[0]
                    name = alias.name if alias.asname is None else f"{alias.name} as {alias.asname}"
                    self.refer(Own(self.source.name, bound), alias, name, imported=alias.name, bound=bound)
            return
        if not self.scopes:
            raise self.error(node, f"{self.package.name} is imported inside a statement")
        first, last = self.at(node.lineno, 0)[0], self.at(node.end_lineno or node.lineno, 0)[0]
        self.statement.drops.update(range(first, last + 1))

    visit_ImportFrom = visit_Import

    # --- annotations ---

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self.visit(node.target)
        self.annotation(node.annotation)
        if node.value:
            self.visit(node.value)

    def annotation(self, node: ast.expr) -> None:
        """Visit an annotation: text in it is code too, except inside ``Literal[...]``."""
        for each in [node, *strings_of_annotation(node)]:
            if isinstance(each, ast.Constant) and isinstance(each.value, str):
                self._quoted(each, each.value)
        self.visit(node)

    def _quoted(self, node: ast.Constant, code: str) -> None:
        try:
            tree = ast.parse(code.strip(), mode="eval")
        except SyntaxError:
            return
        row, column = self.at(node.lineno, node.col_offset)
        raw = self.source.lines[row - 1][column:]
        text = code.encode()
        plain = raw[:1] in (b"'", b'"') and raw[1 : 1 + len(text)] == text and code == code.strip()
        self.inside(tree, lambda r, c: (row + r - 1, column + 1 + c), frozen=not plain)

    def inside(self, tree: ast.AST, at: Callable[[int, int], tuple[int, int]], *, frozen: bool = False) -> None:
        """Visit code that was parsed on its own; `at` says where its places lie in the file."""
        before = self.at, self.frozen
        self.at, self.frozen = at, frozen or self.frozen
        self.visit(tree)
        self.at, self.frozen = before

    # --- f-strings: before Python 3.12 the parser does not say where the code in them stands ---

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        if self.frozen:
            self.generic_visit(node)
            return
        start = self.at(node.lineno, node.col_offset)
        end = self.at(node.end_lineno or node.lineno, node.end_col_offset or 0)
        for row, column, code, shown in fields(self.source.lines, start, end):
            try:
                tree = ast.parse(f"({code})", mode="eval")
            except SyntaxError:
                raise self.source.error(row, f"cannot read {{{code}}}") from None

            def at(r: int, c: int, row: int = row, column: int = column) -> tuple[int, int]:
                return (row + r - 1, c + column - 1 if r == 1 else c)

            self.inside(tree, at, frozen=shown)

    # --- doctests ---

    def examples(self, docstring: ast.Constant) -> None:
        """Visit the examples of a docstring, so that they still run in the copy."""
        try:
            examples = doctest.DocTestParser().get_examples(str(docstring.value))
            trees = [ast.parse(example.source) for example in examples]
        except (ValueError, SyntaxError) as error:
            raise self.error(docstring, f"the examples cannot be read: {error}") from None
        scopes, self.scopes = self.scopes, [self.scope(trees)]
        for example, tree in zip(examples, trees, strict=True):
            row = docstring.lineno + example.lineno
            parts = example.source.rstrip("\n").encode().split(b"\n")
            lines = self.source.lines[row - 1 : row - 1 + len(parts)]
            column = lines[0].find(b">>> ") + 4 if lines else 0
            faithful = [line[column:].rstrip() for line in lines] == [part.rstrip() for part in parts]

            def at(r: int, c: int, row: int = row, column: int = column) -> tuple[int, int]:
                return (row + r - 1, c + column)

            self.inside(tree, at, frozen=not faithful)
        self.scopes = scopes


def strings_of_annotation(node: ast.expr) -> Iterator[ast.expr]:
    """Yield the parts of an annotation at which text is a forward reference."""
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.expr):
            continue
        if isinstance(node, ast.Subscript) and child is node.slice:
            name = node.value.attr if isinstance(node.value, ast.Attribute) else getattr(node.value, "id", "")
            if name == "Literal":
                continue
            if name == "Annotated" and isinstance(child, ast.Tuple):
                child = child.elts[0]
        yield child
        yield from strings_of_annotation(child)


def fields(lines: list[bytes], start: tuple[int, int], end: tuple[int, int]) -> Iterator[tuple[int, int, str, bool]]:
    """Yield row, column and text of the code in the f-strings between two places; True where ``{x=}`` shows it."""
    text = b"\n".join(lines[start[0] - 1 : end[0]])
    stop = len(text) - len(lines[end[0] - 1]) + end[1]
    i = start[1]

    def place(at: int) -> tuple[int, int]:
        row = text.count(b"\n", 0, at)
        return start[0] + row, at - (text.rfind(b"\n", 0, at) + 1)

    def code(at: int) -> tuple[int, bool]:
        """Return where the code that begins here ends, and whether the field shows it."""
        depth, quote = 0, b""
        while at < stop:
            c = text[at : at + 1]
            if quote:
                quote = b"" if c == quote else quote
            elif c in (b"'", b'"'):
                quote = c
            elif c in (b"(", b"[", b"{"):
                depth += 1
            elif depth and c in (b")", b"]", b"}"):
                depth -= 1
            elif not depth and c == b"=" and re.match(rb"=\s*[!:}]", text[at:]):
                if text[at - 1 : at] not in (b"=", b"!", b"<", b">"):
                    return at, True
            elif not depth and (c in (b":", b"}") or (c == b"!" and text[at + 1 : at + 2] != b"=")):
                return at, False
            at += 1
        raise CopyError("an f-string without an end")

    def replacement(at: int) -> Iterator[tuple[int, int, str, bool] | int]:
        """Yield the fields of one ``{...}`` that begins here, and at last where it ends."""
        until, shown = code(at + 1)
        yield (*place(at + 1), text[at + 1 : until].decode(), shown)
        while text[until : until + 1] not in (b":", b"}"):
            until += 1
        while text[until : until + 1] != b"}":
            if text[until : until + 1] == b"{":
                for part in replacement(until):
                    if isinstance(part, int):
                        until = part
                    else:
                        yield part
            else:
                until += 1
        yield until + 1

    while i < stop:
        if text[i : i + 1].isspace() or text[i : i + 1] == b"\\":
            i += 1
            continue
        if text[i : i + 1] == b"#":
            i = text.index(b"\n", i)
            continue
        begin = re.compile(rb"([A-Za-z]*)('''|\"\"\"|'|\")").match(text, i)
        if begin is None:
            raise CopyError(f"line {place(i)[0]}: cannot read the string")
        formatted, quote = b"f" in begin[1].lower(), begin[2]
        i = begin.end()
        while not text.startswith(quote, i):
            if text[i : i + 1] == b"\\" or (formatted and text[i : i + 2] in (b"{{", b"}}")):
                i += 2
            elif formatted and text[i : i + 1] == b"{":
                for part in replacement(i):
                    if isinstance(part, int):
                        i = part
                    else:
                        yield part
            else:
                i += 1
        i += len(quote)
