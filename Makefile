# `make demo` and `make test` need Python 3.11 or later with venv, make and a C compiler; they make .venv
# and install the rest. A second call does only what has changed.

PYTHON ?= python3
# More for the commands: make test PYTEST_ARGS="--slow -k gram", make demo DEMO_ARGS="--data my.csv --target y",
# make bench BENCH=gram BENCH_ARGS=--quick
PYTEST_ARGS ?=
DEMO_ARGS ?=
BENCH ?= $(filter-out _%,$(notdir $(basename $(wildcard bench/peers/*.py))))
BENCH_ARGS ?=

ENV := .venv
BENCH_ENV := build/venv-bench
WHEEL_ENV := build/venv-wheel
BUILD_FILES := Makefile pyproject.toml meson.build native/meson.build src/meson.build
CYTHON_SOURCES := $(wildcard native/*.pyx)

.PHONY: demo test bench lint format wheel clean help
.DELETE_ON_ERROR:
.PRECIOUS: %/made %/installed

help:
	@echo "make demo    fit kernel machines to real data, differentiate functions, write pictures"
	@echo "make test    run the tests (PYTEST_ARGS=--slow runs the slow ones, too)"
	@echo "make bench   time mercer beside other packages"
	@echo "make lint    check the style; make format mends what can be mended by a program"
	@echo "make wheel   build the sdist and the wheel, test the wheel in a fresh environment"
	@echo "make clean   remove what these made"

# $(call check,) says in words what is missing, before pip and Meson say it in theirs.
define check
	@command -v $(PYTHON) >/dev/null || { echo "There is no $(PYTHON); name one: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "mercer needs Python 3.11 or later, $(PYTHON) is `$(PYTHON) -V`; name another: make PYTHON=python3.12" >&2; exit 1; }
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { echo "$(PYTHON) has no venv; on Debian and Ubuntu: apt install python3-venv" >&2; exit 1; }
	@$(PYTHON) -c 'import os, sys, sysconfig; sys.exit(not os.path.exists(os.path.join(sysconfig.get_path("include"), "Python.h")))' || { echo "$(PYTHON) has no headers (Python.h); on Debian and Ubuntu: apt install python3-dev" >&2; exit 1; }
	@command -v $${CC:-cc} >/dev/null || command -v gcc >/dev/null || command -v clang >/dev/null || { echo "There is no C compiler; on Debian and Ubuntu: apt install gcc" >&2; exit 1; }
endef

# An environment with pip and what builds mercer.
%/made: pyproject.toml Makefile
	$(check)
	@echo "Making $(@D): tools first, then mercer and what it needs; about a minute the first time."
	@test -x $(@D)/bin/python || $(PYTHON) -m venv $(@D)
	@$(@D)/bin/python -c 'import tomllib; print("ninja", *tomllib.load(open("pyproject.toml", "rb"))["build-system"]["requires"], sep="\n")' > $(@D)/requirements.txt
	$(@D)/bin/python -m pip install --quiet --disable-pip-version-check -r $(@D)/requirements.txt
	@touch $@

# mercer itself, editable: compiled code is built again when it is imported after a change.
$(ENV)/installed: EXTRAS = plot,progress,test
$(BENCH_ENV)/installed: EXTRAS = progress,bench
%/installed: %/made $(BUILD_FILES)
	PATH="$(CURDIR)/$(@D)/bin:$$PATH" $(@D)/bin/python -m pip install --quiet --disable-pip-version-check \
		--no-build-isolation --config-settings=build-dir=build/editable-$(subst .,,$(notdir $(@D))) --editable ".[$(EXTRAS)]"
	@touch $@

$(ENV)/lint: $(ENV)/made
	$(ENV)/bin/python -m pip install --quiet --disable-pip-version-check `$(ENV)/bin/python -c 'import tomllib; print(*tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]["lint"])'`
	@touch $@

demo: $(ENV)/installed
	$(ENV)/bin/python examples/quickstart.py $(DEMO_ARGS)
	$(ENV)/bin/python examples/machines.py
	$(ENV)/bin/python examples/paths.py
	$(ENV)/bin/python examples/autodiff_tour.py

test: $(ENV)/installed
	$(ENV)/bin/python -m pytest $(PYTEST_ARGS)

bench: $(BENCH_ENV)/installed
	@set -e; for name in $(BENCH); do echo "== $$name"; $(BENCH_ENV)/bin/python -m bench.peers.$$name $(BENCH_ARGS); done

# Style, Cython's performance hints, and the C compiler's warnings, each of which fails.
lint: export PATH := $(CURDIR)/$(ENV)/bin:$(PATH)
lint: $(ENV)/lint
	ruff check .
	ruff format --check .
	cython-lint $(CYTHON_SOURCES) $(wildcard native/*.pxi)
	@mkdir -p build
	@set -e; for file in $(CYTHON_SOURCES); do \
		cython --module-name mercer.`basename $$file .pyx` -o build/hints.c $$file 2> build/hints.log; \
		if grep -i 'performance hint\|^warning' build/hints.log; then cat build/hints.log; exit 1; fi; \
	done
	@test -f build/lint/build.ninja || meson setup -Dwerror=true build/lint > build/lint.log || { cat build/lint.log; exit 1; }
	ninja -C build/lint --quiet

format: $(ENV)/lint
	$(ENV)/bin/ruff check --fix .
	$(ENV)/bin/ruff format .

# The wheel is built from the sdist, which holds committed files only, and is tested away from the tree.
wheel: $(ENV)/made
	rm -rf dist $(WHEEL_ENV) build/elsewhere
	$(ENV)/bin/python -m pip install --quiet --disable-pip-version-check build
	$(ENV)/bin/python -m build --outdir dist .
	$(PYTHON) -m venv $(WHEEL_ENV)
	$(WHEEL_ENV)/bin/python -m pip install --quiet --disable-pip-version-check "`ls $(CURDIR)/dist/*.whl`[plot,progress,test]"
	mkdir -p build/elsewhere
	cd build/elsewhere && $(CURDIR)/$(WHEEL_ENV)/bin/python -c 'import mercer, sys; print(mercer.__file__); sys.exit("site-packages" not in mercer.__file__)'
	cd build/elsewhere && $(CURDIR)/$(WHEEL_ENV)/bin/python -m pytest --import-mode=importlib $(CURDIR)/tests $(PYTEST_ARGS)

clean:
	rm -rf $(ENV) build dist pictures .pytest_cache .hypothesis .ruff_cache
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
