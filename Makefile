# Every target does its own set-up. PYTHON may name another interpreter (3.11 or newer).
PYTHON ?= python3
# How many test processes run at once: one more than two cores, for tests wait more than they compute. A file's tests stay together and files
# start in their order: the long ones are not the last.
TEST_WORKERS ?= 3
# What a machine's whole way covers too: part of `make e2e` alone.
COVERED := tests/machine/test_what_machines_boot.py tests/machine/test_rack.py
KILL_SEEDS ?= 1,2,3,4,5,6,7,8,9,10,11,12,13,14,15,16,17,18,19,20
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
LOCK := $(BIN)/uv pip compile --universal --python-version 3.11 --generate-hashes --no-annotate --no-header

.PHONY: help demo test e2e soak netboot bench check format docs lock setup install clean

help:  ## Show the targets
	@grep -hE '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed 's/:.*## /\t/' | expand -t 12

setup: $(STAMP)  ## Make the virtual environment

$(STAMP): constraints.txt drivers/pyproject.toml agent/pyproject.toml reconciler/pyproject.toml scripts/setup.sh
	PYTHON="$(PYTHON)" sh scripts/setup.sh $(VENV)
	@touch $@

demo: $(STAMP)  ## Twelve Redfish and four IPMI machines through their whole life cycle
	$(BIN)/python -m bcmetal.demo

test: $(STAMP)  ## All tests
	@sh scripts/system-packages.sh $(VENV)
	@sh scripts/machine-packages.sh
	$(BIN)/python -m pytest -n $(TEST_WORKERS) --dist loadfile --no-loadscope-reorder $(patsubst %,--ignore=%,$(COVERED))

e2e: $(STAMP)  ## Whole machines under qemu without KVM, from bare disks to a joined system and back: a quarter of an hour
	@sh scripts/machine-packages.sh
	$(BIN)/python -m pytest tests/machine

soak: $(STAMP)  ## Twenty machines' whole ways, with agent, machine and daemon killed in every verb: hours
	@sh scripts/machine-packages.sh
	KILL_ALL=1 KILL_SEEDS=$(KILL_SEEDS) $(BIN)/python -m pytest tests/machine/test_killed_at_random.py

netboot: $(STAMP)  ## Whole machines through both stages of a network boot, also without IPv4: five minutes
	@sh scripts/machine-packages.sh
	$(BIN)/python -m pytest tests/machine/network_boot.py

bench: $(STAMP)  ## As root: image writing against `curl | dd`; the ramdisk's size, and the time to its first call
	@sh scripts/machine-packages.sh
	$(BIN)/python benchmarks/image_writing.py
	PYTHONPATH=tests $(BIN)/python benchmarks/ramdisk_start.py

check: $(STAMP)  ## Lint, format, types, floors, generated documentation
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy drivers/src agent/src reconciler/src tests scripts benchmarks
	$(BIN)/lint-imports --no-cache
	$(BIN)/python scripts/generate_docs.py --check

format: $(STAMP)  ## Let ruff mend what it can
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(STAMP)  ## Write the generated pages of docs/ anew
	$(BIN)/python scripts/generate_docs.py

lock: $(STAMP)  ## Resolve requirements.in into constraints.txt, requirements-tpm.in into constraints-tpm.txt
	$(LOCK) --strip-extras requirements.in -o constraints.txt
	$(LOCK) --no-deps -c constraints.txt requirements-tpm.in -o constraints-tpm.txt

install:  ## As root: /opt/bcmetal, /usr/local/bin/bcmetal, the systemd unit
	PYTHON="$(PYTHON)" sh scripts/install.sh

clean:  ## Remove the virtual environment and caches
	rm -rf $(VENV) build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
