# make demo       run the main job on a local AWS: deploy a cluster, log in, train on all nodes, destroy
# make demo       NODES=5 uses five nodes; KEEP=1 leaves the cluster up and says how to enter and end it
# make local-aws  open a shell inside a fresh local AWS, for cdk deploy and other commands; KEEP=1 leaves it up
# make enter      open a shell inside a local AWS that was kept (RUN=name if there are several);
#                 for one command: python -m local enter [RUN] -- COMMAND
# make end        end a local AWS that was kept
# make status     list the instances of every running local AWS
# make test       run all checks required before a merge, except test-frameworks: lint, types, unit and end-to-end tests
# make test-frameworks   test MXNet, Horovod and Open MPI on real nodes (the first time takes 4 minutes longer)
# make test-gpu   test the trainer on this machine's GPUs, with any Python that has torch (PYTHON=...); not in make test
# make soak       long runs: random faults (SEED, FAULTS=65), under jobs (ROUNDS=50), kills (KILLS=20), races (RACES=50); dlcluster check (CHECKS=20), up and bake; spot, EFA and reservations; blocks, expiry and idle stop; a late mount target; a private cluster's commands, Lustre; a project, Accelerate, Lightning, JupyterLab, an installed package; 10,000 settings and every pair (ROWS=64)
# make lint       run a part of make test; also: unit, e2e
# make docs       build the documentation and check its links; it says where the pages are
# make docs-pictures  draw the documentation's pictures again from a run (needs chromium); not in make test
# make clean      remove everything that was set up; refused while a local AWS is running
# make bench      run the side-by-side benchmarks (B=name for one of them)
# The first run sets up what is missing: Debian packages, environments, node image (see local/setup.sh).

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: root help setup demo test gate lint docs docs-pictures checks unit others alone e2e e2e-cluster e2e-healing e2e-jobs e2e-deploys test-frameworks test-engines frameworks-digits frameworks-jobs test-gpu soak bench clean local-aws enter end status

export NODES ?= 3
export RUN
ALONE := $(wildcard tests/local/test_*.py) tests/local/run tests/test_leak_check.py
FAULTS ?= 65
ROUNDS ?= 50
SEED ?= 1
KILLS ?= 20
ROWS ?= 64
RACES ?= 50
# The first live test of a part also waits for the part's deploy, beside other parts on the same cores.
LIVE_PYTEST := python -m pytest --timeout 1500
CHECKS ?= 20
PYTHON ?= $(firstword $(wildcard /opt/pytorch/bin/python) python3)
CACHE := $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/deeplearning-cdk
# Inside a marked run TMPDIR is the directory that tests/leak_check.py checks afterwards.
TMP := $(if $(LOCAL_AWS_MARK),$(TMPDIR),$(CACHE)/tmp)
# The tools keep their caches outside the checkout.
export PYTHONPYCACHEPREFIX := $(CACHE)/pycache
# Some containers set it, and then each of a thousand processes compiles everything that it imports.
unexport PYTHONDONTWRITEBYTECODE
export RUFF_CACHE_DIR := $(CACHE)/ruff
export MYPY_CACHE_DIR := $(CACHE)/mypy
export JSII_RUNTIME_PACKAGE_CACHE_ROOT := $(CACHE)/jsii
export HYPOTHESIS_STORAGE_DIRECTORY := $(CACHE)/hypothesis

KEPT = $(if $(filter-out 0 no false,$(KEEP)),--keep)

# Enters the environment that local/setup.sh makes; the recipe's commands follow.
ENTER := environment="$$(local/setup.sh)"; export PATH="$$environment/bin:$$PATH";

# Check for root before the set-up, which takes minutes.
root:
	@[ "$$(id -u)" = 0 ] || { echo "error: the local AWS makes network namespaces and containers: run as root, best in a throw-away VM or container (docs/local-aws.md, \"On another machine\")" >&2; exit 1; }

help:
	@sed -n 's/^# \(make .*\)/\1/p' Makefile

setup:
	@$(ENTER) python -m local image >/dev/null

demo: root
	@$(ENTER) exec python -m local demo "$$NODES" $(KEPT)

local-aws: root
	@$(ENTER) exec python -m local shell $(KEPT)

enter end status:
	@$(ENTER) exec python -m local $@ $${RUN:+"$$RUN"}

# Compare the machine before and after, apart from the set-up: nothing may be left on it.
test: root setup
	@$(ENTER) exec python -m tests.leak_check "$(MAKE)" --no-print-directory gate

# The tests in `alone` compare the machine, which neither the lint nor the other unit tests change, and mostly wait.
gate:
	@$(MAKE) --no-print-directory -j2 others checks
	@$(MAKE) --no-print-directory e2e

# The other unit tests take longer than both of these together.
checks: alone
	@$(MAKE) --no-print-directory lint

lint:
	@$(ENTER) ruff check . && ruff format --check . && mypy . && mypy --python-version 3.10 bootstrap launcher \
		&& python -m tests.layout && python -m docs.generate --check
	@$(MAKE) --no-print-directory docs

# Warnings are errors: a link that leads nowhere, a page that the navigation lacks.
docs:
	@mkdir -p "$(CACHE)"
	@$(ENTER) NO_MKDOCS_2_WARNING=1 mkdocs build --site-dir "$(CACHE)/docs" && echo "documentation: $(CACHE)/docs/index.html"

docs-pictures: root
	@mkdir -p docs/pictures; $(ENTER) pictures=$$(mktemp -d); trap 'rm -rf "$$pictures"' EXIT; \
	python -m local run -- python -m docs.pictures "$$pictures"; cp "$$pictures"/* docs/pictures/

unit:
	@$(MAKE) --no-print-directory -j2 others alone

# All unit tests except those that compare the machine before and after. Many wait for a process: hence two more workers than cores.
# Reordering would put files of few tests last, and those are the slow ones: tests/conftest.py has the order.
others:
	@mkdir -p "$(TMP)"
	@$(ENTER) export TMPDIR="$(TMP)"; \
	python -m pytest -n $$(($$(nproc) + 2)) --dist loadfile --no-loadscope-reorder tests --ignore tests/e2e --ignore tests/frameworks $(ALONE:%=--ignore %)

# These tests call make themselves, independently of this one.
alone:
	@mkdir -p "$(TMP)"
	@$(ENTER) export TMPDIR="$(TMP)"; unset MAKEFLAGS MFLAGS MAKELEVEL; python -m pytest $(ALONE)

# Each part has a local AWS of its own; they run in parallel because they mostly wait.
e2e:
	@$(MAKE) --no-print-directory -j4 e2e-cluster e2e-healing e2e-jobs e2e-deploys

# Only a cluster that heals makes some of the allowed calls, so the test for unused permissions runs in that part.
e2e-cluster:
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/cluster tests/e2e/after_all_tests \
		--deselect tests/e2e/after_all_tests/test_aws_calls.py::test_nothing_is_allowed_that_no_node_calls

e2e-healing:
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/healing tests/e2e/after_all_tests

# The tests on bare instances need no cluster; this part has them, the check and the web applications because it is short.
# Its cluster is deployed by the first line of the tutorials, which the part runs to their end.
e2e-jobs:
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/jobs

# Each of these tests deploys a cluster of its own: with nodes that cannot start, or into a private network.
e2e-deploys:
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/broken_nodes tests/e2e/private

# .ci/run calls it by this name.
test-engines: test-frameworks

# Both parts deploy a cluster of their own: most of the time they wait.
test-frameworks: root
	@$(MAKE) --no-print-directory -j2 frameworks-digits frameworks-jobs

frameworks-digits frameworks-jobs: frameworks-%:
	@$(ENTER) python -m local run --mxnet -- $(LIVE_PYTEST) tests/frameworks/$* tests/frameworks/after_all_tests

# Needs only a checkout and a Python with torch and numpy.
test-gpu:
	@exec "$(PYTHON)" -B -m tests.gpu

soak: root
	@$(ENTER) python -m local run -- python -m local.chaos.cluster_chaos --faults $(FAULTS) --seed $(SEED)
	@$(ENTER) python -m local run -- python -m local.chaos.job_chaos --cases $(ROUNDS) --seed $(SEED)
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/broken_nodes
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/cluster
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/up
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/purchase
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/efa
	@$(ENTER) python -m pytest -m soak tests/cli/up tests/stacks tests/trainer tests/test_packaging.py
	@$(ENTER) CHECKS=$(CHECKS) SEED=$(SEED) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/jobs
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/blocks
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) tests/e2e/lifetime
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/healing
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/private
	@$(ENTER) python -m local run -- $(LIVE_PYTEST) -m soak tests/e2e/project tests/e2e/bake
	@$(ENTER) EXAMPLES_PACKAGES="$$(python -m tests.e2e.examples.packages)"; \
		python -m local run -- env EXAMPLES_PACKAGES="$$EXAMPLES_PACKAGES" $(LIVE_PYTEST) -m soak tests/e2e/examples
	@$(ENTER) JUPYTER_WHEELS="$$(python -m tests.e2e.notebooks.wheels)"; \
		python -m local run -- env JUPYTER_WHEELS="$$JUPYTER_WHEELS" $(LIVE_PYTEST) -m soak tests/e2e/notebooks
	@$(ENTER) EXAMPLES=random python -m pytest tests/bootstrap/cluster tests/bootstrap/test_atomic_file.py
	@$(ENTER) CONTEXTS=10000 python -m pytest tests/stacks/settings/test_contexts.py
	@$(ENTER) ROWS=$(ROWS) SEED=$(SEED) python -m pytest tests/stacks/test_pairwise.py
	@$(ENTER) RACES=$(RACES) python -m pytest tests/bootstrap/cluster/test_race.py
	@$(ENTER) KILLS=$(KILLS) python -m pytest tests/trainer/checkpoint/test_kills.py

bench:
	@$(ENTER) exec python -m benchmarks $(B)

clean:
	@python3 -B -m local.clean
