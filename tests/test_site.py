"""The built site: every link inside it leads somewhere, every picture has a text, nothing is fetched from elsewhere."""

import importlib
import re
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from fontTools.ttLib import TTFont

from dpbook import __version__
from dpbook._copy import copy_text, module_names
from dpbook.plots import COLORS

SITE = Path(__file__).parent.parent / "_build" / "html"
# The theme leaves templates of its own under _static: they are no pages.
PAGES = sorted(path for path in SITE.rglob("*.html") if "_static" not in path.parts)

if not PAGES:
    pytest.skip("the site is not built: run make book", allow_module_level=True)


class Page(HTMLParser):
    def __init__(self, path):
        super().__init__()
        self.ids, self.links, self.fetched, self.images = set(), [], [], []
        self.feed(path.read_text(encoding="utf8"))

    def handle_starttag(self, tag, attrs):
        found = dict(attrs)
        self.ids |= {found[key] for key in ("id", "name") if found.get(key)}
        if tag == "a" and found.get("href"):
            self.links.append(found["href"])
        if tag == "img":
            self.images.append((found.get("src", ""), found.get("alt")))
        if tag in ("script", "img", "iframe", "source") and found.get("src"):
            self.fetched.append(found["src"])
        if tag == "link" and found.get("rel") != "canonical" and found.get("href"):
            self.fetched.append(found["href"])


@pytest.fixture(scope="module")
def site():
    return {path: Page(path) for path in PAGES}


def test_links_inside_the_site_lead_somewhere(site):
    broken = []
    for path, page in site.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or parts.netloc:
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                broken.append(f"{path.name}: {link}")
            elif parts.fragment and target in site and parts.fragment not in site[target].ids:
                broken.append(f"{path.name}: {link} (no such place on that page)")
    assert not broken, "\n".join(broken[:40])


def test_nothing_is_fetched_from_another_site(site):
    away = {src for page in site.values() for src in page.fetched if urlsplit(src).netloc}
    assert not away


def test_what_is_fetched_exists(site):
    for path, page in site.items():
        for src in page.fetched:
            parts = urlsplit(src)
            if parts.scheme != "data" and not parts.netloc:
                assert (path.parent / unquote(parts.path)).exists(), f"{path.name}: {src}"


def test_pictures_have_a_text_that_is_no_file_name(site):
    for path, page in site.items():
        for src, alt in page.images:
            if src.endswith("/logo.svg") or src == "_static/logo.svg":  # beside the name of the book: nothing to add
                assert alt == ""
                continue
            assert alt, f"{path.name}: {src}"
            assert ".png" not in alt, f"{path.name}: {src}"


def test_the_copies_are_what_the_command_makes(site):
    files = {path.name: path.read_bytes() for path in (SITE / "copies").iterdir()}
    assert files == {f"privacy_{name}.py": copy_text(name).encode() for name in module_names()}


def test_chapters_lead_to_the_copy_of_their_module(site):
    for path, page in site.items():
        if path.parent.name == "book" and path.stem in (*module_names(), "copying"):
            wanted = module_names() if path.stem == "copying" else [path.stem]
            assert {f"../copies/privacy_{name}.py" for name in wanted} <= set(page.links), path.name


def test_every_page_of_the_contents_was_built(site):
    contents = (SITE.parent.parent / "_toc.yml").read_text(encoding="utf8")
    names = re.findall(r"^(?:root:| *- file:) (\S+)$", contents, re.M)
    assert len(names) > 20
    assert {SITE / f"{name}.html" for name in names} <= set(site)


ROOT = SITE.parent.parent
BOOK = ROOT / "book"


def test_the_site_and_the_figures_have_the_same_colours():
    css = (BOOK / "_static" / "custom.css").read_text(encoding="utf8")
    for i, color in enumerate(COLORS, start=1):
        assert f"--dp-{i}: {color};" in css
    for name in ("logo.svg", "favicon.svg"):
        assert COLORS[0] in (BOOK / "_static" / name).read_text(encoding="utf8")


def test_every_question_leads_to_a_section(site):
    lines = [line for line in (BOOK / "questions.md").read_text(encoding="utf8").splitlines() if line.startswith("- ")]
    assert len(lines) >= 40
    assert all(re.search(r"[?…] \[\]\([\w.]+#\S+\)$", line) for line in lines)
    links = [link for link in site[SITE / "book" / "questions.html"].links if ".html#" in link]
    assert len(links) >= len(lines)  # that they lead somewhere is tested above


def test_glossary_entries_are_complete():
    entries = re.findall(r"^(\w.*)\n((?:    .*\n\n?)+)", (BOOK / "glossary.md").read_text(encoding="utf8"), re.M)
    assert len(entries) >= 25
    for term, text in entries:
        assert re.search(r"Chinese: .*[\u4e00-\u9fff].*\. Chapters?: \{doc\}`\w+`(, \{doc\}`\w+`)*\.", text), term
        assert len(text.split("\n\n")[0]) > 30, term


def test_every_reference_has_an_address():
    for entry in (BOOK / "references.bib").read_text(encoding="utf8").split("\n@"):
        assert re.search(r"\b(doi|url|eprint)\s*=\s*\{\S+\}", entry), entry[:60]


def test_address_of_the_site_stands_in_one_place():
    config = (ROOT / "_config.yml").read_text(encoding="utf8")
    (base,) = re.findall(r"^  baseurl: (\S+)$", config, re.M)
    (repository,) = re.findall(r"^  url: (\S+)$", config, re.M)
    assert config.count(base) == config.count(repository) == 1
    page = (SITE / "book" / "intro.html").read_text(encoding="utf8")
    assert f'<meta property="og:image" content="{base}_static/social.png"' in page
    assert (SITE / "_static" / "social.png").exists()
    assert f'<link rel="canonical" href="{base}book/intro.html"' in page
    for known in re.findall(r"<loc>(.*?)</loc>", (SITE / "sitemap.xml").read_text(encoding="utf8")):
        assert (SITE / known.removeprefix(base)).is_file(), known
    not_found = (SITE / "404.html").read_text(encoding="utf8")
    for link in re.findall(r'<a href="(.*?)"', not_found):
        assert link.startswith(base), link
        assert (SITE / link.removeprefix(base)).is_file(), link


def test_the_code_is_one_click_from_the_reference():
    api = (SITE / "book" / "api.html").read_text(encoding="utf8")
    names = re.findall(r'<dt class="sig sig-object py" id="(dpbook\.\w+\.\w+)">', api)
    assert len(names) >= 40
    for name in names:
        function = name.rpartition(".")[2]
        # What a module hands on has its code in another one.
        source = re.search(rf'href="\.\./_modules/(dpbook/\w+\.html)#{function}"', api)
        assert source, name
        assert f'id="{function}"' in (SITE / "_modules" / source[1]).read_text(encoding="utf8"), name


def test_status_lists_every_notebook_and_the_versions():
    page = (SITE / "book" / "status.html").read_text(encoding="utf8")
    for path in BOOK.glob("*.ipynb"):
        assert f'href="{path.stem}.html"' in page, path.stem
    assert page.count("<p>passed</p>") == len(list(BOOK.glob("*.ipynb")))
    for name in ("Python", "numpy", "scipy", "dpbook"):
        assert re.search(rf"{name}: \d+\.\d+", page), name


def test_citation_and_changelog_are_shown():
    cite = (SITE / "book" / "cite.html").read_text(encoding="utf8")
    assert f"version: {__version__}" in re.sub(r"<.*?>", "", cite)
    assert __version__ in (SITE / "book" / "changelog.html").read_text(encoding="utf8")


def test_icons_come_from_the_small_font():
    """A new icon is in the font by itself; the theme's whole set is not loaded."""
    css = (SITE / "_static" / "icons.css").read_text(encoding="utf8")
    for font in re.findall(r"url\((.*?)\)", css):
        assert 500 < (SITE / "_static" / font).stat().st_size < 20_000
    assert not any("fontawesome.js" in src for path in PAGES for src in Page(path).fetched)


def extension(name):
    sys.path.insert(0, str(BOOK / "_ext"))
    try:
        return importlib.import_module(name)
    finally:
        sys.path.pop(0)


def test_what_the_extension_mends():
    dpsite = extension("dpsite")
    table = '<table border="1" class="dataframe"><tr style="text-align: right;"><th></th><th>a</th></tr></table>'
    assert dpsite.mend(table) == '<table class="dataframe"><tr><td></td><th>a</th></tr></table>'
    assert dpsite.mend('<img alt="差分隐私">') == '<img alt="差分隐私">'
    assert dpsite.mend("<p>DP: 差分隐私, ε</p>") == '<p>DP: <span lang="zh-Hans">差分隐私</span>, ε</p>'
    assert dpsite.mend("<p>差分隐私</p>", chinese_site=True) == "<p>差分隐私</p>"
    assert dpsite.lean('<script src="a/searchindex.js?v=1"></script>', "search") != ""
    assert dpsite.lean('<script src="a/searchindex.js?v=1"></script>', "book/intro") == ""


def test_no_table_has_an_empty_header(site):
    for path in site:
        assert not re.search(r"<th[^>]*>\s*</th>", path.read_text(encoding="utf8")), path.name


def test_formulas_are_mathml_and_no_tex_is_left(site):
    """Every formula of the notebooks is in its page as MathML, which needs no script and which screen readers speak."""
    count = 0
    for path in site:
        text = path.read_text(encoding="utf8")
        assert "<merror" not in text, path.name
        assert "mathjax" not in re.sub(r'class="[^"]*"', "", text).lower(), path.name
        formulas = re.findall(r"<math.*?</math>", text, re.S)
        assert not [one for one in formulas if re.search(r"\\[A-Za-z]", one)], path.name
        outside = re.sub(r"<(pre|code|script|head|title)\b.*?</\1>", "", text, flags=re.S)
        assert not re.search(r"\\[([]|\\(frac|varepsilon|Pr|sqrt)\b", outside), path.name
        count += len(formulas)
    assert count > 500


def test_the_font_of_the_formulas_has_what_they_need(site):
    formulas = extension("formulas")
    font = TTFont(SITE / "_static" / "formulas.woff")
    letters = set(map(chr, font.getBestCmap()))
    assert (SITE / "_static" / "formulas.woff").stat().st_size < 60_000
    assert font["MATH"].table.MathVariants.VertGlyphConstruction  # brackets and roots in every size
    unseen = set("\u2061\u2062\u2063\u2064\ufe00\n")
    for path in site:
        text = path.read_text(encoding="utf8")
        assert formulas.characters(text) - unseen <= letters, (path.name, formulas.characters(text) - letters)


def test_a_formula_that_is_not_understood_ends_the_build():
    formulas = extension("formulas")
    with pytest.raises(formulas.LatexError):
        formulas.mathml(r"\nosuchthing x", block=True)
    with pytest.raises(formulas.LatexError):
        formulas.mathml(r"\frac{1}{2", block=False)
    assert "<mfrac>" in formulas.mathml(r"\frac{1}{2}", block=False)
    # Numbers are Sphinx's; a bare double backslash begins a new line.
    assert "(1)" not in formulas.mathml(r"\begin{align} a &= b \\ c &= d \end{align}", block=True)
    assert formulas.mathml(formulas.lines(r"a &= b \\ c &= d"), block=True).count("<mtr") == 2
    assert formulas.mathml(formulas.lines("a = b\n\nc = d"), block=True).count("<mtr") == 2
    assert {"𝑥", "√", "2"} <= formulas.characters(formulas.mathml(r"\sqrt{2x}", block=False))
