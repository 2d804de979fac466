# `make` lists the targets. Everything they make lies in ignored folders; `make clean` removes it.

PYTHON ?= python3
# Exact versions for CPython 3.11; `make test CONSTRAINTS=` takes the newest that fit instead.
CONSTRAINTS ?= constraints.txt
# What to install beside the base: `dev`, or `test` for the tests alone, without torch.
EXTRAS ?= dev
# Which tests, in pytest's words: `make test T=tests/recover`, `make test T='-k pin -x'`.
T ?=
# Which benchmarks: `make bench B=dump` runs bench/dump.py.
B ?= [!_]*

BIN := .venv/bin
PIP := -m pip install --quiet --disable-pip-version-check
CONSTRAINED := $(addprefix --constraint ,$(CONSTRAINTS))
SOURCES := $(shell find . \( -path './.*' -o -path ./build -o -path ./tests -o -path ./bench \
	-o -path ./docs -o -path ./examples \) -prune -o -name '*.py' -print | LC_ALL=C sort)
# An editable install is a tree of links to the modules there are: a new module needs a new one.
INSTALLED := .venv/.installed-$(EXTRAS)-$(firstword $(shell echo $(SOURCES) | cksum))

.DEFAULT_GOAL := help
.PHONY: help dev demo test soak lint format coverage bench wheel clean

help:  ## List the targets
	@sed -n 's/^\([a-z]*\):.*  ## /\1\t/p' Makefile | expand -t 12

dev: $(INSTALLED)  ## Make .venv: an editable install with everything that the other targets need
	@:

$(INSTALLED): pyproject.toml setup.py $(CONSTRAINTS)
	@test -x $(BIN)/python || $(PYTHON) -m venv .venv
	@rm -f .venv/.installed-*
	@$(BIN)/python $(PIP) $(CONSTRAINED) 'setuptools>=77'
	@$(BIN)/python $(PIP) $(CONSTRAINED) --no-build-isolation \
		--config-settings editable_mode=strict --editable '.[$(EXTRAS)]'
	@touch $@

.demo/.installed: pyproject.toml setup.py $(SOURCES)
	@test -x .demo/bin/python || $(PYTHON) -m venv .demo
	@rm -rf build/lib
	@.demo/bin/python $(PIP) .
	@touch $@

demo: .demo/.installed  ## Lose a checkpoint and get it back, with the base install only
	@.demo/bin/reef-recover demo

test: $(INSTALLED)  ## Run the tests; T= selects
	@$(BIN)/pytest $(T)

soak: $(INSTALLED)  ## Run the tests that take hours; T= selects
	@$(BIN)/pytest -m soak $(T)

lint: $(INSTALLED)  ## Check style, format and types
	@$(BIN)/ruff check --quiet
	@$(BIN)/ruff format --quiet --check
	@$(BIN)/mypy
	@$(BIN)/mypy --explicit-package-bases setup.py tests $(wildcard bench/*.py examples/*.py)
	@$(BIN)/pyright --project pyproject.toml --pythonpath $(BIN)/python

format: $(INSTALLED)  ## Mend what ruff can mend
	@$(BIN)/ruff check --quiet --fix
	@$(BIN)/ruff format --quiet

coverage: $(INSTALLED)  ## Run the tests and say which lines they miss; T= selects
	@$(BIN)/coverage erase
	@$(BIN)/coverage run -m pytest $(T)
	@$(BIN)/coverage combine --quiet
	@$(BIN)/coverage report

bench: $(INSTALLED)  ## Run the benchmarks in bench/; B= selects
	@set -e; for script in bench/$(B).py; do echo "$$script"; $(BIN)/python "$$script"; done

wheel: $(INSTALLED)  ## Build dist/ and check what the wheel holds
	@rm -rf dist
	@$(BIN)/python -m build --no-isolation -qq
	@$(BIN)/check-wheel-contents dist/*.whl

clean:  ## Remove everything that these targets made
	@rm -rf .venv .demo build dist reefkit.egg-info .coverage* .hypothesis .*_cache
	@find . -name __pycache__ -prune -exec rm -rf {} +
