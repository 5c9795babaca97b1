# Linux only. `make quickstart` trains on this machine's CPU, `make test` runs the linters and the tests.
VENV := .venv
SERVICES := .venv-services
.PHONY: help quickstart camp-quickstart camp-opd-quickstart services test test-slow lint setup clean

help:  ## this list
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' $(MAKEFILE_LIST) | expand -t 22

setup:  ## make .venv, or leave it when it is up to date
	@bash scripts/setup_env.sh $(VENV)

services:  ## make .venv-services, where the task services of CAMP run
	@bash scripts/setup_env.sh $(SERVICES) requirements-services.txt

quickstart: setup  ## train OnePO on the CPU with the data of recipes/quickstart
	@PYTHON=$(CURDIR)/$(VENV)/bin/python bash recipes/quickstart/run.sh

camp-quickstart: setup services  ## train CAMP RL on the CPU in two task services
	@PYTHON=$(CURDIR)/$(VENV)/bin/python CAMP_SERVICES_PYTHON=$(CURDIR)/$(SERVICES)/bin/python \
	  bash recipes/camp_quickstart/run.sh

camp-opd-quickstart: setup services  ## train CAMP-II OPD on the CPU in the same two
	@PYTHON=$(CURDIR)/$(VENV)/bin/python CAMP_SERVICES_PYTHON=$(CURDIR)/$(SERVICES)/bin/python \
	  bash recipes/camp_quickstart/run_opd.sh

lint: setup  ## ruff and ShellCheck
	$(VENV)/bin/ruff check .
	$(VENV)/bin/shellcheck $(wildcard *.sh scripts/*.sh recipes/*/*.sh tests/*/*.sh) .ci/run

test: lint services  ## linters and fast tests
	$(SERVICES)/bin/python -m pytest -m "not slow" recipes/camp/environments
	$(VENV)/bin/python -m pytest -m "not slow"

test-slow: setup services  ## tests that run the trainer
	$(SERVICES)/bin/python -m pytest -m slow recipes/camp/environments
	$(VENV)/bin/python -m pytest -m slow

clean:  ## remove .venv, .venv-services and caches; runs/ stays
	rm -rf $(VENV) $(SERVICES) build dist *.egg-info .pytest_cache .ruff_cache
	find . -name __pycache__ -type d -not -path './.git/*' -prune -exec rm -rf {} +
