"""The package as others install it: a wheel alone, in an empty environment, imports and runs."""

import os
import re
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import dpbook
from dpbook._copy import copy_text

ROOT = Path(__file__).parent.parent
PROJECT = (ROOT / "pyproject.toml").read_text(encoding="utf8")


def run(*command, cwd=ROOT):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": ""})
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    out = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "build", "--outdir", str(out), str(ROOT))
    return out


def test_version_is_the_same_everywhere():
    assert f'version = "{dpbook.__version__}"' in PROJECT
    assert f"version: {dpbook.__version__}" in (ROOT / "CITATION.cff").read_text(encoding="utf8")
    assert f"## {dpbook.__version__}" in (ROOT / "CHANGELOG.md").read_text(encoding="utf8")


def test_lowest_versions_are_the_stated_bounds():
    stated = dict(re.findall(r'"(numpy|scipy|mpmath|matplotlib)>=([\d.]+)"', PROJECT))
    pinned = dict(re.findall(r"^(\w+)==([\d.]+)", (ROOT / "tests" / "lowest.txt").read_text(encoding="utf8"), re.M))
    assert len(stated) == 4
    for name, version in stated.items():
        assert pinned[name] == version


def test_wheel_and_sdist_hold_what_they_should(built):
    (wheel,) = built.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert {"dpbook/noise.py", "dpbook/py.typed"} <= set(names)
    assert not [name for name in names if not name.startswith(("dpbook/", "dpbook-"))]
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        assert any(name.endswith("/LICENSE") for name in archive.getnames())


def test_the_wheel_alone_runs(built, tmp_path):
    venv.create(tmp_path / "env", with_pip=True)
    python = tmp_path / "env" / ("Scripts" if os.name == "nt" else "bin") / "python"
    (wheel,) = built.glob("*.whl")
    run(str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel), cwd=tmp_path)
    program = (
        "import dpbook, numpy as np, sys;"
        "x = dpbook.laplace_mechanism(np.zeros(5), 1.0, 1.0);"
        "y = dpbook.gaussian_mechanism(0.0, 1.0, 1e-6, 1.0);"
        "assert x.shape == (5,) and isinstance(y, float) and 'matplotlib' not in sys.modules;"
        "print(dpbook.__file__)"
    )
    where = run(str(python), "-c", program, cwd=tmp_path)
    assert str(ROOT) not in where
    run(str(python), "-m", "dpbook", "copy", "tuning", "-o", "privacy_tuning.py", cwd=tmp_path)
    assert (tmp_path / "privacy_tuning.py").read_bytes() == copy_text("tuning").encode()


def test_every_module_is_imported_where_python_has_no_processes():
    """Python in the browser has not all of the standard library; the site's live cells begin with such imports."""
    program = (
        "import importlib, pkgutil, sys\n"
        "import numpy, scipy.stats, scipy.special, scipy.optimize, scipy.fft, mpmath\n"  # these have builds for it
        "for name in [one for one in sys.modules if one.split('.')[0] in ('multiprocessing', 'concurrent')]:\n"
        "    del sys.modules[name]\n"
        "for name in ('_multiprocessing', '_posixshmem', 'fcntl', 'grp', 'resource', 'termios', 'ssl', 'sqlite3'):\n"
        "    sys.modules[name] = None\n"
        "import dpbook\n"
        "for module in pkgutil.iter_modules(dpbook.__path__):\n"
        "    if module.name not in ('__main__', 'plots'):\n"
        "        importlib.import_module('dpbook.' + module.name)\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert done.returncode == 0, done.stderr
