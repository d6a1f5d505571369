"""Put the cell that installs dpbook on Google Colab in front of the first code cell of every notebook.

    python tools/colab_cell.py            write it, and count the cells anew
    python tools/colab_cell.py --check    change nothing; fail when a notebook has it not, or differently

The address of the repository comes from _config.yml. Anywhere else than on Colab the cell does nothing, and the site
leaves it out (its tag is "remove-cell").
"""

import argparse
import sys
from pathlib import Path

import nbformat
import yaml

ROOT = Path(__file__).resolve().parent.parent
CELL_ID = "c01ab001"
SOURCE = """\
# Only on Google Colab: install dpbook there. Anywhere else this cell does nothing.
import sys

if "google.colab" in sys.modules:
    %pip install --quiet "dpbook[plots] @ git+{url}@{branch}"
"""


def cell() -> nbformat.NotebookNode:
    repository = yaml.safe_load((ROOT / "_config.yml").read_text(encoding="utf8"))["repository"]
    new = nbformat.v4.new_code_cell(SOURCE.format(**repository).strip(), metadata={"tags": ["remove-cell"]})
    new["id"] = CELL_ID
    return new


def with_cell(text: str) -> str:
    """Return the notebook with the cell in its place and the executions counted from 1."""
    notebook = nbformat.reads(text, as_version=4)
    own = cell()
    cells = [c for c in notebook.cells if c.id != CELL_ID and c.source != own.source]
    first = next(i for i, c in enumerate(cells) if c.cell_type == "code")
    notebook.cells = [*cells[:first], own, *cells[first:]]
    for count, c in enumerate((c for c in notebook.cells if c.cell_type == "code"), start=1):
        c.execution_count = count
        for output in c.outputs:
            if output.output_type == "execute_result":
                output.execution_count = count
    return nbformat.writes(notebook, indent=1, ensure_ascii=False) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="fail when a file would change")
    check = parser.parse_args().check
    changed = []
    for path in sorted((ROOT / "book").glob("*.ipynb")):
        before = path.read_text(encoding="utf8")
        after = with_cell(before)
        if after != before:
            changed.append(path.name)
            if not check:
                path.write_text(after, encoding="utf8")
    print("changed:", ", ".join(changed) or "nothing")
    return 1 if check and changed else 0


if __name__ == "__main__":
    sys.exit(main())
