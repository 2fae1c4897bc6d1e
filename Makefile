# Everything runs inside $(VENV), which `make venv` sets up and keeps in step with pyproject.toml.
#
#   make demo     run the example project's main job, from nothing
#   make test     run the whole suite against a server that it starts itself
#   make check    test, lint and types
#   make test-databases   run what touches a database against PostgreSQL and MariaDB, which it starts itself
#   make chaos    ten minutes of killed, frozen and cut workers and servers (SECONDS=600 SEED=by chance)
#
#   PYTHON=...    the interpreter to build $(VENV) with (the newest 3.11+ on the PATH otherwise)
#   DJANGO=...    a narrower Django, such as DJANGO='~=5.2.0'
#   VENV=...      another environment, such as VENV=.venv-3.11

VENV = .venv
PYTHON =
DJANGO =
PYTEST = -m pytest
ARGS =
DATABASES = postgresql mariadb
DATABASE_TESTS = tests/databases tests/django
SECONDS = 600
SEED =

BIN = $(VENV)/bin
STAMP = $(VENV)/.installed

.PHONY: venv demo test test-databases chaos coverage lint types check clean

venv: $(STAMP)

$(STAMP): pyproject.toml
	@set -e; \
	usable() { "$$1" -c 'import sys, venv, ensurepip, sqlite3; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; }; \
	python='$(PYTHON)'; \
	if [ -z "$$python" ]; then \
	  for name in python3.15 python3.14 python3.13 python3.12 python3.11 python3 python; do \
	    if usable "$$name"; then python=$$name; break; fi; \
	  done; \
	fi; \
	if [ -z "$$python" ] || ! usable "$$python"; then \
	  echo "No usable Python 3.11 or newer (with venv, ensurepip and sqlite3): install one," \
	    "or name it: make PYTHON=/path/to/python3" >&2; exit 1; \
	fi; \
	echo "Setting up $(VENV) with $$("$$python" --version) ..."; \
	[ -x $(BIN)/python ] || "$$python" -m venv $(VENV); \
	$(BIN)/python -m pip install -qq --disable-pip-version-check --editable '.[embedded,dev]' 'django$(DJANGO)'; \
	touch $(STAMP)

demo: venv
	$(BIN)/python example_project/manage.py demo

test: venv
	$(BIN)/python $(PYTEST) $(ARGS)

# Each server lives in a temporary folder, and ends with the tests.
test-databases: venv
	@failed=; \
	for database in $(DATABASES); do \
	  echo "== $$database"; \
	  $(BIN)/python -m tests.databases.server $$database $(BIN)/python $(PYTEST) $(DATABASE_TESTS) $(ARGS) || \
	    failed="$$failed $$database"; \
	done; \
	[ -z "$$failed" ] || { echo "FAILED:$$failed" >&2; exit 1; }

chaos: venv
	$(BIN)/python -m tests.chaos.harness --seconds $(SECONDS) $(if $(SEED),--seed $(SEED))

# Reads what `make test PYTEST='-m coverage run -m pytest'` has left.
coverage: venv
	$(BIN)/python -m coverage combine --quiet
	$(BIN)/python -m coverage report

lint: venv
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/lint-imports
	@command -v luacheck >/dev/null || { \
	  echo "make lint needs luacheck: apt-get install lua-check, brew install luacheck, or luarocks install luacheck" >&2; \
	  exit 1; }
	rm -rf .cache/lua
	$(BIN)/python -W ignore::RuntimeWarning -m echoq_django.scripts .cache/lua
	luacheck --quiet --codes .cache/lua
	luacheck --quiet --codes --no-global --only 211 212 213 221 231 -- echoq_django/lua/*.lua

types: venv
	$(BIN)/python -m mypy

check: test lint types

clean:
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache .coverage .coverage.* build dist
