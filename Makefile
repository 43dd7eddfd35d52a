# Everything is set up by the targets themselves; `make` alone lists them.
PYTHON ?= python3
PYTHONS ?= python3.12 python3.13 python3.14
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ADAPTERS := $(VENV)/.adapters
CLUSTER := $(VENV)/.cluster
# Downloads no Python, and shows a line of progress.
INSTALL := UV_PYTHON_DOWNLOADS=never $(BIN)/python .ci/progress.py $(BIN)/uv pip
EXTRAS := $(foreach name,adk openai-agents langgraph pydantic-ai mcp,--extra $(name))
ARGS ?=
# Without bytecode every start compiles everything again.
unexport PYTHONDONTWRITEBYTECODE

help: ## List the targets
	@grep -E '^[a-z0-9-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z0-9-]+):.*## /  make \1\t/' | expand -t 20

$(READY): requirements.txt pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Evaldesk needs Python 3.11 or newer; try: make PYTHON=python3.12")'
	@echo "Setting up $(VENV); the first time takes about a minute."
	$(BIN)/python -m pip --version >/dev/null 2>&1 || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check 'uv>=0.8,<1'
	@$(INSTALL) sync --python $(BIN)/python --require-hashes --compile-bytecode requirements.txt $(if $(wildcard $(ADAPTERS)),requirements-adapters.txt) $(if $(wildcard $(CLUSTER)),requirements-cluster.txt)
	UV_PYTHON_DOWNLOADS=never $(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation -e .
	@touch $@

setup: $(READY) ## Make .venv and install everything into it

$(ADAPTERS): $(READY) requirements-adapters.txt
	@$(INSTALL) install --python $(BIN)/python --require-hashes --compile-bytecode -r requirements-adapters.txt
	@touch $@

adapters: $(ADAPTERS) ## Install the agent frameworks whose adapters the tests drive

$(CLUSTER): $(READY) requirements-cluster.txt
	@$(INSTALL) install --python $(BIN)/python --require-hashes --compile-bytecode -r requirements-cluster.txt
	@touch $@

cluster: $(CLUSTER) ## Install Ray, on which the tests start a small cluster

run: $(READY) ## Open the desk; ARGS="--port 9000 --no-open" are passed on
	@$(BIN)/evaldesk ui $(ARGS)

test: $(READY) ## Run the tests but for the journeys
	$(BIN)/pytest -n auto -m "not torture and not browser and not server and not long" $(ARGS)

journeys: $(READY) ## Run the long tests and those in Chromium, Firefox and WebKit, on PostgreSQL, on Ray and of served desks
	EVALDESK_REQUIRE_BROWSER=1 EVALDESK_REQUIRE_POSTGRES=1 $(BIN)/pytest -n auto -m "(browser or server or long) and not torture" $(ARGS)

versions: ## Play the tests on newer Pythons, those of PYTHONS="python3.12 python3.13" that are installed
	@for python in $(PYTHONS); do version=$$($$python -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || { echo "$$python is not installed"; continue; }; \
	$(MAKE) VENV=.venv-$$version PYTHON=$$python adapters test || exit; done

torture: $(READY) ## Kill and flood for a long time
	$(BIN)/pytest -m torture $(ARGS)

check: $(READY) ## Format, lint, types, import contracts; prints the counts of files
	$(BIN)/ruff format --check . && $(BIN)/ruff check . && $(BIN)/mypy && $(BIN)/lint-imports && $(BIN)/python .ci/check_tree.py && $(BIN)/python .ci/check_patterns.py && $(BIN)/python .ci/count_rooms.py

bench: $(READY) ## Measure speed and size; writes docs/performance.md; ARGS="pages live" takes some of the measures again, ARGS=newcomer the two commands of the README in a bare clone
	$(BIN)/python -m bench.run $(ARGS)

APT := apt-get -o Acquire::Retries=3
packages: ## Install what the tests use of Debian: three browsers, nginx and PostgreSQL (as root)
	$(APT) update -qq
	$(APT) install -y -qq chromium chromium-headless-shell || $(APT) install -y -qq chromium
	$(APT) install -y -qq --no-install-recommends firefox-esr webkit2gtk-driver xvfb bubblewrap openssl nginx-light
	test -x /usr/local/bin/postgres || $(APT) install -y -qq --no-install-recommends postgresql

newest: $(READY) ## Play agents of the newest frameworks, once a week; writes docs/agents.md; ARGS="agno crewai" takes some
	$(BIN)/python -m bench.newest $(ARGS)

build: $(READY) ## Build the wheel and the source archive
	$(BIN)/uv build

requirements: ## Pin the requirements again
	$(BIN)/uv pip compile pyproject.toml --group dev --universal --python-version 3.11 --generate-hashes --no-emit-index-url --upgrade -o requirements.txt
	$(BIN)/uv pip compile pyproject.toml $(EXTRAS) --constraint requirements.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --upgrade -o requirements-adapters.txt
	$(BIN)/uv pip compile pyproject.toml --extra ray --constraint requirements.txt --constraint requirements-adapters.txt --universal --python-version 3.11 --generate-hashes --no-emit-index-url --no-annotate --upgrade -o requirements-cluster.txt

.PHONY: help setup adapters cluster run test journeys versions torture check bench newest packages build requirements
.DEFAULT_GOAL := help
