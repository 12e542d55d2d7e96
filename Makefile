# Every target first installs what it needs; `make` alone prints this list.
PYTHON ?= python3.11
BIN := .venv/bin
# With compiled modules Airflow starts in half the time; an empty value lets Python write them.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help setup classes run up down unit test test-ci test-more test-all test-ui test-spark test-stores test-compose docs reference test-faults bench lint dump lock clean python

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

## Tidemark: Kafka topics into lakes, exactly once. Needs Python 3.11 and Java 17 or 21.
##
## See it
##   make run     copy 336,776 flights from Kafka through Airflow and Spark into a lake, kill one slice, count
##   make up      the same, leave Airflow's page open, and follow schedules (docs/own-topic.md)
##   make down    stop what `make up` left running
##
## Work on it
##   make setup   only the virtual environment and the jars (PYTHON=.. names another Python 3.11)
##   make unit    the tests that need no service, about a minute (make test-all has the longest of them)
##   make test    the core's main road, every kind of source, decoder and sink, and one kill of each sink, on real
##                services; about 6 minutes on 2 cores
##   make test-ci   as CI: make test, and each other test with its first parameters, but not those of tests/long.txt;
##                  about 20 minutes (test-more: without what make test runs)
##   make test-all  all tests but those of test-faults, an hour: before each merge and release
##   make test WORKERS=6   with six processes of tests instead of four (not make unit and make test-ui)
##   make test SINCE=COMMIT   without the tests of providers that have not changed since (test-ci, test-all too)
##   make test-ui the page in Airflow, in a headless Chromium (Debian: apt-get install chromium)
##   make test-spark VERSION=4.2.0   what asks Spark itself, with another PySpark: 4.0.0 or 4.2.0
##   make test-stores   what a lake or table in a bucket needs, on Ceph's gateway (Debian's packages, 69 MB)
##   make test-compose   Dockerfile and docker-compose.yaml on an unpacked Docker, as root on Debian; 10 minutes, 4 GB
##   make docs    the pictures of docs/images, taken again, and docs/ as a site in .tidemark/site
##   make reference   the tables of keys in docs/configuration.md, from the settings classes
##   make lint    ruff and mypy, as in CI
##   make dump    what this version makes, stored for the tests of later ones (CONTRIBUTING.md)
##   make lock    write the lock files of packages and jars again (after a change of requirements/ or jars/ivy.xml)
##
## Break it (make test-all does some of it)
##   make test-faults   the faults that make test-all has no time for: kills at every failpoint over every sink, lost
##                      connections, restarts, random schedules; at most 45 minutes
##
## Time it
##   make bench   the speed beside Flink and plain Spark on 4,000,000 messages, within 20 minutes (ARGS=--quick: 200,000)
##
## Start over
##   make clean   remove all state of this checkout: .venv, .tidemark and caches of tools

python:
	@command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	  echo "Python 3.11 is needed, and $(PYTHON) was not found" >&2; \
	  echo "  install it (Debian: apt-get install python3.11 python3.11-venv), or name it: make PYTHON=/path/to/python3.11" >&2; \
	  exit 2; }

setup: python
	@"$(PYTHON)" -m sandbox.bootstrap.check_machine
	@"$(PYTHON)" -m sandbox.bootstrap.install

run: python
	@"$(PYTHON)" -m sandbox.bootstrap.check_machine run
	@"$(PYTHON)" -m sandbox.bootstrap.install
	@$(BIN)/python -m sandbox.bootstrap.classes beside
	@$(BIN)/python -m sandbox run

up: python
	@"$(PYTHON)" -m sandbox.bootstrap.check_machine run
	@"$(PYTHON)" -m sandbox.bootstrap.install
	@$(BIN)/python -m sandbox.bootstrap.classes beside
	@$(BIN)/python -m sandbox up

down:
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m sandbox down; else echo "nothing is running"; fi

# The first run that starts Spark has the archive of its classes made beside itself.
classes: setup
	@$(BIN)/python -m sandbox.bootstrap.classes beside

# Four workers for two cores (tests/conftest.py says how tests are shared): most tests wait for processes.
WORKERS ?= 4
SINCE ?=
export TIDEMARK_TESTS_SINCE := $(SINCE)
PYTEST = $(BIN)/python -m pytest -n $(WORKERS) --dist loadscope --no-loadscope-reorder --durations 8

unit: setup
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not thorough and not exhaustive" tests/unit tests/providers/*/unit

test: classes
	@$(PYTEST) -m road

test-ci: classes
	@$(PYTEST) -m ci

test-more: classes
	@$(PYTEST) -m "ci and not road"

test-all: classes
	@$(PYTEST)

test-ui: classes
	@$(BIN)/python -m sandbox.bootstrap.browser
	@$(BIN)/python -m pytest -n 2 --dist loadscope --no-loadscope-reorder tests/ui

# Another PySpark than that of .venv: its folder comes first on the path of all that tests start.
test-spark: setup
	@PYTHONPATH="$$($(BIN)/python -m sandbox.bootstrap.another_spark $(VERSION))" && export PYTHONPATH && \
	  $(PYTEST) tests/spark tests/providers/rabbitmq/spark

# Not the model's schedules and traces: they would take an hour, and ask the store for nothing else.
test-stores: classes
	@$(BIN)/python -m sandbox.bootstrap.ceph
	@$(BIN)/python -m sandbox beside-ceph $(PYTEST) -m bucket --ignore tests/model --ignore tests/e2e --ignore tests/faults/test_schedules.py

# The engine is not installed: programs, images and volumes are in .tidemark/docker, and are to be deleted there.
test-compose: setup
	@$(BIN)/python -m sandbox.bootstrap.docker_engine
	@$(BIN)/python -m pytest tests/compose

docs: setup
	@$(BIN)/python -m sandbox.bootstrap.browser
	@TIDEMARK_SCREENSHOTS=docs/images $(BIN)/python -m pytest tests/ui -k "becomes_done or trigger_form"
	@$(BIN)/python -m sandbox.bootstrap.site

reference: setup
	@$(BIN)/python -m sandbox.bootstrap.reference

# pytest ends after 45 minutes at the latest. Paused and dead processes let a quarter of two cores idle beside four workers.
test-faults: WORKERS = 6
test-faults: classes
	@$(PYTEST) -m "exhaustive or drawn" --session-timeout 2700

bench: setup
	@$(BIN)/python -m sandbox.bootstrap.classes
	@$(BIN)/python -m bench $(ARGS)

lint: setup
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy

dump: setup
	@$(BIN)/python -m tests.dumps.make

lock: setup
	@cd requirements && for name in tidemark installer registry readers browser site; do \
	  ../.tidemark/tools/bin/uv pip compile --quiet --no-header --python-version 3.11 --universal --generate-hashes \
	    --no-emit-index-url $$name.in -o $$name.lock || exit 1; done; \
	  for name in lineage node $$(basename -s .in spark-*.in); do \
	  ../.tidemark/tools/bin/uv pip compile --quiet --no-header --python-version 3.11 --universal --generate-hashes \
	    --no-emit-index-url --no-deps $$name.in -o $$name.lock || exit 1; done
	@$(BIN)/python -m sandbox lock-jars
	@$(BIN)/python -m sandbox lock-azurite

clean: down
	@if [ -x $(BIN)/python ]; then $(BIN)/python -m sandbox clean; fi
	@rm -rf .tidemark .venv .mypy_cache .ruff_cache .pytest_cache .hypothesis include/tidemark.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
