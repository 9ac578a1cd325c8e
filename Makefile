# All commands for developers and newcomers. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first Python that is new enough; `make PYTHON=/path/to/python3.12 ...` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
UV_VERSION := 0.13.9
UV := .tools/bin/uv
ACTIONLINT_VERSION := v1.7.9
# The program that builds images: docker, podman or buildah.
BUILDER ?= docker
BIN := .venv/bin
PYTEST_ALL := $(BIN)/pytest tests/component tests/contract tests/integration --durations=15
# uv must use the Python found above, and fetch none of its own.
export UV_PYTHON_DOWNLOADS := never
# Some images set this; every start of Python then compiles hundreds of modules again (measured: 4 s).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup up fmt check lint types tidy unit coverage test stack brokers components programs test-aws test-kubernetes test-long bench bench-record bench-archive bench-client bench-gateway \
	bench-delivery bench-fleet bench-http bench-idle bench-observe bench-pipelines bench-retrier bench-status bench-whole-way chaos rate soak shots \
	docs docs-serve linters images test-images release-check release-files clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/.synced ## create the virtual environment (every other target does this too)

up: .venv/.synced ## run Hifi on this machine: Kafka, gateway, delivery, retrier, a sample destination (ARGS="--help")
	@# 130 means that somebody pressed Ctrl-C while it started, which is not an error.
	@trap : INT; $(BIN)/hifi up $(ARGS) || [ $$? -eq 130 ]

fmt: .venv/.synced ## format the code, and fix lint findings that ruff can fix
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

check: .venv/.synced ## check lock file, format, lint, types, import contracts, house rules, workflows and Dockerfile in parallel
	@$(MAKE) --no-print-directory -j2 lint types tidy linters

lint: .venv/.synced
	@$(UV) lock --check --quiet || { echo 'uv.lock is behind pyproject.toml: run $(UV) lock'; exit 1; }
	@$(NICE) $(BIN)/ruff format --check --quiet . || { echo 'run: make fmt'; exit 1; }
	@$(NICE) $(BIN)/ruff check --quiet .

types: .venv/.synced
	@$(NICE) $(BIN)/mypy

tidy: .venv/.synced # includes the import contracts
	@$(NICE) $(BIN)/pytest -q tests/tidy

linters: .venv/.synced .tools/bin/actionlint # zizmor, actionlint, hadolint and promtool; each is skipped if it is missing, unless ALL_LINTERS=1
	@$(NICE) $(BIN)/python -m deploy.release.linters $(if $(ALL_LINTERS),--all)

unit: .venv/.synced ## test the pure parts, in seconds
	@$(BIN)/pytest -q tests/unit

coverage: .venv/.synced ## the same, and require that every branch of the core is taken
	@$(NICE) $(BIN)/coverage run -m pytest -q tests/unit
	@$(BIN)/coverage report

programs: # installs the programs that tests start besides Python and Java
	@.ci/programs

# Packages of the JavaScript examples, of the accessibility tests, and of the sign-in tests.
PACKAGES := $(addsuffix /node_modules/.synced,examples/javascript tests/packages/axe tests/packages/oidc tests/packages/typescript)

# A file with a line for each skipped test of a run (tests/support/suite/skips.py).
SKIPPED := $(CURDIR)/build/skipped
export PYTEST_SKIPPED := $(SKIPPED)

test: programs .venv/.synced .venv/.rate-synced .venv/.docs-synced $(PACKAGES) ## run all tests: real Kafka, real Spark, real HTTP
	@# Two at a time on two cores: with three, a Kafka once waited 16 s for a processor.
	@mkdir -p build; rm -f $(SKIPPED); begun=$$(date +%s); $(MAKE) --no-print-directory -j2 --output-sync NICE='nice -n 10' \
		$(if $(ARGS),lint types tidy linters coverage && $(PYTEST_ALL) $(ARGS),stack brokers lint types tidy linters coverage components); \
		code=$$?; [ ! -s $(SKIPPED) ] || { sort $(SKIPPED) | uniq -c; echo "$$(wc -l < $(SKIPPED)) tests were skipped."; }; \
		echo "The whole run took $$(($$(date +%s) - begun)) s."; exit $$code

stack brokers components: .venv/.synced .venv/.rate-synced .venv/.docs-synced $(PACKAGES) # tests/support/suite/parts.py says which tests are in which part
	@$(PYTEST_ALL) --part=$@

test-aws: .venv/.aws-synced ## test the templates of deploy/aws: assertions, cdk-nag, cfn-lint (needs node, but no AWS or network)
	@$(BIN)/pytest tests/aws $(ARGS)

test-kubernetes: .venv/.kubernetes-synced ## test the chart with a real API server, which Go builds once in ten minutes (needs etcd)
	@.ci/kubernetes .tools/kubernetes
	@PATH="$(CURDIR)/.tools/kubernetes:$$PATH" $(BIN)/pytest tests/kubernetes $(ARGS)

test-long: programs .venv/.bench-synced .venv/.rate-synced $(PACKAGES) ## run the tests that take minutes each, such as Kafka dead for 60 s under load (ARGS="-k gateway")
	@$(BIN)/pytest tests -m long $(ARGS)

bench: .venv/.bench-synced .venv/.rate-synced ## run every benchmark; each reports changed figures (docs/benchmarks.md)
	@$(BIN)/python -m benchmarks

bench-record: .venv/.synced ## add the latest benchmark results to docs/benchmarks.jsonl, and redraw the page (ARGS="gateway")
	@$(BIN)/python -m benchmarks.report $(ARGS)
	@$(BIN)/python docs/generate.py

bench-client: .venv/.bench-synced ## benchmark the Python client against raw HTTP with the same bodies
	@$(BIN)/python -m benchmarks.client $(ARGS)

bench-gateway: .venv/.bench-synced ## benchmark the gateway against raw librdkafka and a bare FastAPI route (needs wrk)
	@$(BIN)/python -m benchmarks.gateway $(ARGS)

bench-delivery: .venv/.bench-synced ## benchmark Spark lanes against Spark that only reads; lag of both latencies; bad neighbours
	@$(BIN)/python -m benchmarks.delivery $(ARGS)

bench-fleet: .venv/.bench-synced ## benchmark a thousand destinations on two cores: idle, under load, some of them bad; several processes
	@$(BIN)/python -u -m benchmarks.fleet $(ARGS)

bench-http: .venv/.bench-synced ## benchmark `deliver`, without Spark, against ready-made bodies over HTTP
	@$(BIN)/python -m benchmarks.deliver

bench-idle: .venv/.bench-synced ## measure the cores that an idle `hifi up` uses, just started and with 300,000 events in the log
	@$(BIN)/python -u -m benchmarks.idle $(ARGS)

bench-whole-way: .venv/.bench-synced .venv/.rate-synced ## benchmark POST to destination: single events, batches, both latencies, and draining a backlog
	@$(BIN)/python -u -m benchmarks.whole_way $(ARGS)

rate: .venv/.rate-synced ## measure the capacity of a Hifi on this machine, open loop (ARGS="whole --batch 100"); docs/rating.md
	@$(BIN)/hifi rate --fresh $(ARGS)

soak: .venv/.rate-synced ## soak-test: days of traffic with faults, and an account of every event (ARGS="--rate 500 --duration 30m"); docs/rating.md
	@$(BIN)/hifi soak $(ARGS)

shots: .venv/.synced ## take pictures of every console page in a live run, into build/shots (needs chromium)
	@$(BIN)/python -m tests.support.console.shots

bench-observe: .venv/.bench-synced ## benchmark the audit: its cost end to end, its pace, and the accuracy of its p95
	@$(BIN)/python -u -m benchmarks.observe $(ARGS)

bench-status: .venv/.bench-synced ## measure how fast `hifi status` answers for a million events, with and without observe
	@$(BIN)/python -m benchmarks.status $(ARGS)

bench-pipelines: .venv/.bench-synced ## benchmark pipelines: against Spark that only reads, through one Kafka partition, and idle
	@$(BIN)/python -u -m benchmarks.pipelines $(ARGS)

bench-archive: .venv/.bench-synced ## benchmark archives: writing, restoring, delivery's rate meanwhile; and database rows
	@$(BIN)/python -u -m benchmarks.archive $(ARGS)

bench-retrier: .venv/.bench-synced ## benchmark a million waiting events, with half the destinations dead: lateness, memory, rewrites
	@$(BIN)/python -m benchmarks.retrier $(ARGS)

docs: .venv/.docs-synced ## write the generated pages, and build the site in build/docs/site
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/build_site.py

docs-serve: .venv/.docs-synced ## build the site, and serve it at http://localhost:8000
	@$(BIN)/python docs/build_site.py serve

chaos: .venv/.synced ## run all of Hifi under random faults, then recount its books (ARGS="--seed 7 --minutes 5")
	@$(BIN)/python -m tests.chaos $(ARGS)

images: .venv/.synced ## build the two container images (BUILDER=podman, BUILDER=buildah); docs/containers.md
	@$(BIN)/python -m deploy.images.build $(BUILDER) $(ARGS)

test-images: .venv/.synced ## build the images with buildah and run them; install the wheel on an empty Debian (as root on Debian or Ubuntu)
	@.ci/programs images
	@$(BIN)/pytest tests/images $(ARGS)

release-check: .venv/.synced .tools/bin/actionlint ## rehearse a release with what works offline (docs/versions.md)
	@$(BIN)/python -m deploy.release.check $(ARGS)

release-files: .venv/.synced # builds packages, chart, bills of materials and checksums into dist/
	@$(BIN)/python -m deploy.release.packages dist

clean: ## remove everything that make has created here; data/ stays
	rm -rf build dist $(dir $(PACKAGES)) .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

.venv/.synced: pyproject.toml uv.lock $(UV)
	@$(UV) sync --quiet --frozen --compile-bytecode --extra local --extra msk --python '$(PYTHON)'
	@touch $@

.venv/.bench-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --group bench --python $(BIN)/python
	@touch $@

# Inexact, because the benchmarks' packages may be installed as well. The environment's own Python,
# because another path to the same Python has caused a rebuild of the whole environment.
.venv/.rate-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --group rate --python $(BIN)/python
	@touch $@

.venv/.docs-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --group docs --python $(BIN)/python
	@touch $@

.venv/.kubernetes-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --group kubernetes --python $(BIN)/python
	@touch $@

%/node_modules/.synced: %/package-lock.json
	@! command -v npm >/dev/null || { cd $* && npm ci --silent --no-audit --no-fund && touch node_modules/.synced; } \
		|| echo 'npm could not install the packages of $*: tests that need them are skipped.'

.venv/.aws-synced: .venv/.synced
	@command -v node >/dev/null || { echo 'The CDK runs on node: install it (Debian: apt install nodejs)'; exit 1; }
	@$(UV) sync --quiet --frozen --inexact --extra local --group aws --python $(BIN)/python
	@touch $@

.tools/bin/actionlint: | $(UV)
	@! command -v go >/dev/null || GOBIN='$(CURDIR)/.tools/bin' go install github.com/rhysd/actionlint/cmd/actionlint@$(ACTIONLINT_VERSION) 2>/dev/null \
		|| echo 'Go could not install actionlint: workflows are checked without it.'

$(UV):
	@test -n '$(PYTHON)' || { echo 'Hifi needs Python 3.11 or newer: install it (Debian: apt install python3 python3-venv), or name it with make PYTHON=...'; exit 1; }
	@echo 'Creating the virtual environment (once; Spark is 450 MB) ...'
	@PYTHON='$(PYTHON)' .ci/programs venv
	@'$(PYTHON)' -m venv .tools
	@.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
