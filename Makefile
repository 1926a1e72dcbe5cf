# The verbs of this project. `make demo` and `make test` need only python3 (>= 3.11), node and make.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PYTEST_ARGS ?=
CHAOS_ARGS ?=
PIP_FLAGS := --quiet --disable-pip-version-check

# Thousands of processes are started here. Where this is set, each of them would compile the whole package anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: demo test pytest check lint types arrows chaos bench docs clean

demo: $(VENV)/.installed
	PATH="$(CURDIR)/$(BIN):$$PATH" bash examples/tutorial/demo.sh

# Types are checked beside the tests: each has one core for a while in which the other leaves it free.
test:
	$(MAKE) --no-print-directory --jobs=2 node_modules/.installed lint arrows types pytest

pytest: $(VENV)/.dev node_modules/.installed
	$(BIN)/python -m pytest -n 4 --dist worksteal --ignore tests/architecture $(PYTEST_ARGS)

check:
	$(MAKE) --no-print-directory --jobs=2 node_modules/.installed lint types arrows

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

arrows: $(VENV)/.dev
	$(BIN)/python -m pytest -q tests/architecture

# Everything at random for 5 minutes, then all crash points, then what takes the emulator minutes.
# CHAOS_ARGS="--minutes 60 --seed 1" for another run.
chaos: $(VENV)/.dev node_modules/.installed
	$(BIN)/python -m tests.chaos $(CHAOS_ARGS)
	$(BIN)/python -m tests.crash --backend local
	$(BIN)/python -m tests.crash --backend azurite
	JOBQ_TEST_LARGE=1 $(BIN)/python -m pytest tests/e2e/test_large_workflows.py

bench: $(VENV)/.dev node_modules/.installed
	$(BIN)/python -m bench

docs: $(VENV)/.dev
	$(BIN)/python docs/build.py

clean:
	rm -rf $(VENV) node_modules build *.egg-info src/*.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis

# A current pip, for that of older Pythons takes twice as long to find what to install.
$(VENV)/bin/python:
	$(PYTHON) -c 'import sys; sys.exit("python3 >= 3.11 is needed, this is " + sys.version.split()[0] if sys.version_info < (3, 11) else 0)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install $(PIP_FLAGS) --upgrade pip

$(VENV)/.installed: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[workflow]'
	touch $@

$(VENV)/.dev: $(VENV)/bin/python pyproject.toml
	$(BIN)/python -m pip install $(PIP_FLAGS) -e '.[dev]'
	touch $@ $(VENV)/.installed

node_modules/.installed: package-lock.json
	npm ci --silent --no-audit --no-fund
	touch $@
