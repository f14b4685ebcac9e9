# What each target does: `make help`. Everything is made below this folder: the virtual environment in .venv, and
# nothing outside it is touched. A target that needs the environment makes it first, so no other order has to be kept.

VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.ready

# Passed through: `make demo ARGS=--json`, `make test ARGS="tests/core -k fair"`. SEED: `make sim SEED=7`.
ARGS ?=
SEED ?=
# The interpreter to build .venv with; empty looks for one. `make setup PYTHON=/opt/python3.12/bin/python3`.
PYTHON ?=

PYTEST := $(BIN)/pytest
# These may share the machine; the system tests measure time on real processes, so they run alone.
FAST_TESTS := $(wildcard tests/house tests/core tests/store tests/story)
SHARED_TESTS := $(FAST_TESTS) $(wildcard tests/lab tests/sim)
ALONE_TESTS := $(wildcard tests/system)

# An environment that was moved, copied, or whose interpreter is gone is not ready, whatever the age of its stamp.
ifeq ($(shell [ "$$(cat $(STAMP) 2>/dev/null)" = "$(CURDIR)" ] && $(BIN)/python -c pass 2>/dev/null && echo ready),)
.PHONY: $(STAMP)
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo lint collect check test sim bench clean

help: ## Show this list (the default)
	@echo "treadle: targets"
	@sed -n 's/^\([a-z]*\):.*## /\1|/p' $(MAKEFILE_LIST) | while IFS='|' read -r target text; do printf '  make %-8s %s\n' "$$target" "$$text"; done
	@echo "Once set up, nothing needs the network again until pyproject.toml changes."

setup: $(STAMP) ## Make .venv with all dependencies (PYTHON=... chooses the interpreter)
	@echo "ready: $(BIN) (treadle, treadle-worker)" >&2

# pip's words go to stderr: the stdout of `make demo ARGS=--json` belongs to the demo.
$(STAMP): pyproject.toml
	@set -eu; \
	recent='import sys; sys.exit(sys.version_info < (3, 11))'; \
	usable() { [ -z "$(PYTHON)" ] && { [ ! -e $(STAMP) ] || [ "$$(cat $(STAMP))" = "$(CURDIR)" ]; } \
		&& $(BIN)/python -c "$$recent" && $(BIN)/python -m pip --version; }; \
	if ! usable >/dev/null 2>&1; then \
		rm -f $(STAMP); chosen=; bare=; \
		for candidate in $(if $(PYTHON),"$(PYTHON)",python3 python3.13 python3.12 python3.11 python3.14 /usr/bin/python3); do \
			"$$candidate" -c "$$recent" >/dev/null 2>&1 || continue; \
			if "$$candidate" -c 'import venv, ensurepip' >/dev/null 2>&1; then chosen="$$candidate"; break; fi; \
			bare="$${bare:-$$candidate}"; \
		done; \
		if [ -z "$$chosen" ] && [ -n "$$bare" ]; then \
			version="$$("$$bare" -c 'import sys; print("%d.%d" % sys.version_info[:2])')"; \
			echo "make setup: $$bare is Python $$version but cannot make virtual environments (no venv or ensurepip)." >&2; \
			echo "  Debian, Ubuntu: apt install python3-venv   (or python$$version-venv), then run make again." >&2; \
			echo "  Or name another interpreter: make setup PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		if [ -z "$$chosen" ]; then \
			echo "make setup: $(if $(PYTHON),PYTHON=$(PYTHON) is not Python 3.11 or newer,found no Python 3.11 or newer on PATH)." >&2; \
			echo "  Install one (Debian, Ubuntu: apt install python3 python3-venv), or name it: make setup PYTHON=/path/to/python3" >&2; \
			exit 1; \
		fi; \
		echo "make setup: making $(VENV) with $$chosen" >&2; \
		"$$chosen" -m venv --clear $(VENV) >&2; \
	fi; \
	echo "make setup: installing dependencies (once, about a minute; needs the package index)" >&2; \
	PIP_USER=0 PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_INPUT=1 \
		$(BIN)/python -m pip install --quiet --editable '.[dev]' >&2 || { \
		echo "make setup: the installation failed, see above; it needs the package index (PyPI) this once." >&2; exit 1; }; \
	printf '%s' "$(CURDIR)" > $(STAMP)

demo: $(STAMP) ## Run the main job on real files, with a kill -9 in the middle (ARGS=--json, ARGS=--help)
	@$(BIN)/treadle demo $(ARGS)

lint: $(STAMP) ## Format, lint and types
	@$(BIN)/ruff format --check .
	@$(BIN)/ruff check .
	@$(BIN)/mypy -p treadle.shared -p treadle.coordinator -p treadle.worker
	@$(BIN)/mypy tests
	@$(BIN)/basedpyright --pythonpath $(BIN)/python

# A test file that cannot be imported is found in seconds, not when its turn comes after half an hour.
collect: $(STAMP)
	@found="$$($(PYTEST) --quiet --collect-only $(SHARED_TESTS) $(ALONE_TESTS))" || { echo "$$found" | grep -v :: >&2; exit 1; }

check: lint collect ## The quick round: format, lint, types and the fast tests
	@$(PYTEST) -n 2 -m "not slow" $(FAST_TESTS)

test: $(STAMP) ## Run every test: three quarters of an hour (ARGS="tests/core -k name" runs just those)
ifeq ($(strip $(ARGS)),)
	@$(MAKE) --no-print-directory collect
	@$(PYTEST) -n 2 -m "not deep" $(SHARED_TESTS)
	@$(PYTEST) $(ALONE_TESTS)
else
	@$(PYTEST) $(ARGS)
endif

sim: $(STAMP) ## Run a thousand seeded interleavings and the bugs on purpose: half an hour (SEED=7 replays one seed)
	@$(if $(SEED),TREADLE_SIM_SEED=$(SEED) $(PYTEST) tests/sim/test_interleavings.py,TREADLE_SIM_LONG=1 $(PYTEST) -n 2 tests/sim) $(ARGS)

bench: $(STAMP) ## Run the benchmarks of tests/bench
	@if [ -z "$(wildcard tests/bench/test_*.py)" ]; then echo "make bench: tests/bench holds no benchmark yet" >&2; exit 1; fi
	@$(PYTEST) -s tests/bench $(ARGS)

clean: ## Remove what make made, .venv included (the next setup needs the network)
	@rm -rf $(VENV) build dist ./*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .coverage treadle-demo-report.json
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +
