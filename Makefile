# Everything runs in .venv, which the first target you call makes.
#   make book    the website, in _build/html        make serve   the same, opened at http://localhost:8000
#   make live    Python for the browser (60 MB), so that the pages served can run their own code: once, before make serve
#   make test    everything that guards the project make bench   speed, tightness, errors and audits beside other libraries (ten minutes)
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
STAMP  := $(VENV)/.installed
SITE   := _build/html
NBVAL  := --nbval --nbval-current-env --nbval-cell-timeout=600 --nbval-sanitize-with=tests/nbval_sanitize.cfg
IN_SITE := --ignore=tests/test_site.py --ignore=tests/test_pages.py --ignore=tests/test_live.py
export PYTHONWARNINGS ?= ignore::DeprecationWarning

.PHONY: help install live book serve test lint test-unit test-notebooks test-site test-lowest notebooks bench bench-queries bench-training clean
help:
	@sed -n '2,4p' Makefile | sed 's/^#//'
	@echo "   make notebooks  run all notebooks in place, after an edit   make test-lowest  the oldest supported versions"
	@echo "   make bench-queries  of these, only error and time of everyday questions (four minutes)"
	@echo "   make bench-training  private training beside Opacus and diffprivlib, with PyTorch (four minutes)"

$(STAMP): requirements.txt pyproject.toml
	@$(PYTHON) -c 'import sys; v = sys.version_info; sys.exit(0 if v >= (3, 10) else f"Python 3.10 or newer is needed, this is {v.major}.{v.minor}: set PYTHON=python3.x")'
	$(PYTHON) -m venv $(VENV)
	@echo "Installing into $(VENV): one to two minutes"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.txt
	@$(BIN)/python -c "import matplotlib.font_manager" 2>/dev/null
	@touch $@
install: $(STAMP)

# The execution cache is keyed by the notebooks' code alone, so a change of the package must clear it.
_build/.package-stamp: $(wildcard dpbook/*.py) requirements.txt
	@rm -rf _build/.jupyter_cache _build/.doctrees && mkdir -p _build && touch $@

# Python for the browser, 60 MB that are not committed. Once assembled, it is kept in step with the package.
# make live CDN=1: only the 1 MB that a CDN has not; the public site is built so.
LIVE := book/_static/pyodide/live.json
live: $(STAMP)
	$(BIN)/python tools/fetch_pyodide.py $(if $(CDN),--cdn)
$(LIVE): $(wildcard dpbook/*.py) tools/fetch_pyodide.py
	$(BIN)/python tools/fetch_pyodide.py --again

# Sphinx does not write pages anew when the site's own extension or templates change.
_build/.site-stamp: $(wildcard book/_ext/*.py) _config.yml $(wildcard book/_templates/*)
	@rm -rf _build/.doctrees && mkdir -p _build && touch $@

# The copy: a build in which no page has changed copies no script.
book: $(STAMP) _build/.package-stamp _build/.site-stamp $(wildcard $(LIVE))
	@echo "Running the notebooks and writing the pages: two minutes or more, mostly in silence"
	$(BIN)/jupyter-book build . -W -n --keep-going --quiet
	@rm -rf $(SITE)/_static/pyodide && cp -R book/_static/. $(SITE)/_static/
	@echo "The book is in $(SITE). Open $(SITE)/index.html, or run: make serve"

serve: book
	@echo "http://localhost:8000 (stop with Ctrl-C)"
	@$(BIN)/python -m http.server 8000 --bind 127.0.0.1 --directory $(SITE)

test: lint test-unit test-notebooks test-site
	@echo "All checks passed."

lint: $(STAMP)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

test-unit: $(STAMP)
	MPLBACKEND=Agg $(BIN)/python -m pytest -q $(IN_SITE)

test-notebooks: $(STAMP)
	$(BIN)/python -m pytest -q $(NBVAL) book

test-site: book tests/browser/node_modules
	$(BIN)/python -m pytest -q -rs tests/test_site.py tests/test_pages.py tests/test_live.py

# What drives the system's own browser. Without npm or a browser, those tests are skipped and say so.
tests/browser/node_modules: tests/browser/package.json
	@cd tests/browser && npm install --no-package-lock --no-audit --no-fund --silent && touch node_modules || echo "npm install did not work: no tests in a browser"

# The oldest versions that pyproject.toml allows, on the oldest Python: PYTHON310 names it.
PYTHON310 ?= python3.10
test-lowest:
	$(PYTHON310) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -e .[plots] pytest hypothesis pandas -c tests/lowest.txt
	MPLBACKEND=Agg .venv-lowest/bin/python -m pytest -q tests dpbook $(IN_SITE) --ignore=tests/test_widgets.py --ignore=tests/test_notebooks.py --ignore=tests/test_packaging.py

notebooks: $(STAMP)
	$(BIN)/python tools/run_notebooks.py

# The libraries compared with need an environment of their own.
.venv-peers/.installed: tests/benchmarks/requirements.txt pyproject.toml
	$(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --disable-pip-version-check -e . -r tests/benchmarks/requirements.txt
	@touch $@

bench: .venv-peers/.installed bench-queries
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE .venv-peers/bin/python tests/benchmarks/speed.py --page book/speed.md
	env -u OPENBLAS_CORETYPE -u OPENBLAS_L2_SIZE .venv-peers/bin/python tests/benchmarks/accounting.py --page book/tightness.md
	.venv-peers/bin/python tests/benchmarks/audit.py --page book/audits.md
	.venv-peers/bin/python tests/benchmarks/ledger.py

bench-queries: .venv-peers/.installed
	.venv-peers/bin/python -W ignore tests/benchmarks/queries.py --page book/errors.md

# Opacus needs PyTorch: see the note in the requirements.
.venv-opacus/.installed: tests/benchmarks/requirements-training.txt pyproject.toml
	test -d .venv-opacus || $(PYTHON) -m venv .venv-opacus
	.venv-opacus/bin/python -m pip install --quiet --disable-pip-version-check -e . -r tests/benchmarks/requirements-training.txt
	@touch $@

bench-training: .venv-opacus/.installed
	env OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 .venv-opacus/bin/python -W ignore tests/benchmarks/training.py --page book/trainingspeed.md

clean:
	rm -rf _build tests/browser/node_modules dist build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
