"""The built site: every link inside it leads somewhere, every picture has a text, nothing is fetched from elsewhere."""

from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from dpbook._copy import copy_text, module_names

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


def test_every_chapter_was_built(site):
    names = {path.stem for path in site if path.parent.name == "book"}
    assert {"intro", "concepts", "sensitivity", "laplace", "gaussian", "tuning", "copying", "api", "glossary"} <= names
