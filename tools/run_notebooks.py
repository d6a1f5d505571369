"""Execute the notebooks in place and write them in one canonical form, so that a second run changes nothing.

    python tools/run_notebooks.py                 all of them
    python tools/run_notebooks.py book/laplace.ipynb
    python tools/run_notebooks.py --check         change nothing; fail when a file would change

Image data is left out of the files: the site makes its own when it is built, and a diff stays readable.
"""

import argparse
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

BOOK = Path(__file__).resolve().parent.parent / "book"
IMAGES = ("image/png", "image/svg+xml", "image/jpeg", "application/pdf")


def merged(outputs: list[Any]) -> list[Any]:
    """Join what a cell printed: the kernel cuts it into pieces at random."""
    result: list[Any] = []
    for output in outputs:
        if result and output.output_type == result[-1].output_type == "stream" and output.name == result[-1].name:
            result[-1].text += output.text
        else:
            result.append(output)
    return result


def canonical(notebook: Any) -> str:
    """Return the notebook as text without what changes from run to run or from machine to machine."""
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    count = 0
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
        if cell.cell_type != "code":
            continue
        count += 1
        cell.execution_count = count
        cell.outputs = merged(cell.outputs)
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
            for mime in IMAGES:
                output.get("data", {}).pop(mime, None)
            output.get("metadata", {}).pop("image/png", None)
    return nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when a file would change")
    parser.add_argument("notebooks", nargs="*", type=Path, default=sorted(BOOK.glob("*.ipynb")))
    arguments = parser.parse_args()
    changed = []
    for path in arguments.notebooks:
        print(f"{path.name} ...", end=" ", flush=True)
        before = path.read_text(encoding="utf8")
        notebook = nbformat.reads(before, as_version=4)
        client = NotebookClient(
            notebook, timeout=600, kernel_name="python3", record_timing=False,
            resources={"metadata": {"path": str(path.parent)}},
        )  # fmt: skip
        client.execute()
        after = canonical(notebook)
        print("same" if after == before else "changed")
        if after != before:
            changed.append(path)
            if not arguments.check:
                path.write_text(after, encoding="utf8")
    return 1 if changed and arguments.check else 0


if __name__ == "__main__":
    sys.exit(main())
