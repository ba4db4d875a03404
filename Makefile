# Two commands set everything up on a fresh machine with Python >= 3.11:
#   make reproduce   the main job at the smoke preset; the report is out/smoke/report.html
#   make test        the whole fast suite; `make test-slow` runs the slow ones
# CONSTRAINTS=constraints.txt pins torch to a CPU build; without it pip takes the build that fits the machine.
PYTHON ?= python3
VENV ?= .venv
OUT ?= out/smoke
CONSTRAINTS ?=
BIN := $(VENV)/bin
PIP_CONSTRAINTS := $(if $(CONSTRAINTS),-c $(CONSTRAINTS),)

.PHONY: install reproduce test test-slow lint format bench clean

$(VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet $(PIP_CONSTRAINTS) -e '.[dev]'
	touch $@

install: $(VENV)/.installed

reproduce: install
	$(BIN)/inverse-depth reproduce --preset smoke --out $(OUT)

test: install
	$(BIN)/python -m pytest -m 'not slow' -n 2

test-slow: install
	$(BIN)/python -m pytest -m slow -n 2

lint: install
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

format: install
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: install
	$(BIN)/python -m pip install --quiet $(PIP_CONSTRAINTS) -e '.[bench]'
	$(BIN)/python -m benchmarks

clean:
	rm -rf $(VENV) out .pytest_cache .mypy_cache .ruff_cache .hypothesis build *.egg-info
