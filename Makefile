# Every target makes its own environment: Python 3.11+ and make are all it takes.
PYTHON ?= python3
BENCH_PYTHON ?= $(PYTHON)
TORCH ?= torch
VENV := .venv
BIN := $(VENV)/bin
# Property tests draw new examples in every run; the line that make prints has the seed, and SEED= repeats it. What fails
# is kept in .hypothesis, and comes first in the next run.
SEED ?= $(shell date +%s)
SEED := $(SEED)
# Two workers on two cores: a pool of threads in each would only wait for the other.
# Neighbours stay together (worksteal): what one test has compiled, the next one finds.
PYTEST = EVERWIDE_SEED=$(SEED) OPENBLAS_NUM_THREADS=1 OMP_NUM_THREADS=1 $(1)/bin/python -m pytest -p tests.rare_garbage \
	-n 2 --dist worksteal -q $(2) $(ARGS)
# Compiling takes most of the time, and what is compiled runs once: this halves it. Modules marked `as_users` are
# compiled as users compile them, and run on their own: XLA reads its flags once in a process. In `make test-all` that is
# true of everything. Examples in docstrings (src) show how to call something: one precision is enough.
QUICKLY = JAX_DISABLE_MOST_OPTIMIZATIONS=1 XLA_FLAGS="$$XLA_FLAGS --xla_cpu_use_fusion_emitters=false"
define SUITE
	JAX_ENABLE_X64=0 $(QUICKLY) $(call PYTEST,$(1),-m "not slow and not wide and not as_users")
	JAX_ENABLE_X64=0 $(call PYTEST,$(1),-m "not slow and not wide and as_users" $(if $(ARGS),,tests))
	JAX_ENABLE_X64=1 $(QUICKLY) $(call PYTEST,$(1),-m "not slow and not once and not as_users" $(if $(ARGS),,tests))
	JAX_ENABLE_X64=1 $(call PYTEST,$(1),-m "not slow and not once and as_users" $(if $(ARGS),,tests))
endef

.PHONY: help report test test-all test-properties test-lowest test-next test-torch wheel-check check format api bench accuracy docs reproduce forecast pilots features curves curves-prior attribution doctor rates store uci regression robustness images selection lookahead curvature scale architectures clean bench-training bench-empirical
.DELETE_ON_ERROR:

help:  ## this list
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

report: $(VENV)/.has-cli  ## what an infinitely wide network makes of handwritten digits: a page; ARGS= goes to the command
	$(BIN)/everwide report $(ARGS)

test: $(VENV)/.has-test  ## the suite in float32 and in float64; ARGS= goes to pytest
	$(call SUITE,$(VENV))

test-all: $(VENV)/.has-test  ## everything as users run it, with the slow tests
	JAX_ENABLE_X64=0 $(call PYTEST,$(VENV),-m "not wide")
	JAX_ENABLE_X64=1 $(call PYTEST,$(VENV),-m "not once" $(if $(ARGS),,tests))

test-properties: $(VENV)/.has-test  ## random architectures, many of them: for a night; EXAMPLES= is a factor
	JAX_ENABLE_X64=0 EVERWIDE_EXAMPLES=$(or $(EXAMPLES),10) $(call PYTEST,$(VENV),tests/test_properties.py)
	JAX_ENABLE_X64=1 EVERWIDE_EXAMPLES=$(or $(EXAMPLES),10) $(call PYTEST,$(VENV),tests/test_properties.py)

test-lowest: .venv-lowest/.installed  ## the suite with the lowest versions that pyproject.toml admits
	$(call SUITE,.venv-lowest)

test-next: .venv-next/.installed  ## the suite with the newest versions, published or about to be
	$(call SUITE,.venv-next)

test-torch: $(VENV)/.has-test  ## the tests that need PyTorch, which is large; TORCH= is what pip installs
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet "$(TORCH)"
	JAX_ENABLE_X64=1 $(BIN)/python -m pytest -q tests/empirical/test_torch.py tests/translation tests/diagnosis tests/attribution tests/test_docs.py -k "test_torch or torch_model" $(ARGS)

# What import-linter has no word for: who factorizes, who knows private names, how large things may be.
RULES = tests/spectral/test_only_spectral_factorizes.py tests/lab/test_public_names_only.py tests/test_project.py

check: $(VENV)/.has-dev  ## style, types, imports, rules of the house, public names
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/pyright --pythonpath $(BIN)/python
	$(BIN)/lint-imports
	$(BIN)/python -m pytest -q $(RULES)
	$(BIN)/python tests/public_api.py --check

format: $(VENV)/.has-dev  ## let ruff rewrite what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

wheel-check: $(VENV)/bin/python  ## build the wheel, install it in an empty environment, and try it there
	rm -rf dist .venv-wheel
	$(BIN)/python -m pip wheel --quiet --no-deps --wheel-dir dist .
	$(PYTHON) -m venv .venv-wheel
	.venv-wheel/bin/python -m pip install --quiet "$$(ls dist/everwide-*.whl)[cli]"
	cd dist && PATH="$$PWD/../.venv-wheel/bin:$$PATH" ../.venv-wheel/bin/python -I ../.ci/try_wheel.py

api: $(VENV)/.has-test  ## rewrite tests/public_api.txt
	$(BIN)/python tests/public_api.py --write

bench: $(VENV)/.has-test .bench/.installed  ## the speed against neural-tangents; ARGS= goes to benchmarks/run.py
	$(BIN)/python benchmarks/run.py $(ARGS)

bench-training: $(VENV)/.has-test .bench/.installed  ## training against neural-tangents; ARGS= to benchmarks/training.py
	$(BIN)/python benchmarks/training.py $(ARGS)

bench-empirical: $(VENV)/.has-test .bench-empirical/.installed .bench-netket/.installed  ## empirical kernels against all; ARGS= to empirical.py
	$(BIN)/python -c "import torch" 2>/dev/null || $(BIN)/python -m pip install --quiet "$(TORCH)"
	$(BIN)/python benchmarks/empirical.py $(ARGS)

accuracy: $(VENV)/.has-test  ## the accuracy of float32 kernels; ARGS= goes to benchmarks/accuracy.py
	$(BIN)/python benchmarks/accuracy.py $(ARGS)

forecast: $(VENV)/.has-test  ## forecasts from 500 rows against measured errors; ARGS= to benchmarks/forecast.py
	$(BIN)/python benchmarks/forecast.py $(ARGS)

pilots: $(VENV)/.has-test  ## forecasts from small, noisy and strange pilots, beside the truth; ARGS= to benchmarks/pilots.py
	$(BIN)/python benchmarks/pilots.py $(ARGS)

features: $(VENV)/.has-test  ## features_matter on targets that need features, and on others; ARGS= to benchmarks/features.py
	$(BIN)/python benchmarks/features.py $(ARGS)

curves: $(VENV)/.has-test  ## learning curves continued, by a prior that has not seen them; ARGS= to benchmarks/curves.py
	$(BIN)/python benchmarks/curves.py $(ARGS)

curves-prior: $(VENV)/.has-test  ## learn the numbers of everwide.forecasting.extrapolate again
	$(BIN)/python benchmarks/curves_prior.py

doctor: $(VENV)/.has-test  ## a doctor beside runs with known faults; ARGS= to benchmarks/doctor.py
	$(BIN)/python benchmarks/doctor.py $(ARGS)

attribution: $(VENV)/.has-test  ## attribution beside TRAK and retrained networks; ARGS= to benchmarks/attribution.py
	$(BIN)/python benchmarks/attribution.py $(ARGS)

rates: $(VENV)/.has-test  ## recommended learning rates against sweeps of rates; ARGS= to benchmarks/rates.py
	$(BIN)/python benchmarks/rates.py $(ARGS)

images: $(VENV)/.has-test  ## convolutional kernels beside an SVM; ARGS= to benchmarks/images.py
	$(BIN)/python benchmarks/images.py $(ARGS)

# Idle threads sleep: CPU seconds are those of work.
uci regression robustness: .bench-tables/.installed  ## estimators beside boosting, xRFM, forests, SVMs and a GP; ARGS= to the script
	OMP_WAIT_POLICY=passive .bench-tables/bin/python benchmarks/$@.py $(ARGS)

store: $(VENV)/.has-test  ## kills, flipped bits and Dask workers against stores of kernels; ARGS= to benchmarks/store.py
	$(BIN)/python benchmarks/store.py $(ARGS)

lookahead: $(VENV)/.has-test  ## all candidates and labels at once against retraining; ARGS= to benchmarks/lookahead.py
	$(BIN)/python benchmarks/lookahead.py $(ARGS)

selection: $(VENV)/.has-test .bench-selection/.installed  ## rows to label next, beside bmdal_reg; ARGS= to selection.py
	$(BIN)/python benchmarks/selection.py $(ARGS)

curvature: $(VENV)/.has-test .bench-curvature/.installed  ## Hessians against curvlinops and PyHessian; ARGS= to curvature.py
	$(BIN)/python benchmarks/curvature.py $(ARGS)

scale: $(VENV)/.has-test .bench-scale/.installed  ## kernels of up to a million rows; ARGS= to benchmarks/scale.py
	$(BIN)/python -c "import lightgbm" 2>/dev/null || $(BIN)/python -m pip install --quiet "lightgbm>=4.0"
	$(BIN)/python benchmarks/scale.py $(ARGS)

architectures: $(VENV)/.has-test .bench/.installed  ## kernels of whole networks by name, beside neural-tangents; ARGS= to the script
	$(BIN)/python benchmarks/architectures.py --python $(BIN)/python --theirs .bench/bin/python $(ARGS)

docs: $(VENV)/.has-docs  ## the documentation, in site/
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

reproduce: $(VENV)/.has-test  ## experiments of papers, small, in reproductions/; ARGS= goes to the one of the transformers
	$(BIN)/everwide reproduce lee2019
	$(BIN)/everwide reproduce criticality
	$(BIN)/everwide reproduce simon2021
	$(BIN)/everwide reproduce catapult
	$(BIN)/everwide reproduce vyas2022
	$(BIN)/everwide reproduce lookahead2022
	$(BIN)/everwide reproduce edge-of-stability
	$(BIN)/everwide reproduce collapse
	$(BIN)/everwide reproduce deep-linear
	$(BIN)/everwide reproduce implicit-bias
	$(BIN)/everwide reproduce sgd-noise
	$(BIN)/everwide reproduce sernau2024 $(ARGS)

clean:  ## forget environments and caches
	rm -rf $(VENV) .venv-lowest .venv-next .venv-wheel .bench .bench-empirical .bench-netket .bench-selection .bench-curvature .bench-scale .bench-tables site dist .pytest_cache .ruff_cache .import_linter_cache .hypothesis

# .venv/.has-NAME: the package with its extra NAME is installed, as pyproject.toml has it now.
.PRECIOUS: $(VENV)/.has-%
$(VENV)/.has-%: pyproject.toml | $(VENV)/bin/python
	$(BIN)/python -m pip install --quiet --editable ".[$*]"
	@touch $@

$(VENV)/bin/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "everwide needs Python 3.11 or later: make PYTHON=python3.12 ..." >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)

.venv-lowest/.installed: pyproject.toml tests/lowest.py
	rm -rf .venv-lowest
	$(PYTHON) -m venv .venv-lowest
	$(PYTHON) tests/lowest.py > .venv-lowest/constraints.txt
	.venv-lowest/bin/python -m pip install --quiet --constraint .venv-lowest/constraints.txt --editable ".[test]"
	@touch $@

.venv-next/.installed: pyproject.toml
	rm -rf .venv-next
	$(PYTHON) -m venv .venv-next
	.venv-next/bin/python -m pip install --quiet --pre --upgrade --upgrade-strategy eager --editable ".[test]"
	@touch $@

.bench/.installed: benchmarks/incumbent.txt
.bench-empirical/.installed: benchmarks/empirical_incumbent.txt
.bench-netket/.installed: benchmarks/empirical_netket.txt
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@
.bench/.installed .bench-empirical/.installed:
	@$(BENCH_PYTHON) -c 'import sys; sys.exit(sys.version_info >= (3, 13))' \
		|| { echo "This jaxlib needs Python 3.12 or earlier: make $@ BENCH_PYTHON=python3.12" >&2; exit 1; }
	rm -rf $(@D)
	$(BENCH_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $<
	@touch $@

.bench-curvature/.installed: benchmarks/curvature_incumbent.txt
.bench-scale/.installed: benchmarks/scale_incumbent.txt
.bench-selection/.installed: benchmarks/selection_incumbent.txt
.bench-selection/.installed .bench-curvature/.installed .bench-scale/.installed:
	rm -rf $(@D)
	$(BENCH_PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet "$(TORCH)" --requirement $<
	@touch $@

# These peers run in one process with everwide, as it is now.
.bench-tables/.installed: benchmarks/tables_incumbent.txt pyproject.toml
	$(PYTHON) -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet "$(TORCH)" --requirement $< --editable ".[test]"
	@touch $@
