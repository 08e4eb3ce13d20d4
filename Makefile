# Two commands for newcomers: `make run` and `make test`. Both set up what they need, and are quick the second time.

# PYTHON=... names the interpreter of a new .venv; the fastest that is here by default (.ci/make-venv).
BIN := .venv/bin
INSTALLED := .venv/.installed
# An image is built from any other with Python of this release and pip.
IMAGE := tidegauge
IMAGE_FOLDER := build/image
BASE_IMAGE = python:$(shell $(BIN)/python -c 'import sys; print("%d.%d" % sys.version_info[:2])')-slim
EXTRAS := check
# What the reference needs on PyPy, which has cffi itself.
PYPY_PACKAGES := linearizability/targets/pypy_packages
# Tests side by side: two more than CI's two cores, because many wait for processes.
JOBS ?= 4

# Programs that tests need, and their Debian packages. Docker is installed only where no systemd would start its daemon and keep it
# (a container, CI): its tests start a daemon of their own, and end it.
DOCKER := dockerd:docker.io docker-compose:docker-compose
TEST_PROGRAMS := kcat:kcat chromium:chromium $(if $(wildcard /run/systemd/system),,$(DOCKER))
MACHINE_CAN_INSTALL := test "$$(id -u)" = 0 && command -v apt-get >/dev/null

# Compiled modules are kept, whatever the user's shell says: tests start many processes, and each would compile everything again.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: run test test-artifacts test-fast test-slow setup check site table wheels image image-of-wheels lock audit clean

run: setup ## set up, judge the embedded reference, show all four promises at work, end with the verdict and the report
	$(BIN)/python -m linearizability.targets.artifacts fetch tlc
	$(BIN)/tidegauge run --target reference:1 --with-demonstrations

test: setup ## set up, then formatting, lint, types, import rules and every test that CI runs
	@$(MAKE) --no-print-directory -j2 --output-sync=target check test-artifacts
	$(BIN)/python -m pytest -q -n $(JOBS) --dist loadgroup --no-loadscope-reorder --durations=40

test-artifacts: setup # what tests need beside Python: programs of the machine, one by one, and jars
	@$(MACHINE_CAN_INSTALL) && for pair in $(TEST_PROGRAMS); do command -v $${pair%:*} >/dev/null \
	    || apt-get install -q -y --no-install-recommends $${pair#*:} >/dev/null 2>&1 \
	    || { apt-get update -q && apt-get install -q -y --no-install-recommends $${pair#*:}; } >/dev/null 2>&1; done & \
	$(BIN)/python -m linearizability.targets.artifacts fetch tlc kafka-4.3.1 kafka-4.4.0 kafka-3.9.2 metadata-shell-4.3.1; \
	  fetched=$$?; wait; exit $$fetched
	@$(BIN)/python -m linearizability.targets.pypy || echo "PyPy is missing, and its tests are skipped"
	@for pair in kcat:kcat chromium:chromium $(DOCKER); do command -v $${pair%:*} >/dev/null \
	  || echo "$${pair%:*} is missing, and its tests are skipped: apt-get install $${pair#*:}"; done

test-fast: setup ## the pure core: no process, no Java; under a minute, for the inner loop
	$(BIN)/python -m pytest -q -n 2 --dist loadgroup -m core $(foreach folder,protocol storage replication coordinator controller node,tests/$(folder))

test-slow: setup ## the tests that CI leaves out, on this day or always
	env -u CI $(BIN)/python -m pytest -q -m "slow or sampled" --timeout 3600

check: setup ## formatting, lint, import rules, words, and types where a source changed since they were checked
	$(BIN)/ruff format --check --quiet .
	$(BIN)/ruff check --quiet .
	$(BIN)/lint-imports --no-cache
	$(BIN)/python -m tests.repository.words
	$(BIN)/python -m tests.repository.unchanged .venv/.types-checked $(BIN)/pyright --warnings

setup: $(INSTALLED) ## leaves .venv/bin/tidegauge, and Java 17 or newer

$(INSTALLED): requirements.lock pyproject.toml Makefile
	test -x $(BIN)/python || PYTHON="$(PYTHON)" .ci/make-venv
	DIST_EXTRA_CONFIG=$(CURDIR)/.ci/wheels.cfg $(BIN)/python -m pip install --quiet --use-pep517 --require-hashes -r requirements.lock
	$(BIN)/python -m pip install --quiet --no-deps --no-build-isolation -e .
	$(BIN)/python -m linearizability.targets.java
	touch $@

site: setup ## the static site, to be opened from build/site/html/index.html
	$(BIN)/python -m docs.site

table: setup ## write the message table from Kafka's jars
	$(BIN)/python -m linearizability.targets.artifacts fetch kafka-4.3.1 kafka-4.4.0 kafka-3.9.2
	$(BIN)/python -m reference.protocol.generate $(foreach release,3.9.2 4.3.1 4.4.0,--jars $(release)=.cache/artifacts/kafka-$(release))

wheels: setup ## the wheel of this checkout and of all that it needs, in build/image/wheels
	rm -rf $(IMAGE_FOLDER) && mkdir -p $(IMAGE_FOLDER)/source
	git ls-files -z -- ':!tests' ':!docs' | tar --create --null --files-from - | tar --extract --directory $(IMAGE_FOLDER)/source
	sed -nE 's/^([A-Za-z0-9_.-]+)(\[[^]]*\])?(==[^ ;]+).*/\1\3/p' requirements.lock > $(IMAGE_FOLDER)/constraints.txt
	$(BIN)/python -m pip wheel --quiet --no-build-isolation --wheel-dir $(IMAGE_FOLDER)/wheels \
	  -c $(IMAGE_FOLDER)/constraints.txt "$(abspath $(IMAGE_FOLDER))/source$(EXTRAS:%=[%])"

image: wheels image-of-wheels ## a container image named tidegauge, with this checkout installed; JAVA_PACKAGE=default-jre-headless adds Java

image-of-wheels: # from wheels that are there
	docker build $(if $(JAVA_PACKAGE),,--network none) -t $(IMAGE) -f linearizability/targets/container/Dockerfile \
	  $(foreach name,BASE_IMAGE EXTRAS JAVA_PACKAGE,--build-arg $(name)=$($(name))) $(IMAGE_FOLDER)

lock: ## resolve the dependencies again (uv makes the lock; it is not needed otherwise)
	uv pip compile pyproject.toml --all-extras --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate -o requirements.lock
	uv pip compile $(PYPY_PACKAGES).in --python-version 3.11 --generate-hashes --no-header --no-emit-index-url --no-annotate \
	  --no-emit-package cffi --no-emit-package pycparser -o $(PYPY_PACKAGES).txt

audit: ## ask for known vulnerabilities of the locked dependencies; it fails where no advisory database answers
	python3 -m venv build/audit && build/audit/bin/pip install -q pip-audit==2.10.1
	build/audit/bin/pip-audit --strict --require-hashes --disable-pip -r requirements.lock

clean:
	rm -rf .venv .cache build results .pytest_cache .ruff_cache .hypothesis
