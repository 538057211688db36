# Everything a newcomer needs: `make run` and `make test`. Python 3.11, git and make are enough.

PY := .venv/bin/python
# One process more than processors, since tests also wait; at most four: they start sandboxes and git of their own.
TEST_PROCESSES ?= $(shell n=$$(getconf _NPROCESSORS_ONLN 2>/dev/null || echo 1); n=$$((n + 1)); [ $$n -gt 4 ] && n=4; echo $$n)
# Where `make test-services` finds PostgreSQL and Redis. The database of the tests is made and dropped.
TEST_DATABASE_URL ?= postgresql://postgres@127.0.0.1:5432/remit
TEST_REDIS_URL ?= redis://127.0.0.1:6379/15
PYTEST_ARGS ?=
# Images of Python often forbid it; then each of many processes compiles every module anew.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help run test test-slow check test-services bench prepare prepare-dev format limits

help:
	@echo "make run            Remit with its demo on this machine; Ctrl-C stops it"
	@echo "make test           the whole test suite on SQLite"
	@echo "make test-slow      the journeys with real processes, on SQLite: minutes"
	@echo "make check          format, lint, types, floors, system checks, migrations"
	@echo "make test-services  the suite on PostgreSQL and Redis"
	@echo "make bench          measurements, as ratios within one run"
	@echo "make limits         docs/limits.md anew from the code"
	@echo "make format         what make check would complain about and can be mended by itself"

prepare:
	@.ci/venv requirements.txt

prepare-dev:
	@.ci/venv requirements-dev.txt

run: prepare
	@exec $(PY) manage.py up --demo

test: prepare-dev
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadscope -r fEs $(PYTEST_ARGS)

# Whole journeys with real processes; they wait more than they work, and take minutes all the same.
test-slow: prepare-dev
	$(PY) -m pytest -n $(TEST_PROCESSES) --slow -m slow -r fEs $(PYTEST_ARGS)

# The browser's journeys are in the suite above: they look at pages, whatever the database.
test-services: prepare-dev
	TEST_DATABASE_URL=$(TEST_DATABASE_URL) TEST_REDIS_URL=$(TEST_REDIS_URL) \
	$(PY) -m pytest -n $(TEST_PROCESSES) --dist loadscope --slow -m 'not chromium' -r fEs $(PYTEST_ARGS)

check: prepare-dev
	$(PY) -m ruff format --check --quiet .
	$(PY) -m ruff check --quiet .
	$(PY) -m mypy .
	.venv/bin/lint-imports
	$(PY) manage.py check
	$(PY) manage.py makemigrations --check --dry-run

format: prepare-dev
	$(PY) -m ruff check --fix --quiet .
	$(PY) -m ruff format --quiet .

limits: prepare-dev
	$(PY) -m tests.architecture.limits > docs/limits.md.new && mv docs/limits.md.new docs/limits.md

bench: prepare-dev
	$(PY) -m bench
