"""The notebooks' form. nbval compares only cells that were run, so this is what makes its green honest."""

import json
import re
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parent.parent
NOTEBOOKS = sorted((ROOT / "book").glob("*.ipynb"))


@pytest.fixture(params=NOTEBOOKS, ids=lambda path: path.stem)
def notebook(request):
    book = nbformat.read(request.param, as_version=4)
    nbformat.validate(book)
    return book


def code(notebook):
    return [cell for cell in notebook.cells if cell.cell_type == "code"]


def prose(notebook):
    return "\n".join(cell.source for cell in notebook.cells if cell.cell_type == "markdown")


def test_every_notebook_is_in_the_table_of_contents():
    toc = (ROOT / "_toc.yml").read_text(encoding="utf8")
    assert NOTEBOOKS
    assert {f"book/{path.stem}" for path in NOTEBOOKS} <= set(re.findall(r"book/\w+", toc))


def test_every_module_has_a_chapter_or_a_section():
    text = "\n".join(path.read_text(encoding="utf8") for path in NOTEBOOKS)
    for module in (ROOT / "dpbook").glob("[a-z]*.py"):
        assert f"dpbook.{module.stem}" in text or f"import {module.stem}" in text or f", {module.stem}" in text, module


def test_cells_were_run_in_order(notebook):
    assert [cell.execution_count for cell in code(notebook)] == list(range(1, len(code(notebook)) + 1))


def test_cells_are_short_and_end_without_semicolon(notebook):
    for cell in code(notebook):
        assert not cell.source.rstrip().endswith(";"), cell.source  # nbval would see another number of outputs
        assert len(cell.source.splitlines()) <= 22, cell.source


def test_figures_have_alt_text_caption_and_name(notebook):
    for cell in code(notebook):
        is_figure = "plt.show()" in cell.source
        assert is_figure == any("<Figure" in str(output.get("data", "")) for output in cell.outputs), cell.source
        if is_figure:
            style = cell.metadata["mystnb"]
            assert len(style["image"]["alt"]) > 40
            assert style["figure"]["caption"]
            assert style["figure"]["name"].startswith("fig-")


def test_outputs_hold_no_image_error_or_path(notebook):
    for cell in code(notebook):
        for output in cell.outputs:
            assert output.output_type != "error", cell.source
            assert output.get("name") != "stderr", cell.source
            text = json.dumps(output)
            assert "image/png" not in text
            assert not re.search(r"/(home|root|tmp|Users|work)/", text), text


def test_ignored_outputs_say_why(notebook):
    for cell in code(notebook):
        if {"nbval-ignore-output", "nbval-skip"} & set(cell.metadata.get("tags", [])):
            assert "# not compared:" in cell.source, cell.source


def test_seeds_are_marked(notebook):
    for cell in code(notebook):
        for line in cell.source.splitlines():
            if re.search(r"default_rng\(\d|random\.seed\(", line):
                assert "teaching" in line, line


def test_exercises_have_labels_and_solutions(notebook):
    text = prose(notebook)
    exercises = set(re.findall(r"\{exercise\}\s*\n:label: (\S+)", text))
    assert exercises == set(re.findall(r"\{solution-start\} (\S+)", text))
    assert text.count("{solution-start}") == text.count("{solution-end}") == len(exercises)
    assert "{exercise} " not in text, "an exercise with a title would not be translated"
