"""The site's own Sphinx extension: what the theme and the other extensions leave undone.

* `mend` corrects the HTML of a page's body where a tool writes it badly (table corners, bibliography roles, ids).
* `lean` leaves out of a page's head what the page does not use.
* After the build: an icon font with only the icons that occur, and figures with a palette.
* Directives: ``versions`` (what the notebooks ran on) and ``how-to-cite`` (BibTeX from CITATION.cff).
* A page 404.html at the root of the site.

Everything works on whatever pages there are: a new chapter needs no entry here.
"""

import logging
import platform
import re
from collections.abc import Iterator
from datetime import datetime, timezone
from html import escape
from importlib import metadata
from pathlib import Path
from typing import Any

import yaml
from docutils import nodes
from docutils.parsers.rst import Directive
from fontTools import subset
from fontTools.ttLib import TTFont
from PIL import Image

logging.getLogger("fontTools").setLevel(
    logging.WARNING
)  # it tells every table that it leaves out
ROOT = Path(__file__).resolve().parent.parent.parent
SHOWN = (
    "numpy",
    "scipy",
    "mpmath",
    "pandas",
    "matplotlib",
    "seaborn",
    "scikit-learn",
    "dpbook",
)
CJK = re.compile(
    r"[\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]*[\u4e00-\u9fff][\u3000-\u303f\u4e00-\u9fff\uff00-\uffef]*"
)
FONTS = {
    "fa-solid": ("fa-solid-900", "Font Awesome 6 Free", 900),
    "fa-brands": ("fa-brands-400", "Font Awesome 6 Brands", 400),
}
FONTS["fa-regular"] = ("fa-regular-400", "Font Awesome 6 Free", 400)


def mend(html: str, *, chinese_site: bool = False) -> str:
    """Return a page's body with valid, accessible HTML."""
    # pandas leaves the corner of a table an empty header cell: it heads nothing, so it is a plain cell.
    html = re.sub(r"<th([^>]*)>\s*</th>", r"<td\1></td>", html)
    html = html.replace(
        '<table border="1" class="dataframe">', '<table class="dataframe">'
    )
    html = html.replace('<tr style="text-align: right;">', "<tr>").replace(
        "<style scoped>", "<style>"
    )
    html = re.sub(
        r"<div>\s*<style>\s*\.dataframe.*?</style>", "<div>", html, flags=re.S
    )
    # A list of references needs no roles: the theme's are deprecated, or wrong where they stand.
    html = html.replace(' role="doc-biblioentry"', "").replace(
        '<div role="list" class="citation-list">', '<div class="citation-list">'
    )
    html = html.replace("<p>✅</p>", "<p>passed</p>")  # in the table of runs
    # sphinx-proof and sphinx-exercise give every block the same id.
    html = re.sub(r' id="(proof|exercise|solution)(-content)?"', "", html)
    html = html.replace(' valign="top"', "")  # of pandas
    html = html.replace(
        '<summary aria-label="Toggle hidden content">', "<summary>"
    )  # it hides the summary's own text
    # viewcode puts blocks inside of <pre>, those of methods inside of that of their class.
    html = re.sub(
        r"<pre>.*?</pre>",
        lambda m: (
            m.group()
            .replace('<div class="viewcode-block"', '<span class="viewcode-block"')
            .replace("</div>", "</span>")
        ),
        html,
        flags=re.S,
    )
    if (
        not chinese_site
    ):  # so that a screen reader speaks Chinese, and the browser picks its letters
        parts = re.split(r"(<[^>]*>)", html)
        parts[::2] = [
            CJK.sub(lambda m: f'<span lang="zh-Hans">{m.group()}</span>', text)
            for text in parts[::2]
        ]
        html = "".join(parts)
    return html


def lean(html: str, pagename: str) -> str:
    """Return a part of the head without a second viewport, 1.5 MB of icons, and an unused search index."""
    html = re.sub(r"<script[^>]*/fontawesome\.js[^>]*></script>", "", html)
    html = re.sub(
        r'<meta name="viewport" content="width=device-width, initial-scale=1"\s*/>',
        "",
        html,
    )
    html = re.sub(r'<meta name="docsearch:version" content=""\s*/>', "", html)
    if pagename != "search":
        html = re.sub(
            r'<script src="[^"]*(searchtools|language_data|searchindex)\.js[^"]*"></script>',
            "",
            html,
        )
    return html


def _page(
    app: Any, pagename: str, _template: str, context: dict[str, Any], _doctree: Any
) -> None:
    context["lean"] = lambda html: lean(html, pagename)
    if context.get("body"):
        context["body"] = mend(
            context["body"], chinese_site=str(app.config.language).startswith("zh")
        )


class Versions(Directive):
    """A list of the versions on which this site was built."""

    def run(self) -> list[nodes.Node]:
        rows = [
            ("Python", platform.python_version()),
            *((name, metadata.version(name)) for name in SHOWN),
        ]
        rows += [
            ("built", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"))
        ]
        table = nodes.bullet_list()
        table += [
            nodes.list_item("", nodes.paragraph("", f"{name}: {version}"))
            for name, version in rows
        ]
        return [table]


def bibtex(base: str) -> str:
    """Return BibTeX from CITATION.cff, the only place where authors, title and version are kept."""
    cff = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf8"))
    authors = " and ".join("{" + one["name"] + "}" if "name" in one else f"{one['family-names']}, {one['given-names']}"
                           for one in cff["authors"])  # fmt: skip
    released = str(cff["date-released"])
    return (
        f"@software{{dpbook{released[:4]},\n  author  = {{{authors}}},\n  title   = {{{cff['title']}}},\n"
        f"  version = {{{cff['version']}}},\n  date    = {{{released}}},\n  url     = {{{base}}}\n}}"
    )


class HowToCite(Directive):
    """BibTeX for this version."""

    def run(self) -> list[nodes.Node]:
        text = bibtex(self.state.document.settings.env.config.html_baseurl)
        return [nodes.literal_block(text, text, language="bibtex")]


def _not_found(app: Any) -> Iterator[tuple[str, dict[str, Any], str]]:
    if app.builder.format == "html":
        yield (
            "404",
            {"base": app.config.html_baseurl, "root_doc": app.config.root_doc},
            "404.html",
        )


def _icons(site: Path) -> None:
    """Write a font with only the icons that occur in the pages, and the style sheet that declares it."""
    static = site / "_static"
    theme = static / "styles" / "pydata-sphinx-theme.css"
    sheet = theme.read_text(encoding="utf8")
    used: set[str] = set()
    for path in [
        *site.rglob("*.html"),
        *(static).glob("*.js"),
        static / "custom.css",
    ]:
        used |= set(re.findall(r"\bfa-[a-z0-9-]+", path.read_text(encoding="utf8")))
    # Names of icons stand in rules of their own; other rules, for boxes and the like, have the letter itself.
    named = re.compile(
        r'((?:\.fa-[a-z0-9-]+(?:::?before)?,?)+)\{(?:--fa|content):"\\?([^"]+)";?\}'
    )
    wanted: set[int] = set()

    def keep(rule: re.Match[str]) -> str:
        if not used & set(re.findall(r"fa-[a-z0-9-]+", rule[1])):
            return ""
        wanted.add(int(rule[2], 16) if len(rule[2]) > 1 else ord(rule[2]))
        return rule[0]

    smaller = named.sub(keep, sheet)
    for path in [
        *static.glob("*.css"),
        *(static / "styles").glob("sphinx-book-theme.css"),
    ]:
        smaller += path.read_text(encoding="utf8")
    wanted |= {
        int(code, 16) for code in re.findall(r'"\\([ef][0-9a-f]{3})"', smaller)
    }
    wanted |= {ord(letter) for letter in re.findall("[\ue000-\uf8ff]", smaller)}
    theme.write_text(named.sub(keep, sheet), encoding="utf8")
    rules = []
    for style, (file, family, weight) in FONTS.items():
        source = static / "vendor" / "fontawesome" / "webfonts" / f"{file}.ttf"
        if not source.exists():
            continue
        font = TTFont(source)
        here = wanted & set(font.getBestCmap())
        if not here or (style not in used and style != "fa-solid"):
            continue
        options = subset.Options(
            flavor="woff", layout_features=[], notdef_outline=True
        )
        cut = subset.Subsetter(options)
        cut.populate(unicodes=here)
        cut.subset(font)
        font.flavor = "woff"
        font.save(static / f"{file}.woff")
        face = f'font-family:"{family}";font-weight:{weight};font-display:block;src:url({file}.woff) format("woff")'
        rules.append(f"@font-face{{{face}}}")
    (static / "icons.css").write_text("\n".join(rules) + "\n", encoding="utf8")


def _figures(site: Path) -> None:
    """Give figures a palette: a third of the bytes, no difference to the eye."""
    for path in (site / "_images").glob("*.png"):
        with Image.open(path) as image:
            if image.mode != "P":
                smaller = image.convert("RGB").quantize(
                    256, dither=Image.Dither.NONE
                )
                smaller.save(path, optimize=True)


INDEX = """<!DOCTYPE html>
<html lang="{lang}"><head><meta charset="utf-8"><title>{title}</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta http-equiv="refresh" content="0; url={page}"><link rel="canonical" href="{base}{page}">
<link rel="icon" href="data:,"></head>
<body><main><h1>{title}</h1><p><a href="{page}">The first page of the book</a></p></main></body></html>
"""


def _index(app: Any) -> None:
    """Write the page that leads on to the first one: with a title and a link, and no request for an icon."""
    title, page = escape(app.config.project), f"{app.config.root_doc}.html"
    text = INDEX.format(
        lang=app.config.language,
        title=title,
        page=page,
        base=app.config.html_baseurl,
    )
    (Path(app.outdir) / "index.html").write_text(text, encoding="utf8")


def _finished(app: Any, error: Exception | None) -> None:
    if error is None and app.builder.name in ("html", "dirhtml"):
        site = Path(app.outdir)
        _icons(site)
        _figures(site)
        _index(app)


def _configure(_app: Any, config: Any) -> None:
    config.ogp_site_url = config.html_baseurl


def setup(app: Any) -> dict[str, bool]:
    app.add_directive("versions", Versions)
    app.add_directive("how-to-cite", HowToCite)
    app.connect("config-inited", _configure, priority=900)
    app.connect("html-page-context", _page, priority=900)
    app.connect("html-collect-pages", _not_found)
    app.connect("build-finished", _finished, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
