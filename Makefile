# Two commands are enough: `make demo` and `make test`. Both set everything up first.
PYTHON ?= python3
VENV   := .venv
BIN    := $(VENV)/bin
PIP    := $(BIN)/python -m pip --disable-pip-version-check
# What the tutorials use, but for Flower and homomorphic encryption, which are large.
RUN    := --extra dp --extra images --extra llm --extra sql --extra studio --extra tables --extra verify
LOCKED := --require-hashes --no-deps --only-binary :all:
# Each on one thread, for two cores: one of the three starts processes and mostly waits for them.
WORKERS ?= 3
MINUTES ?= 2
SEED ?= 0
# Byte code is kept even where the environment says otherwise, as containers do: without it each worker
# and each process of a test compiles all that it imports.
PYTEST := PYTHONDONTWRITEBYTECODE= OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder

.DEFAULT_GOAL := help
.PHONY: help demo test test-all fuzz dist docs docs-test reference lint check format bench lock clean

help:            ## show this list
	@grep -E '^[a-z-]+: .*##' $(MAKEFILE_LIST) | sed -E 's/: .*##/\t/' | expand -t 14

demo: $(VENV)/.run   ## private prediction between three processes, with a report
	@$(BIN)/tacit demo

test: $(VENV)/.test  ## the everyday test suite
	@$(PYTEST)

test-all: $(VENV)/.test ## everything that needs no GPU and no other project: slow tests as well
	@$(PYTEST) -m "not gpu and not peer"

fuzz: $(VENV)/.test  ## random programs under every protocol for MINUTES; SEED is the first
	@cd tests && OMP_NUM_THREADS=1 ../$(BIN)/python -m fuzz --minutes $(MINUTES) --from $(SEED)

dist: $(VENV)/.run   ## a wheel and an sdist in dist/, installed in a fresh environment and tried out
	@$(BIN)/python tests/dist/install.py

docs: $(VENV)/.docs   ## the documentation as a site that works offline: out/docs/site/index.html
	@$(VENV)/docs/bin/python docs/website/build.py

docs-test: $(VENV)/.test ## follow every page literally: commands, promised output
	@$(BIN)/python tests/docs/follow.py

reference: $(VENV)/.run ## write the pages of the Python front from docstrings, and the protocols' pictures
	@$(BIN)/python docs/reference/generate.py
	@$(BIN)/python docs/website/diagrams.py

lint: $(VENV)/.check ## style and strict types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

check: lint test ## what must hold before a change lands: style, types, tests

format: $(VENV)/.check ## bring the code into the house format
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: $(VENV)/.run  ## all benchmarks against our own baselines, quickly
	@for name in ring/products transport/links; do $(BIN)/python benchmarks/run.py $$name --quick || exit 1; done

clean:           ## remove what these commands made
	rm -rf $(VENV) dist out .pytest_cache .mypy_cache .ruff_cache .hypothesis benchmarks/.peers

lock: $(VENV)/.test ## write locks/ anew: the versions of constraints.txt, with the hash of every file
	@$(call LOCK,run,pyproject.toml $(RUN) --group build)
	@$(call LOCK,test,pyproject.toml --all-extras --group build --group test)
	@$(call LOCK,check,--group check)
	@$(call LOCK,docs,--group docs)

# Every file of a version is listed, so that a lock serves all platforms and Python 3.11 and newer.
LOCK = $(BIN)/uv pip compile $(2) --constraints constraints.txt --universal --python-version 3.11 \
    --generate-hashes --no-header --no-annotate --quiet --output-file locks/$(1).new \
  && { echo "\# Written by \`make lock\`; change constraints.txt and run it again."; \
    sed -E '/^(torch=|triton=|nvidia-|cuda-)/,/[^\\]$$/d' locks/$(1).new; } > locks/$(1).txt \
  && rm locks/$(1).new

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	  { echo "tacit needs Python 3.11 or newer; say which with: make PYTHON=python3.12 ..." >&2; exit 2; }
	@echo "making a virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)

# What is not in a lock is not installed, and what has another hash is refused; nothing is built from
# source, because that would fetch tools that no lock names. torch and what it brings for an accelerator
# are exempt: a local build, for processors alone say, has a hash of its own. constraints.txt pins its
# version, and pip finds it wherever it is told to look.
$(VENV)/.run: pyproject.toml constraints.txt locks/run.txt | $(VENV)/bin/python
	@echo "installing tacit and its pinned dependencies (once; torch is large)"
	@$(PIP) install --quiet $(LOCKED) -r locks/run.txt
	@$(PIP) install --quiet -c constraints.txt torch
	@$(PIP) install --quiet --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.test: $(VENV)/.run locks/test.txt
	@echo "installing every extra and the test tools (once)"
	@$(PIP) install --quiet $(LOCKED) -r locks/test.txt
	@touch $@

$(VENV)/.check: $(VENV)/.test locks/check.txt
	@$(PIP) install --quiet $(LOCKED) -r locks/check.txt
	@touch $@

# MkDocs has an environment of its own: it needs nothing of ours, and we nothing of it.
$(VENV)/.docs: locks/docs.txt | $(VENV)/bin/python
	@echo "installing MkDocs (once)"
	@$(PYTHON) -m venv $(VENV)/docs
	@$(VENV)/docs/bin/python -m pip --disable-pip-version-check install --quiet $(LOCKED) -r locks/docs.txt
	@touch $@
