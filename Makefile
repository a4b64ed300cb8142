# `make help` lists the targets. Everything lives in .venv; nothing is installed outside of it.
PYTHON ?= python3
SECONDS ?= 60
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.sparklog-setup
SOURCES := sparklog driver executors storage_backends tests benchmarks examples pyspark_sparklog.py

.DEFAULT_GOAL := help
.PHONY: help setup demo prepare test test-whole test-fast lint format sim chaos drill fuzz crash clean
.PHONY: bench bench-quick bench-record bench-check

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 16

setup: $(STAMP) ## create .venv with sparklog, its demo and its test tools

$(STAMP): pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "sparklog needs Python 3.11 or newer: call make PYTHON=python3.11 (or newer)"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet --editable '.[demo,dev]'
	touch $@

demo: $(STAMP) ## the main job: brokers inside a local Spark, 336,776 flights in and out
	@$(BIN)/sparklog demo

lint: $(STAMP) ## ruff, mypy --strict, import layers, javac where there is one
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache
	@$(BIN)/python tests/lint/compile_java.py

format: $(STAMP) ## let ruff format and fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

# Folders whose tests have both cores to themselves, or a load that is to be the whole load.
ALONE := tests/simulation tests/chaos tests/faults
# Of the other tests, some of which wait for servers; with four on two cores time limits are met.
# They come by folder: the files with one long test, otherwise the last, would leave a core idle.
PROCESSES ?= 3

test: $(STAMP) ## lint and the test suite; what takes long is sampled
	@$(MAKE) --no-print-directory -j2 lint prepare
	@failed=0; \
	$(BIN)/pytest $(ALONE) || failed=1; \
	$(BIN)/pytest --numprocesses=$(PROCESSES) --no-loadscope-reorder \
		$(addprefix --ignore=,$(ALONE)) || failed=1; \
	exit $$failed

prepare: $(STAMP) ## what tests build or fetch once
	@$(BIN)/python -m tests.support.prepare

test-whole: ## every seed, deliberate bug and case, also those that `make test` leaves out (an hour)
	SPARKLOG_WHOLE=1 $(MAKE) test

test-fast: $(STAMP) ## the tests that need neither Spark nor processes
	$(BIN)/pytest tests/unit tests/lint

sim: $(STAMP) ## simulate SEEDS=100 clusters and their troubles, from seed START=1 on
	$(BIN)/python -m tests.simulation.campaign --seeds $(or $(SEEDS),100) --start $(or $(START),1)

chaos: $(STAMP) ## kill the processes of a real cluster under load for MINUTES=10, faults from SEED=1; BUCKET=1: a tiered topic
	$(BIN)/python -m tests.chaos.chaos_run \
		--minutes $(or $(MINUTES),10) --seed $(or $(SEED),1) $(if $(BUCKET),--bucket)

drill: $(STAMP) ## a tiered topic of MEGABYTES=1000 under kills, read three ways, then every disk is lost
	$(BIN)/python -m tests.drill.tiered_drill --megabytes $(or $(MEGABYTES),1000)

fuzz: $(STAMP) ## malformed input for every decoder and every command, SECONDS=60 of each
	@$(BIN)/python -c "import atheris" 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --only-binary=:all: --editable '.[fuzz]' 2>/dev/null \
		|| echo "atheris cannot be had here"
	$(BIN)/python -m tests.fuzz.run --seconds $(SECONDS)
	$(BIN)/python -m tests.fuzz.command_line_fuzz --seconds $(SECONDS)

bench: $(STAMP) ## beside Apache Kafka, in turns: ROWS=10000000, MESSAGES=2000000, PARTS="failover ..."
	@$(BIN)/python -c "import matplotlib" 2>/dev/null \
		|| $(BIN)/python -m pip install --quiet --editable '.[bench]' 2>/dev/null \
		|| echo "matplotlib cannot be had here: there will be no plots"
	@$(BIN)/python -m benchmarks.beside_kafka $(addprefix --only ,$(PARTS)) \
		--rows $(or $(ROWS),10000000) --messages $(or $(MESSAGES),2000000)

bench-record: $(STAMP) ## the last run becomes the recorded one: ratios.json, RESULTS.md, plots
	@$(BIN)/python -m benchmarks.record

bench-check: $(STAMP) ## fail if a ratio of the last run is worse than the recorded one
	@$(BIN)/python -m benchmarks.record --check

bench-quick: $(STAMP) ## the speed ratios, a few of them beside Apache Kafka, under five minutes
	$(BIN)/python -m benchmarks.quick

crash: $(STAMP) ## crash CASES logs and CASES cleanings from seed START on, and look what is left of them
	$(BIN)/python -m tests.unit.executors.log.log_crashes --cases $(or $(CASES),1000) --start $(or $(START),0)

clean: ## remove .venv and caches
	rm -rf $(VENV) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .cache
