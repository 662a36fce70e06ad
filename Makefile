# A newcomer needs two: `make demo` and `make test`. Both make the environment first, in .venv.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
IMAGE := proto/released.binpb
# A worker for each core; twelve at most have ports of their own (tests/support). One more than cores saves a tenth of the time, and real agents
# then wait for a processor until tests time out.
WORKERS ?= $(shell cores=$$(getconf _NPROCESSORS_ONLN); echo $$((cores < 12 ? cores : 12)))

.DEFAULT_GOAL := help
.PHONY: help demo test test-all durations soak docs check bench bench-gate proto picture release-image format clean

help: ## show this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

$(STAMP): pyproject.toml
	@echo "making the environment in $(VENV) (about a minute, most of it the Claude Code CLI) ..."
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "Python 3.11 or newer is needed: make PYTHON=python3.12 ..."; exit 1; }
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## three real Claude Code sessions against a scripted model, a kill -9 in the middle
	@$(BIN)/python -m ramet_demo

test: $(STAMP) ## the tests, with a smoke of every crash kind and of the real CLI (a few minutes); ARGS='-k name' narrows them
	@echo "running the tests: unit, integration, and a smoke of crashes and of the real Claude Code CLI ..."
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal -m "not full" $(ARGS)

test-all: $(STAMP) ## all tests; CI runs them
	@echo "running all tests: unit, integration, crash, and end to end with the real Claude Code CLI ..."
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal --durations=25 $(ARGS)

durations: $(STAMP) ## all tests, on a quiet machine; records how long each takes (make test leaves out the slow ones)
	@$(MAKE) --no-print-directory test-all ARGS=--record-durations

soak: $(STAMP) ## long rounds of random kills, removals and shell texts (two hours)
	@$(BIN)/python -m pytest -q -n $(WORKERS) --dist worksteal tests/crash --crash-rounds 40
	@$(BIN)/python -m tests.crash.daemon_kill --rounds 200
	@$(BIN)/python -m tests.crash.lost_bytes --rounds 400
	@$(BIN)/python -m tests.fuzz.shell_reader --rounds 20000

check: $(STAMP) ## format, lint, types, layers, contract
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy
	@$(BIN)/lint-imports
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh -ec 'cd proto; buf lint; buf breaking --against released.binpb'
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py --check
	@$(BIN)/python docs/generate.py --check

docs: $(STAMP) ## the reference from the code, and the site in build/site
	@$(BIN)/python docs/generate.py
	@$(BIN)/pip install --quiet --disable-pip-version-check --editable '.[docs]'
	@NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(STAMP) ## the figures of the design, as JSON
	@$(BIN)/python -m tests.bench $(ARGS)

bench-gate: $(STAMP) ## has a figure gone back? (about a minute)
	@$(BIN)/python -m tests.bench.gate $(ARGS)

proto: $(STAMP) ## write the contract's Python code again
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(BIN)/python proto/generate.py

release-image: $(STAMP) ## store the contract as released: what `buf breaking` compares with
	@PATH="$(CURDIR)/$(BIN):$$PATH" sh -ec 'cd proto; buf build -o released.binpb'

picture: $(STAMP) ## make the pictures in docs (demo, inbox, transcript, dashboard, web pages) from a real run
	@$(BIN)/python -m ramet_demo --svg docs

format: $(STAMP) ## format the source
	@$(BIN)/ruff format .
	@$(BIN)/ruff check --fix .

clean: ## remove what was made here
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache build dist
