# make demo       the main job on a local AWS: deploy a cluster, log in, train on all nodes, destroy
# make demo       NODES=5 takes five nodes; KEEP=1 leaves the cluster up and says how to enter and end it
# make local-aws  a shell inside a fresh local AWS, to type cdk deploy and the like
# make enter      a shell inside a local AWS that was kept (RUN=name when there are several)
# make end        end a local AWS that was kept
# make status     the instances of every local AWS that is up
# make test       everything that must hold before a merge, but for test-engines: lint, types, unit tests, end to end
# make test-engines   MXNet, Horovod and Open MPI on real nodes: the articles' lines (the first time some 4 minutes more)
# make test-gpu   the trainer on this machine's GPUs, with any Python that has torch (PYTHON=...); not part of make test
# make soak       long runs: faults drawn from SEED on five nodes (FAULTS=65), under jobs (ROUNDS=50), in trainings (KILLS=20); 10,000 settings
# make lint       (unit, e2e) a part of it
# make clean      remove everything that was set up; refused while a local AWS is up
# make bench      the side-by-side benchmarks (B=name for one of them)
# The first run sets up what is missing: Debian packages, environments, node image (see local/setup.sh).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: root help setup demo test gate lint unit others alone e2e e2e-cluster e2e-healing e2e-jobs e2e-failing test-engines test-gpu soak bench clean local-aws enter end status

export NODES ?= 3
export RUN
ALONE := $(wildcard tests/local/test_*.py) tests/test_machine.py
HEALING := tests/e2e/test_hostile_records.py $(wildcard tests/e2e/test_zw_*.py tests/e2e/test_zx_*.py)
# Those of bare instances need no cluster, and this part is the shortest.
JOBS := tests/e2e/test_faults.py $(wildcard tests/e2e/test_zv_*.py)
FAILING := $(wildcard tests/e2e/test_zzz_*.py)
FAULTS ?= 65
ROUNDS ?= 50
SEED ?= 1
KILLS ?= 20
PYTHON ?= $(firstword $(wildcard /opt/pytorch/bin/python) python3)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deeplearning-cdk
# tests/machine.py looks at a directory of its own afterwards.
TMP := $(if $(LOCAL_AWS_MARK),$(TMPDIR),$(CACHE)/tmp)
# Caches of the tools belong into the cache, not into the checkout.
export PYTHONPYCACHEPREFIX := $(CACHE)/pycache
# Some containers forbid it to be written: each of some thousand processes would compile all that it imports.
unexport PYTHONDONTWRITEBYTECODE
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
export JSII_RUNTIME_PACKAGE_CACHE_ROOT := $(CACHE)/jsii
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

# Enter the environment that local/setup.sh makes; then the commands of the recipe follow.
ENTER := environment="$$(local/setup.sh)"; export PATH="$$environment/bin:$$PATH";

# Asked before the set-up, which takes minutes.
root:
	@[ "$$(id -u)" = 0 ] || { echo "error: the local AWS makes network namespaces and containers: run as root, best in a throw-away VM or container (docs/local-aws.md, \"On another machine\")" >&2; exit 1; }

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup:
	@$(ENTER) python -m local image >/dev/null

demo: root
	@$(ENTER) exec python -m local demo "$$NODES" $(if $(filter-out 0 no false,$(KEEP)),--keep)

local-aws: root
	@$(ENTER) exec python -m local shell

enter end status:
	@$(ENTER) exec python -m local $@ $${RUN:+"$$RUN"}

# Compares the machine before and after, set-up aside: nothing may be left on it.
test: root setup
	@$(ENTER) exec python -m tests.machine "$(MAKE)" --no-print-directory gate

# The lint leaves nothing on the machine meanwhile, and those that compare the machine have a core to spare.
gate:
	@$(MAKE) --no-print-directory -j2 lint alone
	@$(MAKE) --no-print-directory others e2e

lint:
	@$(ENTER) ruff check . && ruff format --check . && mypy . && mypy --python-version 3.10 bootstrap launcher

unit:
	@$(MAKE) --no-print-directory others
	@$(MAKE) --no-print-directory alone

# Side by side, but for those that compare the machine before and after.
others:
	@mkdir -p "$(TMP)"
	@$(ENTER) export TMPDIR="$(TMP)"; \
	python -m pytest -n auto --dist loadfile tests --ignore tests/e2e --ignore tests/engines $(ALONE:%=--ignore %)

# They call make themselves, which is no part of this one.
alone:
	@mkdir -p "$(TMP)"
	@$(ENTER) export TMPDIR="$(TMP)"; unset MAKEFLAGS MFLAGS MAKELEVEL; python -m pytest $(ALONE)

# Each part in a local AWS of its own, side by side: they mostly wait.
e2e:
	@$(MAKE) --no-print-directory -j4 e2e-cluster e2e-healing e2e-jobs e2e-failing

# What only a cluster that heals calls is called in the second part.
e2e-cluster:
	@$(ENTER) python -m local run -- python -m pytest tests/e2e $(HEALING:%=--ignore %) $(JOBS:%=--ignore %) $(FAILING:%=--ignore %) \
		--deselect tests/e2e/test_zy_calls.py::test_nothing_is_allowed_that_no_node_calls

e2e-healing:
	@$(ENTER) python -m local run -- python -m pytest $(HEALING) tests/e2e/test_zy_calls.py tests/e2e/test_zz_destroy.py

e2e-jobs:
	@$(ENTER) python -m local run -- python -m pytest $(JOBS)

e2e-failing:
	@$(ENTER) python -m local run -- python -m pytest $(FAILING)

test-engines: root
	@$(ENTER) python -m local run --engines -- python -m pytest tests/engines

# Asks for nothing but a checkout and a Python with torch and numpy.
test-gpu:
	@exec "$(PYTHON)" -B -m tests.gpu

soak: root
	@$(ENTER) python -m local run -- python -m local.chaos.cluster --faults $(FAULTS) --seed $(SEED)
	@$(ENTER) python -m local run -- python -m local.chaos.job --rounds $(ROUNDS) --seed $(SEED)
	@$(ENTER) CONTEXTS=10000 python -m pytest tests/stacks/settings/test_contexts.py
	@$(ENTER) KILLS=$(KILLS) python -m pytest tests/trainer/checkpoint/test_kills.py

bench:
	@$(ENTER) exec python -m benchmarks $(B)

clean:
	@python3 -B -m local.clean
