"""Puts the one-file copies of the modules into the built site, and links to them.

The files are made while the site is built, by the same code as `python -m dpbook copy`, so none is in the repository.

* ``{onefile}`laplace` `` is a link to the file of a module;
* ``{onefile-table}`` is a table of all of them.
"""

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective, SphinxRole
from sphinx.util.osutil import relative_uri

from dpbook import _copy
from dpbook._flatten import flatten

FOLDER = "copies"  # in the site


def file_name(module: str) -> str:
    return f"privacy_{module}.py"


class Link(nodes.reference):
    """A link to the file of ``node["module"]``."""


def visit_html(writer, node):
    here = writer.builder.get_target_uri(writer.builder.current_docname)
    file = file_name(node["module"])
    attributes = {"class": "reference download internal", "download": file}
    writer.body.append(
        writer.starttag(
            node, "a", "", href=relative_uri(here, f"{FOLDER}/{file}"), **attributes
        )
    )


def depart_html(writer, node):
    writer.body.append("</a>")


def ignore(writer, node):
    """Leave the text without a link, where there is no site."""


def link(module: str) -> Link:
    return Link("", "", nodes.literal("", file_name(module)), module=module)


class Role(SphinxRole):
    def run(self):
        if self.text not in _copy.module_names():
            return [], [
                self.inliner.reporter.error(
                    f"onefile: {_copy.unknown(self.text)}", line=self.lineno
                )
            ]
        return [link(self.text)], []


class Table(SphinxDirective):
    def run(self):
        for source in sorted(_copy.FOLDER.glob("*.py")):
            self.env.note_dependency(str(source))
        table = nodes.table(classes=["onefile"])
        group = nodes.tgroup(cols=4)
        table += group
        group += [nodes.colspec(colwidth=width) for width in (30, 15, 15, 40)]
        head, body = nodes.thead(), nodes.tbody()
        group += [head, body]
        head += self.line(
            [
                nodes.Text(text)
                for text in ("File", "Lines", "KB", "Needs Python and")
            ]
        )
        for module in _copy.module_names():
            text = _copy.copy_text(module)
            size = f"{len(text.encode()) / 1000:.1f}"
            needs = ", ".join(
                _copy.required(flatten(_copy.FOLDER, "dpbook", module))
            )
            body += self.line(
                [
                    link(module),
                    *map(nodes.Text, (str(text.count("\n")), size, needs)),
                ]
            )
        return [table]

    def line(self, cells: list[nodes.Node]) -> nodes.row:
        row = nodes.row()
        for cell in cells:
            row += nodes.entry("", nodes.paragraph("", "", cell))
        return row


def write(app: Sphinx, exception: Exception | None) -> None:
    if exception is not None or app.builder.format != "html":
        return
    folder = Path(app.outdir) / FOLDER
    folder.mkdir(exist_ok=True)
    for old in folder.glob("*.py"):
        old.unlink()
    for module in _copy.module_names():
        (folder / file_name(module)).write_bytes(_copy.copy_text(module).encode())


def setup(app: Sphinx) -> dict[str, bool | str]:
    app.add_node(
        Link,
        html=(visit_html, depart_html),
        latex=(ignore, ignore),
        text=(ignore, ignore),
    )
    app.add_role("onefile", Role())
    app.add_directive("onefile-table", Table)
    app.connect("build-finished", write)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
