"""The command `python -m dpbook copy`: one module and what it needs, as one file that runs without dpbook.

A copy is made from the sources of the installed package, so there is no second copy of the code anywhere. It holds
what a reader of the file alone must know: licence, version, how it was made, what it needs, and a checksum.
"""

import argparse
import ast
import difflib
import hashlib
import importlib.metadata
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path

from dpbook import __version__
from dpbook._flatten import LINE, Flat, flatten
from dpbook._reader import CopyError

FOLDER = Path(__file__).parent
COMMAND = "python -m dpbook copy"
CHECKSUM = "# Checksum: sha256:"
# As in pyproject.toml; tests/test_copy.py holds the two against each other, and the licence against LICENSE.
PYTHON = "3.10"
NEEDS = {"matplotlib": "3.6.0", "mpmath": "1.2.1", "numpy": "1.24.0", "scipy": "1.10.0"}
COPYRIGHT = "2026 The dpbook authors"
LICENSE = f"""\
MIT License

Copyright (c) {COPYRIGHT}

Permission is hereby granted, free of charge, to any person obtaining a copy
of this software and associated documentation files (the "Software"), to deal
in the Software without restriction, including without limitation the rights
to use, copy, modify, merge, publish, distribute, sublicense, and/or sell
copies of the Software, and to permit persons to whom the Software is
furnished to do so, subject to the following conditions:

The above copyright notice and this permission notice shall be included in all
copies or substantial portions of the Software.

THE SOFTWARE IS PROVIDED "AS IS", WITHOUT WARRANTY OF ANY KIND, EXPRESS OR
IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY,
FITNESS FOR A PARTICULAR PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE
AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES OR OTHER
LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM,
OUT OF OR IN CONNECTION WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE
SOFTWARE.
"""
DESCRIPTION = """\
Make one file of a module and of what it needs from the others. The file runs with numpy, scipy and mpmath (those it
lists) and without dpbook: put it into your project and import it.
"""
EXAMPLES = f"""\
examples:
  {COMMAND} laplace > privacy_laplace.py
  {COMMAND} laplace -o privacy_laplace.py
  {COMMAND} --list
  {COMMAND} --check privacy_laplace.py

In Windows PowerShell use -o: its > changes the encoding of the file.
"""


def module_names(folder: Path = FOLDER) -> list[str]:
    """Return the modules that can be copied: the public ones."""
    return sorted(path.stem for path in folder.glob("[a-z]*.py"))


def project_address() -> str:
    """Return the address that the installed package states for its source, "" where it states none."""
    try:
        addresses = importlib.metadata.metadata("dpbook").get_all("Project-URL") or []
    except importlib.metadata.PackageNotFoundError:
        return ""
    stated = dict(line.split(", ", 1) for line in addresses if ", " in line)
    return next((stated[label] for label in ("Source", "Repository", "Homepage") if label in stated), "")


def commented(label: str, text: str) -> list[str]:
    """Return a line of the header, continued below itself where it is long."""
    lines, line = [], f"# {label:<11}"
    for word in text.split(" "):
        if len(line) + len(word) >= LINE and line.strip("# "):
            lines.append(line.rstrip())
            line = "#" + " " * 12
        line += word + " "
    return [*lines, line.rstrip()]


def checksum(text: bytes) -> str:
    """Return the SHA-256 of a file without its line that states it; Windows line ends count as the usual ones."""
    lines = text.replace(b"\r\n", b"\n").split(b"\n")
    return hashlib.sha256(b"\n".join(line for line in lines if not line.startswith(CHECKSUM.encode()))).hexdigest()


def required(flat: Flat) -> list[str]:
    """Return the packages that a copy needs, with their lowest versions."""
    return [f"{name}>={NEEDS[name]}" if name in NEEDS else name for name in flat.third_party]


def copy_text(module: str, folder: Path = FOLDER) -> str:
    """Return a module with all it needs from the package, as the text of one file.

    Examples
    --------
    >>> text = copy_text("laplace")
    >>> "def laplace_mechanism(" in text, "def gaussian_mechanism(" in text, "import dpbook" in text
    (True, False, False)
    """
    flat = flatten(folder, "dpbook", module)
    api = [name for name in flat.api if not name.startswith("naive_")]
    naive = [name for name in flat.api if name.startswith("naive_")]
    files = ", ".join(f"dpbook/{name}.py" for name in flat.modules)
    address = project_address()
    header = [
        "# SPDX-License-Identifier: MIT",
        f"# SPDX-FileCopyrightText: {COPYRIGHT}",
        "#",
        f"# The module dpbook.{module} of dpbook {__version__} and what it needs from other modules, in one file.",
        "# It is made by a program: make it anew to update it, and do not edit it. The licence is at the end.",
        "#",
        *commented("Made by:", f"{COMMAND} {module}"),
        *commented("Made from:", f"{files} of dpbook {__version__}{f', {address}' if address else ''}"),
        *commented("Needs:", f"Python {PYTHON} or newer{''.join(f', {need}' for need in required(flat))}"),
        *commented("To call:", ", ".join(api) + " (the names in __all__)"),
        *(commented("Not:", f"{', '.join(naive)} (for teaching, NOT private)") if naive else []),
        *commented("Names:", "x_y stands for y of dpbook/x.py where the package writes x.y."),
        *commented("To check:", f"{COMMAND} --check FILE, or the SHA-256 of the file without the next line."),
        CHECKSUM,
    ]
    names = "__all__ = [\n" + "".join(f'    "{name}",\n' for name in sorted(api)) + "]"
    future = [block for block in flat.imports if block.startswith("from __future__")]
    imports = [block for block in flat.imports if block not in future]
    licence = "\n".join(f"# {line}".rstrip() for line in LICENSE.rstrip().split("\n"))
    gap = "\n\n\n" if re.match(r"(def|class|async def|@)", flat.body) else "\n\n"
    title = "# --- licence "
    parts = [*future, *imports, names]
    text = "\n".join(header) + "\n\n" + "\n\n".join(filter(None, [flat.docstring, *parts])) + gap + flat.body
    text += f"\n\n{title}{'-' * (LINE - len(title))}\n{licence}\n"
    try:
        ast.parse(text)
    except SyntaxError as error:
        raise CopyError(f"the copy of dpbook.{module} would not run: {error}") from None
    return text.replace(f"{CHECKSUM}\n", f"{CHECKSUM}{checksum(text.encode())}\n", 1)


def first_difference(a: bytes, b: bytes) -> int:
    """Return the number of the first line that differs, the line of the checksum left out."""
    mine, other = (
        [b"" if line.startswith(CHECKSUM.encode()) else line for line in text.replace(b"\r\n", b"\n").split(b"\n")]
        for text in (a, b)
    )
    for i, (x, y) in enumerate(zip(mine, other, strict=False), 1):
        if x != y:
            return i
    return min(len(mine), len(other)) + 1


def check(path: Path) -> tuple[bool, str]:
    """Say whether a file is a copy as it was made."""
    found = path.read_bytes()
    if found[:2] in (b"\xff\xfe", b"\xfe\xff"):
        return False, f"{path} is UTF-16, as PowerShell's > writes it: make it again with -o {path.name}"
    stated = re.findall(rf"^{CHECKSUM}([0-9a-f]{{64}})\r?$".encode(), found, re.MULTILINE)
    made = re.search(rf"^# Made by: +{COMMAND} (\w+)\r?$".encode(), found, re.MULTILINE)
    version = re.search(rb" of dpbook ([\w.+!-]+) and what it needs", found)
    if len(stated) != 1 or made is None or version is None:
        return False, f"{path} has no header of {COMMAND}: it is not a copy, or its header was changed"
    module, of = made[1].decode(), version[1].decode()
    same_version = of == __version__ and module in module_names()
    fresh = copy_text(module).encode() if same_version else b""
    where = f" from line {first_difference(found, fresh)} on" if same_version else ""
    if stated[0].decode() != checksum(found):
        return False, f"{path} was changed{where}: it is not what dpbook {of} made"
    if not same_version:
        return (
            True,
            f"{path} is unchanged, made by dpbook {of}; this is dpbook {__version__}: make it anew to update it",
        )
    if found.replace(b"\r\n", b"\n") != fresh:
        return False, f"{path} fits its checksum, but is not what this dpbook {of} makes{where}"
    return True, f"{path} is unchanged: what dpbook {of} makes"


def summary(module: str) -> str:
    """Return the first line of a module's docstring."""
    text = ast.get_docstring(ast.parse((FOLDER / f"{module}.py").read_text(encoding="utf-8"))) or ""
    return text.partition("\n")[0]


def unknown(module: str) -> str:
    names = module_names()
    near = difflib.get_close_matches(module.lower(), names, n=1)
    hint = f"; did you mean {near[0]}?" if near else "."
    return f"there is no module {module!r}{hint} The modules are: {', '.join(names)}"


def write(text: str) -> None:
    """Print as UTF-8 with \\n, whatever the console's encoding is."""
    buffer = getattr(sys.stdout, "buffer", None)
    if buffer is None:
        sys.stdout.write(text)
    else:
        sys.stdout.flush()
        buffer.write(text.encode("utf-8", "backslashreplace"))  # file names can be odd
    sys.stdout.flush()


def parsers() -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    parser = argparse.ArgumentParser(prog="python -m dpbook", description=f"dpbook {__version__}, for the command line")
    parser.add_argument("--version", action="version", version=f"dpbook {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="command")
    copy = commands.add_parser(
        "copy",
        help="make one file of a module, to put into your own project",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    copy.add_argument("module", nargs="?", help="which module: see --list")
    copy.add_argument("-o", "--output", metavar="FILE", type=Path, help="write this file instead of printing")
    copy.add_argument("--force", action="store_true", help="let -o replace a file that is no unchanged copy")
    copy.add_argument("--list", action="store_true", help="list the modules")
    copy.add_argument(
        "--check", metavar="FILE", nargs="+", type=Path, help="say whether files are copies as they were made"
    )
    return parser, copy


def run_copy(parser: argparse.ArgumentParser, arguments: argparse.Namespace) -> int:
    module, output = arguments.module, arguments.output
    if (module is not None) + arguments.list + (arguments.check is not None) != 1:
        parser.error(f"give the name of one module, or --list, or --check FILE. Modules: {', '.join(module_names())}")
    if module is None and (output is not None or arguments.force):
        parser.error("-o and --force go with the name of a module")
    if arguments.list:
        names = module_names()
        width = max(map(len, names))
        write("".join(f"{name:<{width}}  {summary(name)}\n" for name in names))
        return 0
    if arguments.check is not None:
        results = []
        for path in arguments.check:
            try:
                results.append(check(path))
            except OSError as error:
                parser.error(f"cannot read {path}: {error.strerror}")
        write("".join(f"{text}\n" for _, text in results))
        return 0 if all(good for good, _ in results) else 1
    module = module.removeprefix("dpbook.")
    if module not in module_names():
        parser.error(unknown(module))
    try:
        text = copy_text(module)
    except CopyError as error:
        parser.error(f"dpbook.{module} cannot be copied: {error}")
    if output is None:
        write(text)
        return 0
    try:
        if output.exists() and not arguments.force and not output.is_dir():
            found = output.read_bytes()
            if found and f"{CHECKSUM}{checksum(found)}".encode() not in found:
                parser.error(f"{output} is there and is no unchanged copy; --force replaces it")
        output.write_bytes(text.encode())
    except OSError as error:
        parser.error(f"cannot write {output}: {error.strerror}")
    return 0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return its exit code."""
    parser, copy = parsers()
    given = parser.parse_args(arguments)
    if given.command is None:
        parser.print_help()
        return 0
    try:
        return run_copy(copy, given)
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
