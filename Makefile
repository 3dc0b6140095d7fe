# make demo: the main job on the embedded city; its seed makes it a simulation that anybody can repeat.
# make test: everything that has to hold.
# Both do their own set-up: a virtual environment in .venv with the project and its tools.

PYTHON ?= python3
BIN := .venv/bin

# Tests start the command hundreds of times: it is compiled once, also where the environment says otherwise.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: setup demo test test-live test-web test-rest lint kernels nightly mutants soak fuzz bench docs release-check clean clean-kernels

setup: .venv/ready

.venv/ready: pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "palmatch needs Python 3.11 or newer: make PYTHON=python3.12 setup")'
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --upgrade pip
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --editable '.[dev]'
	touch $@

demo: setup
	$(BIN)/palmatch demo --seed 0 --out demo

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

# numba notices a changed file, but not a change in the functions that it calls from elsewhere: tests keep what is compiled in
# a folder named by a hash of all that is compiled, so that it is compiled anew where one of these files has changed.
COMPILED := $(shell (grep -rl --include='*.py' numba src; ls src/palmatch/device/*.py) | LC_ALL=C sort -u | xargs cat | sha256sum | cut -c 1-16)
KERNELS := $(CURDIR)/.venv/kernels/$(COMPILED)
test test-live test-web test-rest kernels: export NUMBA_CACHE_DIR := $(KERNELS)

clean-kernels:
	find src -name "*.nb[ic]" -delete
	rm -rf .venv/kernels

kernels: $(KERNELS)/ready

$(KERNELS)/ready: .venv/ready
	rm -rf .venv/kernels
	$(BIN)/python tests/kernels.py
	mkdir -p $(@D) && touch $@

# Games in real time, in the browser too, mostly wait, so they are played beside what computes on two processors. By file: what
# the tests of a file share is made once.
test: setup
	$(MAKE) --jobs 4 lint test-live test-web test-rest

test-live: kernels
	$(BIN)/pytest -n 3 tests/live

test-web: kernels
	$(BIN)/pytest -n 2 tests/web

test-rest: kernels
	$(BIN)/pytest -n 2 --dist loadfile --no-loadscope-reorder --ignore tests/live --ignore tests/web --ignore tests/nightly

# What takes minutes: large numbers, random kills, mutated inputs.
nightly: setup soak fuzz mutants
	$(BIN)/pytest tests/nightly

# Defects planted in the source one at a time, each with the test that has to fail; an hour or two.
mutants: setup clean-kernels
	$(BIN)/python tests/kernels.py
	$(BIN)/python tests/mutants/run.py

# Live games, by all protocols on hub and Mosquitto, with 100 random kills of board, broker and devices.
soak: setup
	$(BIN)/python tests/live/soak.py --kills 100

# 100,000 mutated inputs for the decoders of the live runtime.
fuzz: setup
	$(BIN)/python tests/live/fuzz.py --count 100000

bench: setup
	$(BIN)/python -m benchmarks.files

docs: setup
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html"

# What a release has to pass: build, metadata, and the wheel alone in an empty environment.
release-check: setup
	$(BIN)/python -m benchmarks.release

clean:
	rm -rf .venv demo site build dist .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
