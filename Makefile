# GNU make. Every target makes what it needs: the virtual environment in .venv, and Java for Spark.
#
#   PYTHON=/path/to/python3   the interpreter to make .venv with (default: the first Python >= 3.11 found, the system's before others)
#   TXNLOG_NO_INSTALL=1       never install system packages (Java, python3-venv)

SHELL := /bin/sh
.DEFAULT_GOAL := help
.NOTPARALLEL:
.PHONY: help setup demo demo-s3 demo-azure demo-gcs demo-cdc test faults quick check cover lint format types layers bench bench-scale bench-folds bench-open bench-compaction bench-scan cost memory mutations kill-rounds kafka-kills kafka-diff orchestration erasure limits fuzz power-cuts interrupts interrupt-points chaos chaos-pipeline simulate campaigns replay smoke-versions versions delta-tables engines native-s3a docs screenshots changelog lock audit sbom release min-deps clean

ifdef PYTHON
export PYTHON
endif

RUN := scripts/run
TESTS ?= tests
PYTEST_ARGS ?=
VERSION ?=
BENCH ?=
KILLS ?=
INTERRUPTS ?=
INPUTS ?=
HISTORIES ?=
ARGS ?=
# Tests that kill processes, cut the power, damage objects, race with removals, storm stores, hide canaries, or repeat at random.
FAULTS := tests/maintenance tests/model tests/power tests/property tests/simulation tests/unit/campaigns \
  $(addprefix tests/integration/, clients/test_core_processes.py clients/test_forks.py clients/test_interrupts.py \
  clients/test_kill_rounds.py clients/test_paused_clients.py consumers/test_consume_transform_produce.py store/test_s3_faults.py \
  upkeep/test_canaries.py upkeep/test_erasure_races.py upkeep/test_removed.py upkeep/test_truncation_beside_vacuum.py \
  upkeep/test_truncation_races.py upkeep/test_vacuum_races.py verify/test_verify_apart.py) \
  tests/kafka/test_kills.py tests/spark/test_erasure_campaign.py tests/spark/test_spark_secrets.py \
  tests/spark/test_spark_stream_disk.py tests/spark/test_spark_stream_s3.py tests/spark/test_spark_transaction_kills.py \
  $(wildcard tests/spark/test_chaos_*.py tests/spark/test_fault_*.py)
# Rooms that compute, and the producer.
PURE := $(addprefix tests/unit/, admin columns consumers core looking predicates protocol reading segments verify views writers)
# Spark tests share one process whatever this number is (tests/conftest.py); more than 4 only starts interpreters.
PYTEST_WORKERS ?= auto

##@ Start here

help:  ## Show this list
	@awk 'BEGIN { FS = ":.*## "; print "Usage: make <target>" } \
	  /^##@ / { printf "\n%s\n", substr($$0, 5) } \
	  /^[a-z0-9-]+:.*## / { printf "  %-14s %s\n", $$1, $$2 }' Makefile

setup:  ## Make .venv with everything pinned, and find or install Java
	@scripts/setup
	@printf 'Python: %s\nJava:   %s\n' "$$(.venv/bin/python --version)" "$$(scripts/find-java)"

demo demo-s3 demo-azure demo-gcs: export PYTHONUNBUFFERED = 1
# Spark prints it for every Python that it starts; the demo uses no pandas.
demo demo-s3 demo-azure demo-gcs: export PYTHONWARNINGS = ignore:PySpark does not yet fully support pandas:FutureWarning
demo:  ## Real flights in transactions, read with Spark at each isolation level
	@$(RUN) --java -m demo

demo-s3:  ## The same on S3: starts a SeaweedFS server, and stops it
	@$(RUN) --java -m demo --s3

demo-azure:  ## The same on Azure: starts Azurite, its emulator (an npm package), and stops it
	@$(RUN) --java --azurite -m demo --azure

demo-gcs:  ## The same under gs://: starts moto, which speaks the part of Google's interface that is used, and stops it
	@$(RUN) --java -m demo --gcs

demo-cdc:  ## A shop's orders and payments in two topics, and in two tables of Delta: joins while it runs, torn ones counted (ARGS="--seed 8 --transactions 1000")
	@$(RUN) -m demo.cdc $(ARGS)

test:  ## Run the tests (TESTS=tests/unit narrows, PYTEST_ARGS="-k name" is passed on); those of make faults only if TESTS names them
	@$(RUN) --java --chromium --azurite -m pytest $(TESTS) $(if $(filter tests,$(TESTS)),$(addprefix --ignore=,$(FAULTS))) \
	  --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 $(PYTEST_ARGS)

faults:  ## Run the tests that kill processes, cut the power, damage objects, race, storm stores, and replay random histories
	@$(RUN) --java -m pytest $(FAULTS) --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 $(PYTEST_ARGS)

quick:  ## Before every commit, in less than a minute: ruff, mypy (it keeps what it knows), unit tests of what computes
	@$(RUN) -m ruff check --quiet .
	@$(RUN) -m ruff format --check --quiet .
	@$(RUN) -m mypy
	@$(RUN) -m pytest $(PURE) --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 -q $(PYTEST_ARGS)

check: lint types layers test faults  ## All that CI runs: lint, types, layers, test, faults

##@ Single checks

lint:  ## ruff: rules and formatting; codespell
	@$(RUN) -m ruff check .
	@$(RUN) -m ruff format --check .
	@$(RUN) -m codespell_lib $$(git ls-files)

format:  ## Apply ruff's fixes and formatting
	@$(RUN) -m ruff check --fix-only --quiet .
	@$(RUN) -m ruff format .

types:  ## mypy --strict on packages, tests and benchmarks
	@$(RUN) -m mypy

cover:  ## Coverage of the core and the protocol by the tests that are theirs; below the floor of setup.cfg it fails
	@$(RUN) -m pytest tests/unit tests/conformance tests/model tests/property tests/simulation \
	  $(addprefix tests/integration/, consumers/test_group_tools.py producers/test_producer_ids.py upkeep/test_cut_anywhere.py \
	  upkeep/test_growing.py upkeep/test_segment_lists.py upkeep/test_truncation.py) --cov --cov-report=term:skip-covered \
	  --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 -q $(PYTEST_ARGS)

layers:  ## import-linter: the layering rules of setup.cfg
	@$(RUN) -c 'from importlinter.cli import lint_imports_command as run; run(prog_name="lint-imports")' --no-logo

mutations:  ## Break rules one by one: the conformance tests that claim them must fail; writes docs/internals/mutations.md
	@$(RUN) -m tests.conformance.mutations

kill-rounds:  ## Kill a job that consumes, transforms and produces 1,000 times (KILLS=, SEED=, ARGS="--s3 --json FILE")
	@$(RUN) -m tests.killing $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

kafka-kills:  ## Kill imports from Kafka, exports to it and the broker 100 times (KILLS=, SEED=): fetches a broker's jars
	@$(RUN) --java -m tests.kafka.kills $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

kafka-diff:  ## Random transactional histories on a log and on a Kafka broker: the same offsets, visibility, LSO and abort index (HISTORIES=, SEED=)
	@$(RUN) --java -m tests.kafka.diff $(if $(HISTORIES),--histories $(HISTORIES)) $(if $(SEED),--seed $(SEED)) $(ARGS)

erasure:  ## Erase beside producers, compaction, vacuum and readers that are killed; at every request; in random histories (CANARIES=, KILLS=, SEED=, ARGS="--only-processes")
	@$(RUN) -m tests.erasure $(if $(CANARIES),--canaries $(CANARIES)) $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

limits:  ## What hostile objects cost a reader, each in a process of its own; fails above 256 MiB or 2 s (ARGS="--only parquet")
	@$(RUN) -m tests.limits $(ARGS)

fuzz:  ## Give a million changed inputs to every decoder, parser and form of rows, some guided by Atheris (INPUTS= for each program, SEED=; tests.mutants changes each byte once at least)
	@$(RUN) -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes --only-binary=:all: -r requirements-fuzz.lock
	@$(RUN) -W ignore -m tests.fuzz.guided --inputs $(or $(INPUTS),100000) $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(RUN) -W ignore -m tests.fuzz --inputs $(or $(INPUTS),750000) $(if $(SEED),--seed $(SEED)) $(ARGS)
	@$(RUN) -W ignore -m tests.mutants --inputs $(or $(INPUTS),200000) $(if $(SEED),--seed $(SEED)) $(ARGS)

power-cuts:  ## Cut the power at every system call of every call that writes, and hold what was told against what is left (ARGS="--only killed --every 3")
	@$(RUN) -m tests.power $(ARGS)

interrupts:  ## Interrupt 50,000 calls by real signals, and hold what they told against the log (INTERRUPTS=, SEED=, ARGS="--json FILE")
	@$(RUN) -m tests.interrupts --interrupts $(or $(INTERRUPTS),50000) $(if $(SEED),--seed $(SEED)) $(ARGS)

interrupt-points:  ## Interrupt each public call at every point where Python can run a signal handler (ARGS="--calls commit --every 5")
	@$(RUN) -m tests.interrupts $(ARGS)

chaos:  ## Kill Spark drivers, executors and Python workers 200 times (KILLS=, SEED=, ARGS="--s3 --json FILE")
	@$(RUN) --java -m tests.chaos $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

chaos-pipeline:  ## Kill producers, a sealer and Spark between topics, while readers follow (KILLS=, SEED=, ARGS="--json FILE")
	@$(RUN) --java -m tests.pipeline $(if $(KILLS),--kills $(KILLS)) $(if $(SEED),--seed $(SEED)) $(ARGS)

campaigns:  ## Run every test that make faults or make test runs with few rounds (tests/rounds.py), or leaves out (marker campaign), with all of them: an hour or two (PYTEST_ARGS=)
	@TXNLOG_ROUNDS=full TXNLOG_CHUNKS=$(or $(CHUNKS),4) $(RUN) --java -m pytest $$(grep -rl --include='test_*.py' -e 'tests.rounds import' -e 'property.cut_histories import' -e mark.campaign -e TXNLOG_CHUNKS tests | sort) \
	  --timeout=7200 --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 $(PYTEST_ARGS)

simulate:  ## Run 4,500 histories of the simulator (CHUNKS= of 450 each; make faults runs 80 histories)
	@TXNLOG_CHUNKS=$(or $(CHUNKS),10) $(RUN) -m pytest tests/simulation/test_simulator.py --numprocesses=$(PYTEST_WORKERS) --maxprocesses=4 $(PYTEST_ARGS)

replay:  ## Replay one seed of the simulator with its trace: make replay SEED=17
	@test -n "$(SEED)" || { echo 'txnlog: name the seed: make replay SEED=17' >&2; exit 2; }
	@$(RUN) -m txnlog_testing.replay $(SEED)

##@ Versions of Spark

smoke-versions:  ## Every feature with the oldest supported pyspark, held against docs/internals/versions.json
	@$(RUN) --java -m tests.smoke.versions --check 4.1.4

versions:  ## Every feature with every supported pyspark, in environments of their own; writes docs/internals/versions.md
	@$(RUN) --java -m tests.smoke.versions

delta-tables:  ## Published tables read, and attacked, by Delta on Spark: fetches its jars, and a pyspark that they know
	@$(RUN) --java -m tests.smoke.delta_tables

orchestration:  ## The examples for Airflow and dbt, run by them in environments of their own (ARGS="dbt" narrows; 700 MB)
	@$(RUN) -m tests.orchestration $(ARGS)

engines:  ## Published tables read by every engine, Spark and DuckDB in environments of their own; writes the table of docs/engines.md (ARGS="duckdb" narrows, and writes nothing)
	@$(RUN) --java -m tests.smoke.engines $(ARGS)

native-s3a:  ## read_table of a log in a bucket, by Spark's own s3a connector: fetches its jars, several hundred megabytes at the first run
	@$(RUN) --java -m tests.smoke.native_s3a

min-deps:  ## The tests without Spark on the lowest versions that setup.cfg allows, in .venv-lowest (PYTEST_ARGS=)
	@$(RUN) -m tests.lowest $(PYTEST_ARGS)

##@ Supply chain

lock:  ## Write the locks: each pin of requirements-*.txt with the SHA-256 of its files
	@$(RUN) scripts/lock.py

audit:  ## Known advisories about what is locked; fails for those that have a mended version
	@$(RUN) scripts/audit.py

release:  ## sdist, wheel and SBOM in dist/, tried in empty environments, as a new user does; VERSION=0.2.0 also checks and tags the commit
	@$(RUN) -m scripts.release $(if $(VERSION),--tag $(VERSION))

sbom:  ## What txnlog runs with, as CycloneDX, in txnlog.cdx.json
	@$(RUN) scripts/sbom.py

##@ Measurements

bench:  ## Every row of docs/internals/benchmarks.md, side by side with peers (BENCH="scan" narrows)
	@$(RUN) --java --azurite -m bench $(BENCH)

bench-scale:  ## Ten million batches over 10,000 partitions, appended, sealed and listed by the real code (ARGS="--batches 1000000 --json")
	@$(RUN) -m bench.scale $(ARGS)

bench-folds:  ## The cost of a commit beside 10,000 producers, 100,000 partitions, groups or ids, and entries folded a second (ARGS="--only groups --entries 0")
	@$(RUN) -m bench.lifecycle.folding $(ARGS)

bench-open:  ## Logs of a million entries, of 10,000 partitions, of ten million batches: opening, following, planning, committing (ARGS="--world small --folder DIR"; 5 GB of disk)
	@$(RUN) -m bench.lifecycle.opening $(ARGS)

bench-compaction:  ## Bytes of the metadata columns of a compacted file, and the compactor's speed by that of pyarrow (ARGS="--transactions 40 --records 20000")
	@$(RUN) -m bench.lifecycle.compaction $(ARGS)

bench-scan:  ## 10,000 small commits before and after compaction: requests of a read, and its speed by that of a pyarrow dataset (ARGS="--commits 500")
	@$(RUN) -m bench.lifecycle.scan $(ARGS)

cost:  ## Dollars a month of stated workloads, from requests that are counted (ARGS="--json")
	@$(RUN) -m bench.cost $(ARGS)

memory:  ## Write 4 GiB in one transaction, by buffer, and report the memory it took
	@$(RUN) -m bench.memory_4gib

##@ Documentation

docs:  ## Build the documentation site of this version in site/VERSION, with a list of those that are there; a link that leads nowhere fails it (ARGS="--repository URL" links to one)
	@$(RUN) -m scripts.docs_site $(ARGS)
	@echo 'open site/index.html; with search and versions: .venv/bin/python -m http.server --bind 127.0.0.1 --directory site'

changelog:  ## Show what the next release will say; VERSION=0.2.0 writes it into CHANGELOG.md
	@$(RUN) -m towncrier build $(if $(VERSION),--yes --version $(VERSION),--draft --version next)

screenshots:  ## Draw the pictures of docs/operate.md anew, with a Chromium (docs/img/look-*.png)
	@$(RUN) --chromium -m tests.browser.screenshots

##@ Housekeeping

clean:  ## Remove .venv, caches and outputs
	rm -rf .venv .venv-* .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis build site demo-output txnlog.cdx.json \
	  spark-warehouse metastore_db derby.log .coverage .coverage.* *.egg-info
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
