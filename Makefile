# make demo runs the main job, make test the tests, make docs the site; all set up what they need in .venv first. What is built lies in the
# user's cache folder, or in $CUDAMASTER_CACHE; tests have one of their own, .cache here (tests/conftest.py).
PYTHON ?= python3
UV := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
# More than there are cores: many tests wait for a server, a signal or a cluster. Of the short ones fewer do, and each
# process first takes its time to collect them.
side_by_side = -n $(shell expr $$(nproc) + $(1)) --maxprocesses 16 --dist worksteal
# C and CUDA to be formatted: all but what runs have recorded.
SOURCES := '*.cu' '*.h' '*.cpp' ':!results' ':!tests/kept'

# Without it every process of ours would compile all of its modules again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test test-all docs lint format setup benchmark clean

demo: $(VENV)/.ready
	$(BIN)/cudamaster optimize spmv_csr --precision bf16 -R 3 -D 3

# At least one test of every kind, in about five minutes on two cores; and all of them, in half an hour to an hour.
test: setup
	$(BIN)/pytest --quick $(call side_by_side,1) $(PYTEST_ARGS)

test-all: setup
	$(BIN)/pytest $(call side_by_side,2) $(PYTEST_ARGS)

# The site of README.md, docs/ and results/, in site/. A link that leads nowhere or a page in no menu fails.
docs: $(VENV)/.docs-ready
	$(BIN)/sphinx-build -q -W --keep-going -c docs -d .cache/docs . site
	@echo "Open site/index.html"

lint: $(VENV)/.ready
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	git ls-files $(SOURCES) | xargs $(BIN)/clang-format --dry-run -Werror

format: $(VENV)/.ready
	$(BIN)/ruff check -q --fix .
	$(BIN)/ruff format -q .
	git ls-files $(SOURCES) | xargs $(BIN)/clang-format -i

benchmark: $(VENV)/.ready
	$(BIN)/python benchmarks/verdict.py
	$(BIN)/python benchmarks/startup.py
	$(BIN)/python benchmarks/cpu_device.py
	$(BIN)/python benchmarks/modelled_profile.py

# With what the tests would build first, so that they begin at once.
setup: $(VENV)/.ready
	@$(BIN)/python tests/first_build.py

# Everything at the versions of uv.lock, inside the checkout.
$(VENV)/.ready: pyproject.toml uv.lock
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
	    { echo "error: $(PYTHON) is $$($(PYTHON) -V), Python 3.11 or later is needed; set PYTHON=python3.12, say." >&2; exit 1; }
	@echo "Setting up $(VENV), a minute the first time ..."
	@$(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check uv==$(UV)
	@$(BIN)/uv sync -q --frozen --inexact --python $(BIN)/python
	@touch $@

# What makes the site, at the versions of uv.lock, beside the rest.
$(VENV)/.docs-ready: $(VENV)/.ready
	@$(BIN)/uv sync -q --frozen --inexact --group docs --python $(BIN)/python
	@touch $@

clean:
	rm -rf .venv .cache runs site dist .mypy_cache .ruff_cache .pytest_cache .hypothesis
