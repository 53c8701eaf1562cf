# `make demo` and `make test` need Python 3.11 or newer, git and make; everything else they install into .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Which PyTorch to install is the user's choice; without one, the build named in constraints.txt.
PIP_CONSTRAINT ?= constraints.txt
export PIP_CONSTRAINT
export HF_HUB_OFFLINE = 1

.PHONY: demo test lint types imports shapes unit lab-smoke lab slow by-hand bench coverage package walk site check-site clean

demo: $(VENV)/.installed
	$(BIN)/neuralcov demo

test: lint types imports shapes unit lab-smoke

lint: $(VENV)/.installed-dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.installed-dev
	$(BIN)/mypy

imports: $(VENV)/.installed-dev
	$(BIN)/lint-imports
	$(BIN)/lint-imports --config lab/pyproject.toml

# The shapes that annotations promise, checked in every call; see conftest.py.
shapes: $(VENV)/.installed-dev
	NEURALCOV_SHAPES=1 OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses auto tests/core tests/kernels tests/statistics tests/criteria tests/tap --deselect tests/criteria/test_laws.py

unit: $(VENV)/.installed-dev
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m "not slow" --numprocesses auto

# Which lines of ours the tests run: the quick ones of the lower folders, without those that check shapes.
coverage: $(VENV)/.installed-dev
	$(BIN)/python -m coverage run -m pytest -m "not slow" tests/core tests/kernels tests/statistics tests/criteria tests/results
	$(BIN)/python -m coverage report

# With packages that are no part of every build: Keras on JAX, NumPy and TensorFlow, and the trackers.
by-hand: $(VENV)/.installed-dev
	$(BIN)/python -m pip install --quiet '.[mlflow,wandb,dvclive]' jax tensorflow-cpu
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -rs tests/tap/test_keras.py tests/integrations/test_trackers.py tests/tap/test_language_models.py

bench: $(VENV)/.installed-dev
	$(BIN)/python -m benchmarks --output bench.json

# What shows that the lab is found and still works; `make lab` runs all of its tests.
lab-smoke: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m smoke lab/tests

lab: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m "not slow" lab/src lab/tests

slow: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests lab/tests

# Wheel and sdist, built twice and compared, each installed into an empty environment and tried, with the sdist's tests.
package:
	$(PYTHON) -m venv build/package && build/package/bin/python -m pip install --quiet build
	build/package/bin/python -m tools.package $(PACKAGE_OPTIONS)

# What a new user does, with the built package in an empty environment: README, install, demo, own model, report, gate.
walk: $(VENV)/.installed-dev
	$(BIN)/python -m pytest -m slow tests/test_walk.py

# The site, in build/site, by Zensical and once more by mkdocs: warnings fail both. Open build/site/index.html.
site: build/docs-env/.installed
	build/docs-env/bin/python tools/site.py
	build/docs-env/bin/zensical build --clean --strict
	build/docs-env/bin/python tools/site.py --finish
	build/docs-env/bin/mkdocs build --quiet --strict -f docs/mkdocs-plain.yml

# The built site in a browser: narrow and wide, light and dark, by axe.
check-site: $(VENV)/.installed-dev
	$(BIN)/python -m tools.check_site

build/docs-env/.installed: docs/requirements.txt
	$(PYTHON) -m venv build/docs-env
	PIP_CONSTRAINT= build/docs-env/bin/python -m pip install --quiet -r docs/requirements.txt
	touch $@

$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("neuralcov needs Python 3.11 or newer, this is " + sys.version.split()[0]) if sys.version_info < (3, 11) else None'
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: pyproject.toml $(wildcard constraints.txt) | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable .
	touch $@

$(VENV)/.installed-dev: lab/pyproject.toml $(VENV)/.installed
	$(BIN)/python -m pip install --quiet --editable '.[dev]' --editable lab
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache .coverage demo-results
