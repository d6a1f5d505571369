"""Every page of the built site in Chromium: light and dark, wide and on a phone; and the HTML of every page.

Needs Chromium, node and what tests/browser/package.json names; `make test` installs that where npm and Chromium are.
Without them the tests are skipped, unless the environment has DPBOOK_PAGES=required, as in .ci/run.
"""

import functools
import json
import os
import shutil
import subprocess
import threading
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib import metadata
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
SITE = ROOT / "_build" / "html"
TOOLS = ROOT / "tests" / "browser"
PAGES = sorted(
    path.relative_to(SITE).as_posix()
    for path in SITE.rglob("*.html")
    if "_static" not in path.parts and path != SITE / "index.html"  # which only leads on to the first page
)
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SHEET = "book/cheatsheet.html"
# What a first visit to a page transfers, compressed as a static host does it: HTML, style, scripts, fonts, pictures.
# Python in the page comes on top, when a reader asks for it.
LARGEST_VISIT = 400_000

missing = None
if not PAGES:
    missing = "the site is not built: run make book"
elif not (CHROMIUM and shutil.which("node")):
    missing = "there is no Chromium, or no node"
elif not (TOOLS / "node_modules" / "playwright-core").is_dir():
    missing = "tests/browser has no node_modules: run make test-site"
elif int(subprocess.run(["node", "-p", "parseInt(process.versions.node)"], capture_output=True, text=True).stdout) < 20:
    missing = "node is older than 20"
elif metadata.version("sphinx-book-theme").split(".")[:2] < ["1", "2"]:
    missing = "an older theme: the site is published with the newest"
if missing and os.environ.get("DPBOOK_PAGES") == "required":
    raise RuntimeError(missing)
if missing:
    pytest.skip(missing, allow_module_level=True)

# Findings of the HTML check that are left: (rule, part of the message, why).
ALLOWED = [
    ("element-permitted-content", "<p> element is not permitted as content under <summary>", "myst-nb's hidden cells"),
]


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


class Server(ThreadingHTTPServer):
    def handle_error(self, *_):  # the browser went on to the next page before it had all of this one
        pass


def browse(site, pages, prints=(), searches=()):
    server = Server(("127.0.0.1", 0), functools.partial(Quiet, directory=str(site)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    base = f"http://127.0.0.1:{server.server_port}/"
    task = {"base": base, "pages": pages, "prints": prints, "searches": searches, "chromium": CHROMIUM}
    try:
        done = subprocess.run(
            ["node", "pages.mjs", json.dumps(task)], cwd=TOOLS, capture_output=True, text=True, timeout=900
        )
    finally:
        server.shutdown()
        server.server_close()
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def seen():
    return browse(SITE, PAGES, [SHEET], ["sensitivity", "Gaussian noise", "clipped_sum", "epsilon_for_error"])


FAULTY = """<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>Faults</title>
<style>.pale { color: #bbb; background: #fff } html[data-theme="dark"] .dark { color: #222; background: #111 }</style>
</head><body><main><h1>Faults</h1>
<p class="pale">Too pale</p><p class="dark">Too dark in the dark</p><div style="width: 500px">Too wide for a phone</div>
<img src="https://example.org/x.png" alt="from elsewhere"><img src="missing.png"><button></button>
<script>console.error("an error"); null.x;</script></main></body></html>"""


def test_a_faulty_page_is_found_out(tmp_path):
    (tmp_path / "faulty.html").write_text(FAULTY, encoding="utf8")
    (page,) = browse(tmp_path, ["faulty.html"])["found"]
    assert "https://example.org/x.png" in page["external"]
    assert any(failed.startswith("404") and failed.endswith("missing.png") for failed in page["failed"])
    assert any("an error" in error for error in page["errors"])
    assert any("TypeError" in error for error in page["errors"])
    views = {(view["width"], view["theme"]): view for view in page["views"]}
    for (width, theme), view in views.items():
        assert bool(view["wide"]) == (width == 390)
        assert any(finding.startswith("color-contrast: .pale") for finding in view["axe"])
        assert any(finding.startswith("color-contrast: .dark") for finding in view["axe"]) == (theme == "dark")
        if theme == "light":
            assert {"image-alt", "button-name"} <= {finding.split(":")[0] for finding in view["axe"]}


def problems(seen, find):
    lines = [f"{page['address']}: {problem}" for page in seen["found"] for problem in find(page)]
    return "\n".join(lines[:30])


def test_every_page_was_seen(seen):
    assert sorted(page["address"] for page in seen["found"]) == PAGES
    assert all(len(page["views"]) == 4 for page in seen["found"])


def test_no_error_in_the_console(seen):
    assert not problems(seen, lambda page: page["errors"])
    assert not seen["errors"]


def test_no_request_leaves_the_site_and_none_fails(seen):
    assert not problems(seen, lambda page: page["external"] + page["failed"])


def test_no_page_scrolls_sideways(seen):
    assert not problems(
        seen, lambda page: [f"{v['width']} {v['theme']} {v['wide']}" for v in page["views"] if v["wide"]]
    )


def test_no_accessibility_finding(seen):
    found = problems(seen, lambda page: [f"{v['width']} {v['theme']} {n}" for v in page["views"] for n in v["axe"]])
    assert not found, found


def test_the_first_screen_shows_the_three_doors(seen):
    (page,) = [page for page in seen["found"] if page["address"] == "book/intro.html"]
    assert [bool(door["link"]) and door["bottom"] <= 800 for door in page["doors"]] == [True, True, True]


def test_pages_are_light(seen):
    for page in seen["found"]:
        assert page["bytes"] <= LARGEST_VISIT, f"{page['address']}: {page['bytes']} bytes"


def test_formulas_are_drawn_with_their_font(seen):
    with_formulas = [page for page in seen["found"] if page["formulas"]["count"]]
    assert len(with_formulas) > 10
    assert all(page["formulas"]["font"] for page in with_formulas)
    # A gap after a root: see book/_ext/formulas.py.
    assert not problems(seen, lambda page: page["formulas"]["gaps"])


def test_the_cheat_sheet_is_one_sheet_of_paper(seen):
    assert seen["sheets"] == {SHEET: 1}


def test_search_finds_without_a_server(seen):
    hits = seen["hits"]
    assert any(hit.startswith("book/sensitivity.html") for hit in hits["sensitivity"])
    assert any(hit.startswith("book/gaussian.html") for hit in hits["Gaussian noise"])
    assert any("dpbook.sensitivity.clipped_sum" in hit for hit in hits["clipped_sum"])
    assert any("dpbook.tuning.epsilon_for_error" in hit for hit in hits["epsilon_for_error"])


def test_html_is_valid():
    files = "\n".join(str(SITE / page) for page in ["index.html", *PAGES])
    done = subprocess.run(
        ["node", "validate.mjs"], cwd=TOOLS, input=files, capture_output=True, text=True, timeout=300, check=True
    )
    left = [
        f"{Path(one['file']).name}:{one['line']} {one['rule']}: {one['message']}"
        for one in json.loads(done.stdout)
        if not any(one["rule"] == rule and part in one["message"] for rule, part, _ in ALLOWED)
    ]
    assert not left, "\n".join(left[:30])


if __name__ == "__main__":  # the figures: python tests/test_pages.py
    found = browse(SITE, PAGES)["found"]
    for page in sorted(found, key=lambda page: -page["bytes"]):
        print(f"{page['bytes'] / 1000:7.0f} KB  {page['address']}")
