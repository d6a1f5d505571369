"""One-file copies: each runs alone, passes the tests of its module, is the same every time, and shows every change."""

import ast
import doctest
import importlib
import importlib.util
import json
import os
import re
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import dpbook
from dpbook import _copy
from dpbook._copy import CHECKSUM, checksum, copy_text, main, module_names
from dpbook._flatten import flatten
from dpbook._reader import CopyError

ROOT = Path(__file__).parent.parent
PACKAGE = Path(dpbook.__file__).parent
PUBLIC = module_names()
# The private modules that have tests are copied too, so that these run against what every copy holds of them.
TESTED = [*PUBLIC, *(path.stem for path in PACKAGE.glob("_[a-z]*.py") if path.stem in ("_exact", "_validate"))]
TEST_FILES = [path for name in TESTED if (path := ROOT / "tests" / f"test_{name.lstrip('_')}.py").exists()]

BLOCKED = """
import importlib.util, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "dpbook":
            raise ImportError("a copy imports dpbook")

sys.meta_path.insert(0, Blocked())

def load(path, name):
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
"""
# Puts copies in the place of the package's modules, then runs tests.
ALIASED = """
import importlib.util, sys, types
import dpbook, pytest

pairs, arguments = sys.argv[1].split("|"), sys.argv[2:]
copies, kept = {}, {}


class Linked(types.ModuleType):
    # What a test puts in the place of a name of the package, it puts in the place of the copies' name too.
    def __setattr__(self, key, value):
        stem = self.__name__.rpartition(".")[2]
        for copy in copies.values():
            names = [f"{stem}_{key}", f"_{stem.lstrip('_')}_{key.lstrip('_')}", key]
            name = next((name for name in names if name in vars(copy)), None)
            if name:
                ours, theirs = kept.setdefault((copy, name), (vars(copy)[name], vars(self).get(key)))
                setattr(copy, name, ours if value is theirs else value)
        super().__setattr__(key, value)


for name, path in (pair.split("=", 1) for pair in pairs):
    spec = importlib.util.spec_from_file_location(f"dpbook.{name}", path)
    copies[name] = sys.modules[f"dpbook.{name}"] = importlib.util.module_from_spec(spec)
    setattr(dpbook, name, copies[name])
    spec.loader.exec_module(copies[name])
for name in dpbook.__all__:
    module = getattr(getattr(dpbook, name), "__module__", "").rpartition(".")[2]
    if module in copies:
        setattr(dpbook, name, getattr(copies[module], name))
for name, module in list(sys.modules.items()):
    if name.startswith("dpbook.") and name.rpartition(".")[2] not in copies:
        module.__class__ = Linked
sys.exit(pytest.main(arguments))
"""


def python(*arguments, **keywords):
    environment = {**os.environ, "MPLBACKEND": "Agg", "PYTHONDONTWRITEBYTECODE": "1", **keywords.pop("env", {})}
    return subprocess.run([sys.executable, *arguments], capture_output=True, env=environment, check=False, **keywords)


def run_tests(copies, *arguments):
    pairs = "|".join(f"{name}={path}" for name, path in copies.items())
    options = ["-q", "-x", "-p", "no:cacheprovider", "--override-ini=addopts="]
    return python("-c", ALIASED, pairs, *options, *map(str, arguments), cwd=ROOT, text=True, encoding="utf8")


@pytest.fixture(scope="module")
def copies(tmp_path_factory):
    """Return the files of all copies, by module."""
    folder = tmp_path_factory.mktemp("copies")
    found = {name: folder / f"privacy_{name}.py" for name in TESTED}
    for name, path in found.items():
        path.write_bytes(copy_text(name).encode())
    return found


# --- every copy -------------------------------------------------------------------------------------------------------


def test_copies_run_alone_and_their_examples_hold(copies):
    program = BLOCKED + textwrap.dedent("""
        import doctest
        import pathlib
        for path in sys.argv[1:]:
            result = doctest.testmod(load(path, pathlib.Path(path).stem))
            print(pathlib.Path(path).stem, result.attempted, result.failed)
        assert not [name for name in sys.modules if name.split(".")[0] == "dpbook"]
        """)
    done = python(
        "-I", "-W", "error::SyntaxWarning", "-c", program, *map(str, copies.values()), text=True, encoding="utf8"
    )
    assert done.returncode == 0, done.stdout + done.stderr
    for name, line in zip(copies, done.stdout.splitlines(), strict=True):
        module, attempted, failed = line.split()
        source = (PACKAGE / f"{name}.py").read_text(encoding="utf8")
        assert module == f"privacy_{name}"
        assert failed == "0"
        assert int(attempted) >= source.count("    >>> ")  # none of the module's own examples was lost


@pytest.mark.parametrize("path", TEST_FILES, ids=lambda path: path.stem)
def test_a_copy_passes_the_tests_of_its_module(copies, path):
    # The other modules stay the package's own: an object of one copy is no object of another's class.
    name = next(name for name in copies if path.stem == f"test_{name.lstrip('_')}")
    done = run_tests({name: copies[name]}, path)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_copies_refuse_bad_input_like_the_package(copies):
    # What the two that are left out ask is about the package: a copy has functions of other modules too.
    others = ["-k", "not table_is_complete and not test_docstrings"]
    done = run_tests(copies, ROOT / "tests" / "test_bad_input.py", *others)
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]


def test_every_module_has_tests_that_its_copy_can_pass(copies):
    assert {path.name for path in TEST_FILES} == {f"test_{name.lstrip('_')}.py" for name in copies}


def test_a_fault_in_a_copy_is_found_by_these_tests(copies, tmp_path):
    text = copies["laplace"].read_text(encoding="utf8")
    right = "return noise_add_laplace(true_value, scale=scale, rng=rng)"
    assert text.count(right) == 1
    faulty = tmp_path / "faulty.py"
    faulty.write_text(text.replace(right, right.replace("scale=scale", "scale=0.9 * scale")), encoding="utf8")
    done = run_tests({"laplace": faulty}, ROOT / "tests" / "test_laplace.py", "-k", "right_size")
    assert done.returncode == 1
    assert "1 failed" in done.stdout


def test_copies_are_clean_for_ruff(copies):
    if importlib.util.find_spec("ruff") is None:
        pytest.skip("ruff is not installed")
    files = [str(path) for path in copies.values()]
    common = ["--isolated", "--no-cache", "--line-length", "120", "--target-version", "py310"]
    for command in (["check", "--select", "F,E9,I"], ["format", "--check"]):
        done = python("-m", "ruff", *command, *common, *files, text=True, encoding="utf8")
        assert done.returncode == 0, done.stdout + done.stderr


def test_copies_are_clean_for_mypy(copies, tmp_path):
    if importlib.util.find_spec("mypy") is None:
        pytest.skip("mypy is not installed")
    settings = ["--config-file", str(ROOT / "pyproject.toml"), "--cache-dir", str(ROOT / ".mypy_cache")]
    done = python("-m", "mypy", *settings, *map(str, copies.values()), text=True, encoding="utf8", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("name", PUBLIC)
def test_header(copies, name):
    text = copies[name].read_text(encoding="utf8")
    head = text[: text.index('"""')]
    assert head.startswith("# SPDX-License-Identifier: MIT\n# SPDX-FileCopyrightText: 2026 The dpbook authors\n")
    assert f"of dpbook {dpbook.__version__}" in head
    assert f"# Made by:   python -m dpbook copy {name}\n" in head
    assert head.count(CHECKSUM) == text.count(CHECKSUM) == 1
    commented = "\n".join(f"# {line}".rstrip() for line in (ROOT / "LICENSE").read_text(encoding="utf8").split("\n"))
    assert text.rstrip("\n").endswith(commented.rstrip("#\n "))
    tree = ast.parse(text)
    imported = {
        each.split(".")[0]
        for node in ast.walk(tree)
        for each in (
            [alias.name for alias in node.names]
            if isinstance(node, ast.Import)
            else [node.module]
            if isinstance(node, ast.ImportFrom)
            else []
        )
    }
    needs = set(re.findall(r"(\w+)>=[\d.]+", re.search(r"# Needs: .*\n(?:#  .*\n)*", head)[0]))
    assert imported - set(sys.stdlib_module_names) == needs  # with a lowest version each


@pytest.mark.parametrize("name", PUBLIC)
def test_copies_name_no_machine_and_no_date(copies, name):
    text = copies[name].read_text(encoding="utf8")
    assert str(ROOT) not in text
    assert str(Path.home()) not in text
    assert not re.search(r"/(home|root|tmp|Users)/|[A-Z]:\\", text)
    assert not re.search(r"\b20\d\d-\d\d-\d\d\b", text)


@pytest.mark.parametrize("name", PUBLIC)
def test_copies_say_what_to_call(copies, name):
    text = copies[name].read_text(encoding="utf8")
    module = importlib.import_module(f"dpbook.{name}")
    public = {
        key
        for key, value in vars(module).items()
        if getattr(value, "__module__", "") == module.__name__ and callable(value) and not key.startswith("_")
    }
    exported = next(
        ast.literal_eval(node.value)
        for node in ast.parse(text).body
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__"
    )
    own = {key for key in public if not key.startswith("naive_")}
    assert set(exported) >= own
    assert set(exported) - own <= {key for key in vars(module) if not key.startswith("_")}  # what it hands on
    for key in public:
        assert key in text[: text.index('"""')]


def definitions(path):
    text = path.read_text(encoding="utf8")
    return {
        node.name: ast.get_source_segment(text, node)
        for node in ast.parse(text).body
        if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    }


@pytest.mark.parametrize("name", TESTED)
def test_nothing_but_the_names_is_changed(copies, name):
    sources = {path.stem: definitions(path) for path in PACKAGE.glob("*.py")}
    constants = {
        target.id
        for path in PACKAGE.glob("*.py")
        for node in ast.parse(path.read_text(encoding="utf8")).body
        if isinstance(node, ast.Assign)
        for part in node.targets
        for target in ast.walk(part)
        if isinstance(target, ast.Name)
    }
    names = {key for found in sources.values() for key in found} | constants
    names = "|".join(sorted({name.lstrip("_") for name in names}))
    modules = "|".join(sorted(name.lstrip("_") for name in sources))

    def plain(text):  # _validate.positive, _validate_positive and positive are one, and so are _draw and _noise_draw
        text = text.replace("  # fmt: skip", "")  # put at lines that longer names would break
        text = re.sub(r"\n *>>> from dpbook[\w.]* import .*", "", text)  # imports of examples
        return re.sub(rf"\b(?:_?(?:{modules})[._])*_?(?=(?:{names})\b)", "", text)

    originals = {plain(text) for found in sources.values() for text in found.values()}
    found = definitions(copies[name])
    assert set(sources[name]) <= set(found)
    for key, text in found.items():
        assert plain(text) in originals, key


def test_a_copy_holds_only_what_it_needs():
    text = copy_text("laplace")
    for absent in ("def gaussian_mechanism", "def add_gaussian", "_GAUSSIAN", "scipy import", "def rows", "def clip"):
        assert absent not in text
    for present in ("def laplace_mechanism", "def precise", "KERNEL_ERROR = 2.0**-47  # |computed z", "rng=None"):
        assert present in text


def test_copies_are_the_same_every_time(copies):
    program = "import sys; from dpbook._copy import copy_text; sys.stdout.buffer.write(copy_text('tuning').encode())"
    for seed in ("1", "2"):
        assert python("-c", program, env={"PYTHONHASHSEED": seed}).stdout == copies["tuning"].read_bytes()


def test_stated_versions_and_licence_are_the_projects():
    project = (ROOT / "pyproject.toml").read_text(encoding="utf8")
    assert dict(re.findall(r'"(\w+)>=([\d.]+)"', project.partition("[project]")[2])) == _copy.NEEDS
    assert f'requires-python = ">={_copy.PYTHON}"' in project
    assert (ROOT / "LICENSE").read_text(encoding="utf8") == _copy.LICENSE


# --- the command ------------------------------------------------------------------------------------------------------


def command(capsysbinary, *arguments):
    try:
        code = main(list(arguments))
    except SystemExit as stop:
        code = stop.code
    out, err = capsysbinary.readouterr()
    return code, out, err.decode()


def test_printed_and_written_copies_are_the_same_bytes(copies, tmp_path, capsysbinary):
    path = tmp_path / "größe.py"
    assert command(capsysbinary, "copy", "noise", "-o", str(path)) == (0, b"", "")
    code, out, _ = command(capsysbinary, "copy", "dpbook.noise")
    assert code == 0
    assert out == path.read_bytes() == copies["noise"].read_bytes()
    assert b"\r" not in out


def test_output_is_utf8_on_a_console_that_is_not(copies):
    environment = {"PYTHONIOENCODING": "cp1252", "PYTHONUTF8": "0"}
    done = python("-m", "dpbook", "copy", "laplace", env=environment)
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout == copies["laplace"].read_bytes()
    listed = python("-m", "dpbook", "copy", "--list", env=environment)
    assert listed.returncode == 0
    assert [line.split()[0] for line in listed.stdout.decode("utf8").splitlines()] == PUBLIC


def test_help(capsysbinary):
    code, out, _ = command(capsysbinary)
    assert code == 0
    assert b"copy" in out
    code, out, _ = command(capsysbinary, "copy", "--help")
    assert code == 0
    assert b"python -m dpbook copy laplace > privacy_laplace.py" in out
    code, out, _ = command(capsysbinary, "--version")
    assert (code, out.split()) == (0, [b"dpbook", dpbook.__version__.encode()])


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["copy"], "give the name of one module, or --list, or --check FILE"),
        (["copy", "lapalce"], "there is no module 'lapalce'; did you mean laplace?"),
        (["copy", "../noise"], "there is no module '../noise'"),
        (["copy", "_validate"], "there is no module '_validate'"),
        (["copy", "zzz"], "The modules are: accounting, audit"),
        (["copy", "noise", "--list"], "give the name of one module"),
        (["copy", "--list", "-o", "x.py"], "-o and --force go with the name of a module"),
        (["copy", "noise", "-o", "no/such/folder/x.py"], "cannot write"),
        (["copy", "noise", "-o", "."], "cannot write"),
        (["copy", "--check", "no_such_file.py"], "cannot read no_such_file.py"),
        (["copy", "noise", "laplace"], "unrecognized arguments: laplace"),
        (["vendor"], "invalid choice: 'vendor'"),
    ],
)
def test_bad_arguments(arguments, sentence, tmp_path, monkeypatch, capsysbinary):
    monkeypatch.chdir(tmp_path)
    code, out, err = command(capsysbinary, *arguments)
    assert (code, out) == (2, b"")
    assert sentence in err
    assert not list(tmp_path.iterdir())


def test_an_edited_file_is_not_replaced_unless_told(tmp_path, capsysbinary):
    path = tmp_path / "x.py"
    assert command(capsysbinary, "copy", "datasets", "-o", str(path))[0] == 0
    assert command(capsysbinary, "copy", "noise", "-o", str(path))[0] == 0  # an unchanged copy may go
    path.write_bytes(path.read_bytes() + b"# mine\n")
    code, _, err = command(capsysbinary, "copy", "noise", "-o", str(path))
    assert code == 2
    assert "--force" in err
    assert path.read_bytes().endswith(b"# mine\n")
    assert command(capsysbinary, "copy", "noise", "-o", str(path), "--force")[0] == 0
    assert path.read_bytes() == copy_text("noise").encode()


# --- checking ---------------------------------------------------------------------------------------------------------


def test_check_finds_every_changed_byte(copies):
    right = copies["datasets"].read_bytes()
    stated = re.search(rf"^{CHECKSUM}(.*)$".encode(), right, re.MULTILINE)
    assert stated[1].decode() == checksum(right)
    for i in range(len(right)):
        if not stated.start() <= i <= stated.end():
            assert checksum(right[:i] + bytes([right[i] ^ 1]) + right[i + 1 :]).encode() != stated[1]


def edited(right, how):
    if how == "constant":
        return right.replace(b"2.0**-47", b"2.0**-46")
    if how == "checksum":
        return re.sub(rb"(sha256:)(\w)", lambda found: found[1] + (b"0" if found[2] != b"0" else b"1"), right, count=1)
    if how == "version":
        return right.replace(dpbook.__version__.encode(), b"9.9.9")
    if how == "made by":
        return right.replace(b"copy noise", b"copy tuning")
    if how == "added line":
        return right + b"\n"
    if how == "cut off":
        return right[:-200]
    if how == "no header":
        return right[right.index(b'"""') :]
    if how == "forged":
        changed = right.replace(b"2.0**-47", b"2.0**-46")
        return re.sub(rb"(?<=sha256:)\w+", checksum(changed).encode(), changed)
    return right.decode().encode("utf-16")


@pytest.mark.parametrize(
    ("how", "sentence"),
    [
        ("constant", r"was changed from line \d+ on: it is not what dpbook [\d.]+ made"),
        ("checksum", "was changed"),
        ("version", "was changed: it is not what dpbook 9.9.9 made"),
        ("made by", "was changed"),
        ("added line", "was changed from line"),
        ("cut off", "was changed from line"),
        ("no header", "not a copy, or its header was changed"),
        ("forged", "fits its checksum, but is not what this dpbook"),
        ("utf-16", "is UTF-16, as PowerShell's > writes it"),
    ],
)
def test_check_says_what_was_changed(how, sentence, copies, tmp_path, capsysbinary):
    path = tmp_path / "x.py"
    path.write_bytes(edited(copies["noise"].read_bytes(), how))
    code, out, err = command(capsysbinary, "copy", "--check", str(path))
    assert (code, err) == (1, "")
    assert re.search(sentence, out.decode())
    if how == "constant":
        line = int(re.search(rb"from line (\d+)", out)[1])
        assert b"KERNEL_ERROR = 2.0**-46" in path.read_bytes().split(b"\n")[line - 1]


def test_check_takes_what_is_unchanged(copies, tmp_path, capsysbinary):
    windows = tmp_path / "windows.py"  # as git may write it there
    windows.write_bytes(copies["noise"].read_bytes().replace(b"\n", b"\r\n"))
    older = copies["tuning"].read_bytes().replace(f"dpbook {dpbook.__version__}".encode(), b"dpbook 0.0.9")
    old = tmp_path / "old.py"
    old.write_bytes(re.sub(rb"(?<=sha256:)\w+", checksum(older).encode(), older))
    code, out, _ = command(capsysbinary, "copy", "--check", str(copies["noise"]), str(windows), str(old))
    lines = out.decode().splitlines()
    assert code == 0
    assert ["what dpbook" in line for line in lines] == [True, True, False]
    assert "made by dpbook 0.0.9" in lines[2]
    assert "make it anew" in lines[2]


# --- any module of a flat package -------------------------------------------------------------------------------------

NASTY = {
    "__init__": """
        from nasty.top import report
        __version__ = "7"
        """,
    "_checks": '''
        """Checks, in a module whose docstring has a line so long that as a comment of the copy it must be broken in two
        at the last word."""

        import math
        from typing import Any

        # a comment above two
        LIMIT = 10
        WIDTH = 12  # kept


        def rows(**parameter: Any) -> list:
            ((name, value),) = parameter.items()
            return [f"{name}:{value!r:>{LIMIT}}", f"{_one(value)}{{literal}}" f" ε {math.floor(2.5)}"]


        def bounds(value=WIDTH):
            return value


        def _one(x):
            return f"""<
        {x!r:>{LIMIT}} {bounds(
            value=LIMIT
        )}>"""


        def unused():
            return no_such_name if False else 1
        '''.replace("no_such_name if False else 1", "1"),
    "base": '''
        """Base."""

        import os.path
        import statistics as special
        from collections import OrderedDict as Ordered

        REGISTRY = {}
        REGISTRY["two"] = lambda: 2
        REGISTRY.update(three=lambda: 3)
        total = 0
        squares = [last := n * n for n in range(4)]
        try:
            import no_such_module as extra
        except ImportError as problem:
            extra = str(problem)[:2]


        def bump():
            global total
            total += 1
            return total


        def helper():
            return "base"


        def middle(values):
            return special.median(values), os.path.basename("a/b"), Ordered(a=1)


        class Shape:
            helper = helper()

            def again(self, rows=helper):
                return helper(), rows, [helper for helper in "ab"], (lambda helper: helper)(1)


        def unused():
            return "unused"
        ''',
    "other": '''
        """Other."""

        def add(values):
            return sum(values)


        def helper():
            return "other"


        def lazy():
            from nasty import base

            def inner():
                return base.helper()

            return inner()
        ''',
    "top": '''
        """The top.

        >>> from nasty import base, other
        >>> base.helper(), other.helper(), sum([])
        ('base', 'other', 'mine')
        """

        from __future__ import annotations

        from typing import Literal

        import nasty
        from nasty import _checks, base
        from nasty._checks import bounds as limits
        from nasty.base import Shape as Figure
        from nasty.base import bump
        from nasty.other import add, helper as other_helper, lazy

        special = 5
        last = 6


        def sum(values):
            return "mine"


        def rows(rows, bounds=3) -> "list[Figure]":
            """Rows.

            Examples
            --------
            >>> from nasty.base import bump
            >>> rows = bump() - bump(); rows
            -1
            >>> for _ in range(1):
            ...     base_helper = nasty.base.helper()
            ...     print(f"{nasty.base.helper()}")
            base
            """
            helper = other_helper()
            return [*_checks.rows(rows=rows), limits(bounds), helper, base.helper()]


        def report(kind: Literal["base", "other"] = "base", figure: "Figure | None" = None):
            base_helper = base.helper  # the name that the copy would give otherwise
            text = f"{base.helper()!r:>{_checks.LIMIT}} {{x}} {[base.helper() for _ in range(2)]} {special=}"
            found = [base_helper(), text, sum([1]), add([1, 2]), special, base.middle([1, 2, 9]), rows(1), lazy()]
            found += [base.last, base.extra, [last for last in (1, 2)], (lambda: (last := 3) + last)()]
            return [*found, bump(), bump(), sorted(base.REGISTRY), Figure().again(), Figure.helper, nasty.__version__]
        ''',
}


def assembled(folder, package, module):
    flat = flatten(folder, package, module)
    future = [block for block in flat.imports if "__future__" in block]
    return "\n\n".join([flat.docstring, *future, *(block for block in flat.imports if block not in future), flat.body])


@pytest.fixture
def nasty(tmp_path, monkeypatch):
    folder = tmp_path / "nasty"
    folder.mkdir()
    for name, text in NASTY.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text).lstrip(), encoding="utf8")
    monkeypatch.syspath_prepend(str(tmp_path))
    yield folder
    for name in [name for name in sys.modules if name.split(".")[0] == "nasty"]:
        del sys.modules[name]


def test_nasty_names_keep_their_meaning(nasty, tmp_path, monkeypatch):
    text = assembled(nasty, "nasty", "top")
    expected = importlib.import_module("nasty.top").report()
    for name in [name for name in sys.modules if name.split(".")[0] == "nasty"]:
        del sys.modules[name]
    nasty.rename(tmp_path / "gone")
    (tmp_path / "flat.py").write_text(text, encoding="utf8")
    flat = importlib.import_module("flat")
    try:
        assert flat.report() == expected
        assert tuple(doctest.testmod(flat))[:2] == (0, 3)
    finally:
        del sys.modules["flat"]
    assert "unused" not in text
    assert "import nasty" not in text
    assert "# a comment above two\n_checks_LIMIT = 10\nWIDTH = 12  # kept\n" in text
    assert max(len(line) for line in text.split("\n")) <= 120
    if importlib.util.find_spec("ruff"):
        done = python("-m", "ruff", "check", "--isolated", "--select", "F,E9", str(tmp_path / "flat.py"), text=True)
        assert done.returncode == 0, done.stdout


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("from nasty import base\nx = getattr(base, 'helper')", "line 2: the module base is used as a value"),
        ("from nasty import base\nbase.total = 3", "line 2: base.total is assigned to"),
        ("from nasty.base import *", "line 1: import \\*"),
        ("from os import *", "line 1: import \\*"),
        ("import nasty.base, os", "line 1: nasty and another module in one import"),
        ("try:\n    from nasty import base\nexcept ImportError:\n    pass", "line 2: nasty is imported inside"),
        ("from nasty import nothing\nx = nothing", "does not define nothing"),
        ("x = nothing", "does not define nothing"),
        ("from nasty.base import helper as h\nx = 1; y = 2", "line 2: two statements on one line"),
        ("from nasty.base import helper as h\ndef f():\n    return f'{h=}'", "must be renamed to helper"),
        ("from nasty import base\nproblem = 1\nx = base.extra", "must be renamed to base_problem"),
        ("from nasty.base import total\nx = total", "line 2: total changes; write base.total"),
        ("from nasty import base\n__all__ = ['base']", "__all__ names base, which is no definition"),
        ("from nasty.base import helper as h\n__all__ = ['h']", "__all__ names h, which the copy calls helper"),
        ("from nasty import missing_module as m\nx = m.y", "does not define missing_module"),
    ],
)
def test_what_cannot_be_made_flat_is_refused_with_its_place(code, problem, nasty):
    (nasty / "odd.py").write_text(code + "\n", encoding="utf8")
    with pytest.raises(CopyError, match=problem):
        flatten(nasty, "nasty", "odd")


def test_a_new_module_needs_no_entry_anywhere(tmp_path):
    folder = tmp_path / "dpbook"
    shutil.copytree(PACKAGE, folder, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "queries.py").write_text(
        textwrap.dedent('''
        """Queries: for this test."""

        from typing import Any

        import numpy as np

        from dpbook import _validate, gaussian, laplace, sensitivity


        def private_mean(data: Any, *, bounds: tuple[float, float], n: int, epsilon: float) -> float:
            """Return a noisy mean."""
            bounds = _validate.bounds(bounds=bounds)
            total = sensitivity.clipped_sum(data, bounds=bounds)
            step = sensitivity.sum_sensitivity(bounds=bounds, neighbors="replace_one")
            return float(laplace.laplace_mechanism(total, epsilon=epsilon, sensitivity=step)) / n


        def sigma(epsilon: float) -> float:
            """Return the noise.

            >>> from dpbook import gaussian
            >>> sigma(1.0) == gaussian.gaussian_sigma(epsilon=1.0, delta=1e-5, sensitivity=1.0)
            True
            """
            return gaussian.gaussian_sigma(epsilon=np.float64(epsilon), delta=1e-5, sensitivity=1.0)
        ''').lstrip(),
        encoding="utf8",
    )
    assert "queries" in module_names(folder)
    path = tmp_path / "privacy_queries.py"
    path.write_bytes(copy_text("queries", folder).encode())
    program = BLOCKED + textwrap.dedent("""
        import doctest
        module = load(sys.argv[1], "privacy_queries")
        assert abs(module.private_mean([0.0, 50.0, 1000.0], bounds=(0, 100), n=3, epsilon=1e9) - 50.0) < 1e-3
        assert doctest.testmod(module).failed == 0
        """)
    done = python("-I", "-W", "error", "-c", program, str(path), text=True, encoding="utf8")
    assert done.returncode == 0, done.stderr
    if importlib.util.find_spec("ruff"):
        common = ["--isolated", "--no-cache", "--line-length", "120", str(path)]
        for arguments in (["check", "--select", "F,E9,I"], ["format", "--check"]):
            done = python("-m", "ruff", *arguments, *common, text=True)
            assert done.returncode == 0, done.stdout


def test_names_that_are_only_exported_are_there(nasty):
    (nasty / "odd.py").write_text(
        "from math import pi\nfrom nasty.base import bump, helper\n__all__ = ['bump', 'pi']\n", encoding="utf8"
    )
    flat = {}
    exec(assembled(nasty, "nasty", "odd"), flat)
    assert (flat["bump"](), round(flat["pi"], 2), "helper" in flat) == (1, 3.14, False)
    assert flatten(nasty, "nasty", "odd").api == ["bump", "pi"]


def test_a_line_that_grows_too_long_is_left_alone_by_formatters(nasty, tmp_path):
    long = "    return [" + ", ".join(["helper()"] * 10) + "," + " helper()]"
    body = f"def helper():\n    return 1\n\n\ndef many():\n{long}  # {'x' * 5}\n"
    (nasty / "low.py").write_text('"""Low."""\n\n' + body, encoding="utf8")
    (nasty / "odd.py").write_text(
        '"""Odd."""\n\nfrom nasty import low\n\n\ndef f():\n    return low.helper(), low.many()\n', encoding="utf8"
    )
    text = assembled(nasty, "nasty", "odd")
    assert f"# {'x' * 5}  # fmt: skip" in text
    if importlib.util.find_spec("ruff"):
        (tmp_path / "x.py").write_text(text, encoding="utf8")
        common = ["--isolated", "--no-cache", "--line-length", "120", str(tmp_path / "x.py")]
        done = python("-m", "ruff", "format", "--diff", *common, text=True)
        assert "helper" not in done.stdout, done.stdout


# --- the page and the chapters ----------------------------------------------------------------------------------------

PAGE = (ROOT / "book" / "copying.md").read_text(encoding="utf8")


def test_the_programs_of_the_page_run(copies, tmp_path):
    call, verify = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    path = tmp_path / "privacy_laplace.py"
    path.write_bytes(copies["laplace"].read_bytes())
    done = python("-c", call, cwd=tmp_path, text=True)
    assert -1000 < float(done.stdout) < 1000
    assert python("-c", verify, cwd=tmp_path).returncode == 0
    path.write_bytes(path.read_bytes().replace(b"GRID_BITS = 20", b"GRID_BITS = 21"))
    assert b"the file was changed" in python("-c", verify, cwd=tmp_path).stderr


def test_what_must_not_be_changed_is_in_the_files(copies):
    part = PAGE[PAGE.index("## What must not be changed") : PAGE.index("## How the copy is made")]
    text = "".join(path.read_text(encoding="utf8") for path in copies.values())
    names = [name for term in re.findall(r"^(`.*)\n: ", part, re.MULTILINE) for name in re.findall(r"`(\w+)`", term)]
    assert len(names) >= 10
    for name in names:
        assert re.search(rf"\b{name}\b", text), name


WORDING = """\
:::{{admonition}} Copy this code
:class: tip
`python -m dpbook copy {name} > privacy_{name}.py` makes one file of `dpbook.{name}` that runs without dpbook. Or
download it: {{onefile}}`{name}`. How to keep it up to date, and what not to change: {{doc}}`copying`.
:::"""


def test_chapters_offer_the_copy_of_their_module_in_the_same_words():
    offered = set()
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        cells = json.loads(path.read_text(encoding="utf8"))["cells"]
        text = "\n".join("".join(cell["source"]) for cell in cells if cell["cell_type"] == "markdown")
        names = re.findall(r"\{onefile\}`(\w+)`", text)
        offered.update(names)
        assert text.count("Copy this code") == len(names)
        for name in names:
            assert name in PUBLIC, path.name
            assert WORDING.format(name=name) in text, path.name
        if path.stem in PUBLIC:
            assert path.stem in names, f"{path.name} has no admonition:\n{WORDING.format(name=path.stem)}"
    assert offered >= set(PUBLIC) - {"datasets", "exercises", "plots"}
