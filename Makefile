# `make` lists the targets. Each is a program in tools/ with a --help of its own.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
BEGAN := $(shell date +%s)
INSTALLED := .venv/.installed
GATE = .venv/bin/python -m tools.gate --began $(BEGAN)

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(INSTALLED) ## Install everything into .venv
$(INSTALLED): pyproject.toml uv.lock requirements.lock
	PYTHON=$(PYTHON) tools/install

.PHONY: demo
demo: install ## Serve a tiny model through every component (DEMO_ARGS=--exit: once, then stop)
	MOORAGE_HOME=$(CURDIR)/.moorage MOORAGE_DEMO_SINCE=$(BEGAN) .venv/bin/moorage demo $(DEMO_ARGS)

.PHONY: check
check: install ## Format, lint, types, import contracts and unit tests: two to six minutes, before each commit
	$(GATE) --tier check $(ARGS)

.PHONY: check-changed
check-changed: install ## The part of the tests that imports what changed since origin/main
	.venv/bin/python -m tools.check_changed $(ARGS)

.PHONY: test
test: install ## What needs neither Docker, root nor Debian's packages: ten minutes
	$(GATE) --tier test $(ARGS)

.PHONY: gate
gate: install ## What judges a change: fifteen minutes (ARGS="docker ssh": these steps only)
	$(GATE) --tier gate $(ARGS)

.PHONY: full
full: install ## Every test of every step: at most 100 minutes on two cores
	$(GATE) --tier full $(ARGS)

.PHONY: test-clients
test-clients: install ## Every client against a scripted engine, directly and through each plane; prints the table
	$(GATE) --tier full $(ARGS) clients || failed=$$?; cat build/clients.md; exit $${failed:-0}

test-%: install ## One step of tests/steps.toml, such as test-docker (ARGS="--tier full": all of it)
	$(GATE) $(ARGS) $*

.PHONY: soak
soak: install ## Chaos and fuzz from a seed, for HOURS=1; continues where it stopped
	.venv/bin/python -m tools.soak --hours $(or $(HOURS),1) $(ARGS)

.PHONY: mutations
mutations: install ## Break the code in known ways; every mutation must fail a case of the gate
	.venv/bin/python -m tests.mutations $(ARGS)

.PHONY: bench
bench: install ## All benchmarks (ARGS=short: those with goals, in short)
	tools/bench $(ARGS)

.PHONY: docs
docs: install ## Build the documents as a site with search, in build/site/html
	tools/docs

.PHONY: console
console: install ## Check and build the web console into the manager's package
	tools/console

.PHONY: proto
proto: install ## Generate the gRPC code from protos/
	tools/proto

.PHONY: lock
lock: ## Resolve dependencies into uv.lock and requirements.lock
	tools/lock

.PHONY: release
release: install ## Build the wheel and the source distribution into dist/, and check both
	tools/release

.PHONY: gpu-kit
gpu-kit: install ## Pack the tests for a bare machine with an NVIDIA GPU into build/gpu-kit
	.venv/bin/python -m tools.gpu_kit

.PHONY: clean
clean: ## Remove environments, caches, builds, and the demo's state with its database
	tools/clean
