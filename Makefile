# Two commands do all set-up: `make run` and `make test`.
PYTHON ?= python3
VENV   ?= .venv
BIN    := $(VENV)/bin
PART   ?= first-light
PROMPT ?= Write a short poem about the sea, then list its five longest words.

.PHONY: run test install install-test lint python-tests core-tests check-real accept clean

run: install
	$(BIN)/outpace models pull smollm2-135m
	$(BIN)/outpace generate "$(PROMPT)" --max-tokens 128

test: install-test lint core-tests python-tests

$(BIN)/python:
	$(PYTHON) -m venv $(VENV)

install: $(BIN)/python
	$(BIN)/python -m pip install -q .

install-test: $(BIN)/python
	$(BIN)/python -m pip install -q ".[test,test-torch]"

lint:
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

python-tests:
	$(BIN)/outpace models pull smollm2-135m || echo "no embedded model: its tests will be skipped"
	$(BIN)/python -m pytest -m "not real"

# Warnings are errors, then the same tests under sanitizers; the pool again under the thread sanitizer.
core-tests:
	scripts/core-tests.sh $(BIN)

check-real: install-test
	$(BIN)/outpace models pull smollm2-135m qwen2.5-coder-1.5b qwen2.5-coder-0.5b
	$(BIN)/python -m pytest -m "real" -s
	$(BIN)/python scripts/accept.py first-light

accept: install-test
	$(BIN)/python scripts/accept.py $(PART)

clean:
	rm -rf build $(VENV)
