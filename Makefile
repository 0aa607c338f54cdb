# `make confirm` and `make test` are all a fresh machine needs: each creates the environment itself.
PYTHON ?= python3
BIN := .venv/bin
MODEL := smollm2-135m

# Idle threads sleep instead of spinning: a batch decodes a fifth slower on a quiet machine, three times faster on a
# busy one (benchmarks/RESULTS.md).
export OMP_WAIT_POLICY ?= PASSIVE

# Where an image of a container forbids bytecode, every process that a test starts compiles all that it imports anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: confirm test soak cluster parity peers browser docs pages check reports format model

confirm: .venv/installed  ## reproduce the shipped alpha-chain; ends well whenever the study ran to a verdict
	$(BIN)/python -m protocol.replicate registrations/alpha-chain || { s=$$?; [ $$s -eq 10 ] || [ $$s -eq 11 ] || exit $$s; }

test: model  ## the whole test suite
	$(BIN)/python -m pytest -n 2 --dist loadfile

soak: model  ## every kill, every flipped byte, every judgement of which `make test` takes a sample
	$(BIN)/python -m pytest -n 2 --dist loadfile -m soak

cluster: .venv-cluster/installed  ## every executor on a small study, kills and changed bytes; Slurm where the system has it
	.venv-cluster/bin/python -m pytest -n 0 -m soak tests/protocol/run/test_executors_run.py

parity: .venv-parity/installed  ## our policies against the presses of kvpress, in an environment of its own
	.venv-parity/bin/python -m pytest tests/parity

peers: .venv-peers/installed  ## lm-eval, inspect_ai and OpenVINO with our engine or models, in an environment of their own
	.venv-peers/bin/python -m pytest -W default tests/peers  # inspect_ai leaves streams open

browser: .browser/installed  ## what checks pages for who cannot see them; its tests skip without it or a Chromium
	$(BIN)/python -m pytest tests/figures/report_page -k "browser or accessibility"

check: .venv/installed  ## format, lint, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

pages: .venv/installed  ## the pages that follow from the code; git has not docs/files.md
	$(BIN)/python docs/generate.py

docs: .venv-docs/installed pages  ## the pages as a site, in site/; a dead link fails
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build  # with --quiet nothing is strict

reports: .venv/installed  ## the pages of all judged registrations, and the index
	for study in registrations/*/verdict.json; do $(BIN)/python -m figures.report $$(dirname $$study) || exit; done
	$(BIN)/python -m figures.report registrations

format: .venv/installed
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

model: .venv/installed  ## the only step that downloads weights
	$(BIN)/python -m protocol.models fetch $(MODEL)

# Bytecode is made as it is imported: that of all 15,000 modules takes as long as the rest of an installation.
# The CPU build of torch: already at hand, else from its own index, else whatever the registry has (macOS).
define install-torch
$(1) -m pip install -q --no-compile $(2) "torch==2.13.0+cpu" \
  || $(1) -m pip install -q --no-compile $(2) --extra-index-url https://download.pytorch.org/whl/cpu "torch==2.13.0+cpu" \
  || $(1) -m pip install -q --no-compile $(2) "torch==2.13.0"
endef

.venv/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv
	$(call install-torch,$(BIN)/python,-c constraints.txt)
	$(BIN)/pip install -q --no-compile -c constraints.txt -e ".[run,anchor,sigstore,seal,dev]"
	touch $@

# An environment of its own: what is installed is locked, and most studies need neither submitit nor Ray.
.venv-cluster/installed: pyproject.toml constraints.txt
	$(PYTHON) -m venv .venv-cluster
	$(call install-torch,.venv-cluster/bin/python,-c constraints.txt)
	.venv-cluster/bin/pip install -q --no-compile -c constraints.txt -e ".[run,anchor,seal,slurm,ray,dev]"
	touch $@

# Unconstrained: kvpress and constraints.txt ask for different versions of transformers.
.venv-parity/installed: pyproject.toml
	$(PYTHON) -m venv .venv-parity
	$(call install-torch,.venv-parity/bin/python)
	.venv-parity/bin/pip install -q --no-compile -e ".[parity]"
	touch $@

# Unconstrained, as each peer asks for what it needs.
.venv-peers/installed: pyproject.toml
	$(PYTHON) -m venv .venv-peers
	$(call install-torch,.venv-peers/bin/python)
	.venv-peers/bin/pip install -q --no-compile -e ".[run,tasks,openvino,peers]"
	# Its schema is a test; the package itself wants a later Python.
	.venv-peers/bin/pip download -q --no-deps --python-version 3.12 --only-binary=:all: -d .venv-peers/wheels \
	  every-eval-ever==0.3.0
	touch $@

.browser/installed: Makefile
	npm install --prefix .browser --no-save --no-audit --no-fund --ignore-scripts axe-core@4.14.1
	touch $@

# The builder alone, and nothing of this project: the pages are files.
define documents
import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["docs"])
endef
.venv-docs/installed: pyproject.toml
	$(PYTHON) -m venv .venv-docs
	.venv-docs/bin/pip install -q $$($(PYTHON) -c '$(documents)')
	touch $@
