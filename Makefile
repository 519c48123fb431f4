# On a fresh machine with Python 3.11 `make demo` and `make test` are enough: each does its own set-up.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

PYTHON ?= python3
# Additional flags for pip, such as an index with CPU builds of torch.
PIP_FLAGS ?=
CORES ?= all
DEMO ?= config/demo.yaml
DEVICES ?= 0
# Number of sampling jobs that run at a time.
JOBS ?= 1
ZOO_TABLES := --configfile config/zoo.yaml config/zoo-tables.yaml

STARTED := $(shell date +%s)
BASE_INSTALLED := .venv/.installed-base
RUN_INSTALLED := .venv/.installed-run
EXTRAS_INSTALLED := .venv/.installed-extras
INSTALLED := .venv/.installed
VLLM_INSTALLED := .venv-vllm/.installed
SLURM_INSTALLED := .venv/.installed-slurm
BROWSER_INSTALLED := .venv/.installed-browser
MUTANTS_INSTALLED := .venv/.installed-mutants
WEB_INSTALLED := web/node_modules/.installed
DOCS_INSTALLED := .venv-docs/.installed
HARNESSES_INSTALLED := .venv-harnesses/.installed
export PATH := $(CURDIR)/.venv/bin:$(PATH)
export HF_HUB_OFFLINE ?= 1
export TOKENIZERS_PARALLELISM ?= false
# Some containers ask Python to write no bytecode. Then each of our many processes compiles all that it imports.
export PYTHONDONTWRITEBYTECODE :=

.PHONY: help size words docs setup demo demo-full docs-numbers screenshots test test-long test-all test-vllm test-slurm test-faults test-faults-real test-harnesses test-wheel release test-browser fuzz fuzz-containers mutants mutants-sample web check lock format schema zoo zoo-cohort zoo-run zoo-tables perf clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

setup: $(INSTALLED) ## build .venv with pinned versions

# What is locked is installed by its hashes and nothing else, then torch, which is not hashed (requirements/torch.txt).
INSTALL := workflow/install.sh .venv
SOURCES := --no-deps --no-build-isolation -e . -e lab

$(BASE_INSTALLED): pyproject.toml lab/pyproject.toml requirements/base.txt requirements/uv.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "searchlens needs Python 3.11 or newer; set PYTHON=..."; exit 1; }
	$(PYTHON) -m venv .venv
	$(INSTALL) --locked requirements/base.txt $(PIP_FLAGS)
	$(INSTALL) $(SOURCES)
	@touch $@

$(RUN_INSTALLED): $(BASE_INSTALLED) requirements/run.txt requirements/torch.txt
	$(INSTALL) --locked requirements/run.txt $(PIP_FLAGS)
	$(INSTALL) -r requirements/torch.txt $(PIP_FLAGS)
	@touch $@

$(EXTRAS_INSTALLED): $(RUN_INSTALLED) requirements/extras.txt
	$(INSTALL) --locked requirements/extras.txt $(PIP_FLAGS)
	-.venv/bin/python -m searchlens.grading.punkt # without this download IFEval cannot be graded, and its tests are skipped
	@touch $@

$(INSTALLED): $(EXTRAS_INSTALLED) requirements/dev.txt
	$(INSTALL) --locked requirements/dev.txt $(PIP_FLAGS)
	@touch $@

demo: $(BASE_INSTALLED) ## a whole study with set-up, in three minutes: samples, tables, figures and results/report.html
	@STARTED=$(STARTED) workflow/demo.sh $(DEMO) $(CORES)

demo-full: ## the same with more sampled: ten minutes
	@$(MAKE) --no-print-directory demo DEMO=config/demo-full.yaml

# conftest.py has the longest files first; pytest-xdist would start those with the most tests.
PYTEST := .venv/bin/python -m pytest -n 2 --dist loadfile --no-loadscope-reorder

test: $(INSTALLED) ## run the tests but the long ones (nine minutes)
	$(PYTEST) -m 'not long' $(PYTEST_FLAGS)

test-long: $(INSTALLED) ## run the long tests, which repeat what `make test` shows at one place at many
	$(PYTEST) -m long $(PYTEST_FLAGS)

test-all: test test-long ## run all tests that need neither vLLM, Slurm, a browser nor the packages of other tools

# vLLM pins its own torch, so it has an environment of its own. Its wheel for CPUs is a package of another name than the
# one for GPUs. That package also requires torch's libraries for images and sound, with which it cannot be imported.
$(VLLM_INSTALLED): pyproject.toml lab/pyproject.toml requirements/base.txt requirements/run.txt requirements/vllm.txt requirements/vllm-torch.txt requirements/uv.txt
	$(PYTHON) -m venv .venv-vllm
	for part in base run vllm; do workflow/install.sh .venv-vllm --locked requirements/$$part.txt $(PIP_FLAGS); done
	workflow/install.sh .venv-vllm -r requirements/vllm-torch.txt $(PIP_FLAGS)
	workflow/install.sh .venv-vllm $(SOURCES)
	@touch $@

$(MUTANTS_INSTALLED): $(INSTALLED) requirements/mutants.txt
	$(INSTALL) --locked requirements/mutants.txt $(PIP_FLAGS)
	@touch $@

mutants: $(MUTANTS_INSTALLED) ## change the statistics and the store at 1,200 places, one at a time, and see whether a test notices (hours, resumable)
	.venv/bin/python tests/mutants.py --sample 1200 --report lab/mutants.csv

mutants-sample: $(MUTANTS_INSTALLED) ## 30 of these changes, of seeds and uncertainty, against the tests of the same names (a minute)
	.venv/bin/python tests/mutants.py seeds uncertainty --sample 30 --own-tests --least 0.85

fuzz: $(INSTALLED) ## give every bad input of tests/fuzzing.py to the commands (ten minutes of one core)
	.venv/bin/python tests/fuzzing.py

fuzz-containers: $(INSTALLED) ## flip, cut and insert at every 20th byte of gzip, Zstandard, zip, Parquet, xz and Arrow files (a minute)
	.venv/bin/python tests/containers.py

VLLM_TESTS := tests/engines/test_engine_contract.py \
	lab/tests/test_engine_attention.py \
	tests/engines/test_engine_adapters.py \
	tests/engines/test_engine_vllm.py \
	tests/engines/test_engine_vllm_names.py \
	tests/engines/test_engine_vllm_replicas.py \
	tests/engines/test_engine_zoo.py \
	tests/engines/test_engine_pretrained.py \
	tests/sampling/test_generate_vllm.py \
	tests/engines/test_chat_templates.py \
	lab/tests/test_equivalence_vllm.py

test-vllm: $(VLLM_INSTALLED) ## run the engine tests with vLLM on a CPU; builds .venv-vllm (4 GB)
	.venv-vllm/bin/python -m pytest $(VLLM_TESTS) $(PYTEST_FLAGS)

$(SLURM_INSTALLED): $(INSTALLED) requirements/slurm.txt
	$(INSTALL) --locked requirements/slurm.txt $(PIP_FLAGS)
	@touch $@

test-slurm: $(SLURM_INSTALLED) ## run the cluster tests on a Slurm that they start themselves (as root; half an hour)
	SEARCHLENS_SLURM=1 .venv/bin/python -m pytest tests/slurm $(PYTEST_FLAGS)

# The browser is the machine's own: on Debian `apt-get install chromium`.
$(BROWSER_INSTALLED): $(INSTALLED) requirements/browser.txt
	$(INSTALL) --locked requirements/browser.txt $(PIP_FLAGS)
	@touch $@

test-browser: $(BROWSER_INSTALLED) ## run the tests of the explorer's page in Chromium
	SEARCHLENS_BROWSER=1 .venv/bin/python -m pytest tests/reporting/test_explorer_browser*.py tests/reporting/test_explorer_web.py $(PYTEST_FLAGS)

# Nobody but who edits web/ needs node: what it builds is kept in the repository.
$(WEB_INSTALLED): web/package-lock.json
	cd web && npm ci --ignore-scripts --no-audit --no-fund
	@touch $@

web: $(WEB_INSTALLED) ## build the explorer's page from web/ (needs node 20)
	cd web && npm run --silent check && npm test --silent && npm run --silent build

# mkdocs reads the sources and imports nothing of them, so its environment has neither searchlens nor what that needs.
$(DOCS_INSTALLED): requirements/docs.txt requirements/uv.txt
	$(PYTHON) -m venv .venv-docs
	workflow/install.sh .venv-docs --locked requirements/docs.txt $(PIP_FLAGS)
	@touch $@

docs: $(DOCS_INSTALLED) ## build the documentation as a site in site/; a broken link fails
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

screenshots: $(BROWSER_INSTALLED) ## after `make demo`: draw its pages in Chromium for docs/figures/screen_*.webp
	.venv/bin/python lab/screenshots.py

docs-numbers: $(INSTALLED) ## after zoo-tables: the numbers of docs/findings.md (docs/findings.csv, and printed)
	.venv/bin/python validation/page_numbers.py --quote results/zoo-tables
	.venv/bin/python validation/page_numbers.py
	.venv/bin/python validation/power_sampling.py
	.venv/bin/python validation/power_sampling.py --counts resources/zoo/cohort/power

test-faults: $(INSTALLED) ## let every call on the disk fail, in every order (half an hour of processor time)
	.venv/bin/python tests/faults/run.py $(FAULTS)

test-faults-real: $(INSTALLED) ## the same with the real engine and Snakemake, at 100 points by seed (half an hour of processor time)
	.venv/bin/python tests/faults/real.py $(FAULTS)

test-wheel: $(INSTALLED) ## build the wheels and the sdist, and use them outside of the checkout
	.ci/test-wheel

release: $(INSTALLED) ## VERSION=1.2.3: set it everywhere, date the changelog, build dist/ and try it; publishes nothing
	@[[ "$(VERSION)" =~ ^[0-9]+\.[0-9]+\.[0-9]+$$ ]] || { echo "say which version: make release VERSION=1.2.3"; exit 2; }
	grep -qx 'version = "$(VERSION)"' pyproject.toml || uv tool run bump-my-version@1.8.1 bump --new-version $(VERSION)
	rm -rf dist
	.ci/test-wheel dist
	uv tool run twine@7.0.0 check dist/*
	@echo "dist/ has version $(VERSION): look at git diff, then commit it and tag v$(VERSION)"

# The packages have many requirements of their own, so they have an environment of their own, which takes minutes to build.
# Their newest versions are meant: the target finds out when they change what they write.
$(HARNESSES_INSTALLED):
	$(PYTHON) -m venv .venv-harnesses
	.venv-harnesses/bin/pip install --quiet --disable-pip-version-check $(PIP_FLAGS) inspect-ai lm-eval jsonschema
	.venv-harnesses/bin/pip install --quiet --disable-pip-version-check --no-deps --ignore-requires-python $(PIP_FLAGS) every-eval-ever # its schemas alone
	@touch $@

test-harnesses: $(INSTALLED) $(HARNESSES_INSTALLED) ## let Inspect and lm-evaluation-harness write logs that we read, and check our exports; builds .venv-harnesses
	rm -rf .venv-harnesses/logs
	for harness in inspect lm_eval; do .venv-harnesses/bin/python tests/data/make_logs.py $$harness .venv-harnesses/logs; done
	SEARCHLENS_LOGS=$(CURDIR)/.venv-harnesses/logs .venv/bin/python -m pytest tests/formats/test_readers_harnesses.py $(PYTEST_FLAGS)
	SEARCHLENS_HARNESSES=$(CURDIR)/.venv-harnesses/bin/python .venv/bin/python -m pytest tests/formats/test_exports.py $(PYTEST_FLAGS)

check: $(INSTALLED) ## format and lint: ruff, mypy, snakefmt, snakemake --lint
	.venv/bin/ruff format --check .
	.venv/bin/ruff check .
	.venv/bin/mypy
	.venv/bin/snakefmt --check Snakefile workflow lab/src src/searchlens/cli/templates/Snakefile
	.venv/bin/snakemake --lint --quiet all

format: $(INSTALLED) ## format everything
	.venv/bin/ruff format .
	.venv/bin/ruff check --fix .
	.venv/bin/snakefmt Snakefile workflow lab/src src/searchlens/cli/templates/Snakefile

schema: $(INSTALLED) ## generate config/README.md from the typed configuration, and docs/{glossary,commands,columns}.md
	.venv/bin/python -m searchlens_lab.config_page
	for page in glossary commands columns; do .venv/bin/python lab/$$page.py; done

zoo: $(INSTALLED) ## retrain the micro pair from scratch (one GPU, under 20 minutes)
	.venv/bin/python -m searchlens_lab.zoo all

zoo-cohort: $(INSTALLED) ## train the cohort (docs/zoo-cohort.md), resumable; DEVICES=0,1,2,3
	.venv/bin/python -m searchlens_lab.zoo cohort --output results/cohort --devices $(DEVICES)

zoo-run: $(INSTALLED) ## sample the cohort on a GPU, resumable, and record its estimates for zoo-tables
	snakemake --configfile config/zoo.yaml --cores $(CORES) --resources gpu=$(JOBS) --set-threads generate=1 # such a small model needs one core
	searchlens record --config config/zoo.yaml --output resources/zoo/cohort/recorded_counts

zoo-tables: $(INSTALLED) ## write the cohort's tables, figures and report from recorded counts, without a GPU
	snakemake $(ZOO_TABLES) --cores $(CORES) --set-threads boptr=1 # it uses one core most of the time; figures use the others

lock: $(BASE_INSTALLED) ## write requirements/ anew, with hashes; UV_FLAGS=--upgrade takes the newest versions
	.venv/bin/python lab/lock.py $(UV_FLAGS)

perf: $(INSTALLED) ## measure speed, as ratios against named baselines (docs/speed.md)
	.venv/bin/python perf/engine.py
	.venv/bin/python perf/commands.py
	.venv/bin/python perf/explorer.py
	OPENBLAS_NUM_THREADS=1 .venv/bin/python perf/landscape.py # as the workflow runs it
	OPENBLAS_NUM_THREADS=1 .venv/bin/python perf/boptr.py
	.venv/bin/python perf/grading.py --scale 0.05 # half an hour without --scale

size: $(INSTALLED) ## print how large the project is; fails if tracked files grew
	.venv/bin/python lab/size.py

words: $(INSTALLED) ## check pages, captions and help texts: plain words, short sentences, short pages, spelling
	.venv/bin/python lab/words.py
	.venv/bin/codespell *.md docs/*.md config/*.md paper/*.md workflow/report

clean: ## remove results and logs; keep the environment
	rm -rf logs .snakemake
	find results -mindepth 1 -maxdepth 1 ! -name README.md -exec rm -rf {} +
