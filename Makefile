# Two commands are enough: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# Two tests at a time, each on one thread: more threads only wait for each other.
WORKERS ?= 2
PYTEST := OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo test test-all check format bench clean

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*##/\t/' | expand -t 14

demo: $(VENV)/.run   ## private prediction between three processes, with a report
	@$(BIN)/tacit demo

test: $(VENV)/.test  ## the everyday test suite
	@$(PYTEST)

test-all: $(VENV)/.test ## everything that needs no GPU and no other project: slow tests as well
	@$(PYTEST) -m "not gpu and not peer"

check: $(VENV)/.check ## what must hold before a change lands: style, types, tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	@$(PYTEST)

format: $(VENV)/.check ## bring the code into the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.run  ## all benchmarks against our own baselines, quickly
	@for name in ring transport; do $(BIN)/tacit bench $$name --quick || exit 1; done

clean:           ## remove what these commands made
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.peers

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tacit needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@$(PIP) install --quiet "pip>=25.1" -c constraints.txt

$(VENV)/.run: pyproject.toml constraints.txt | $(VENV)/bin/python
	@echo "installing tacit and its pinned dependencies (once; torch is large)"
	@$(PIP) install --quiet -c constraints.txt -e ".[tables,verify]"
	@touch $@

$(VENV)/.test: $(VENV)/.run
	@echo "installing every extra and the test tools (once)"
	@$(PIP) install --quiet -c constraints.txt -e ".[all]" --group test
	@touch $@

$(VENV)/.check: $(VENV)/.test
	@$(PIP) install --quiet -c constraints.txt --group check
	@touch $@
