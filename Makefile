# One command a paper: `make repro-<paper>`. `make help` lists the rest.

# Choices, passed on only if given: make repro-bahdanau SCALE=smoke ARGS="model.hidden=128"
SCALE ?=
TABLE ?=
ROW ?=
SEEDS ?=
ARGS ?=
FRESH ?=
RUN ?=
BUDGET ?=
TORCH_INDEX ?=

supported = import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))
PYTHON ?= $(shell for p in python3.12 python3.11 python3; do "$$p" -c '$(supported)' 2>/dev/null && echo "$$p" && break; done)
PY := .venv/bin/python
INSTALL := -m pip install --quiet --disable-pip-version-check
PIP := $(PY) $(INSTALL)
LOCKED := .venv/.locked
READY := .venv/.ready

alias_flash = flash_attention
alias_longformer = longformer_bigbird
alias_bigbird = longformer_bigbird
alias_performer = performer_linformer
alias_linformer = performer_linformer
alias_linear_transformer = performer_linformer
alias_mqa = mqa_gqa
alias_gqa = mqa_gqa
paper = $(or $(alias_$(subst -,_,$*)),$(subst -,_,$*))
papers = $(patsubst reproductions/%/published.yaml,%,$(wildcard reproductions/*/published.yaml))
comma = ,
empty =
space = $(empty) $(empty)
scale = scale=$(or $(SCALE),small)
# $(call tables,scale=...): those of the paper; some run at the paper scale alone
shared_longformer_bigbird = conf/table/lra_*.yaml
tables = $(or $(TABLE),$(patsubst conf/table/%.yaml,%,$(wildcard conf/table/$(paper)_*.yaml $(shared_$(paper)) \
	$(if $(filter scale=paper,$(1)),conf/table/paper/$(paper)_*.yaml))))
choice = $(strip $(if $(ROW),experiment=$(paper)/$(subst $(comma),$(comma)$(paper)/,$(ROW))) \
	$(if $(SEEDS),seed=$(SEEDS)) $(if $(FRESH),fresh=true) $(ARGS))
# What is measured goes with the whole paper: not with a choice of its trained rows, whose overrides it does not have.
trained = $(wildcard conf/table/$(paper)_*.yaml)
measured = $(if $(and $(trained),$(TABLE)$(ROW)),,$(wildcard conf/bench/$(paper).yaml))
listed = $(subst $(space),$(comma),$(strip $(call tables,$(1))))
train = failed=0; $(if $(call listed,$(1)),$(PY) -m reproductions.train -m table=$(call listed,$(1)) $(1) $(choice) || \
	{ failed=$$?; test $$failed = 1 || exit $$failed; };)

measure = for seed in $(subst $(comma), ,$(or $(SEEDS),1)); do \
	$(PY) -m reproductions.bench bench=$(paper) $(scale) seed=$$seed $(if $(FRESH),fresh=true) $(if $(trained),,$(ARGS)) || \
		{ failed=$$?; test $$failed = 1 || exit $$failed; }; done;

.PHONY: help setup check test repro-all conformance mutants kernels-static bench-nmt bench-peers bench-attention plan choose doctor verify site dashboard translate convert clean
.DEFAULT_GOAL := help

help:  ## this list
	@awk -F ':.*## ' '/^[a-z%-]+:.*## / {sub(/%/, "<paper>", $$1); printf "  make %-18s %s\n", $$1, $$2}' Makefile
	@echo
	@echo "  papers: $(papers)"
	@echo "  SCALE=smoke|small|paper  toy data; real text, the default; the paper's own data and sizes"
	@echo "  TABLE=<name> ROW=<name>  only this table (bahdanau_1), only these rows (rnnsearch_30,rnnsearch_50)"
	@echo "  SEEDS=1,2,3              seeds of each row"
	@echo "  ARGS=\"key=value ...\"     overrides, or a new ablation; arguments of pytest for make test"
	@echo "  FRESH=1                  re-run rows that are stored already"
	@echo "  RUN=<folder>             the run that translate, convert and verify use"
	@echo "  BUDGET=15m               time that plan fits tables into: s, m or h"
	@echo "  TORCH_INDEX=<address>    index to take torch from, such as PyTorch's own for cpu"
	@echo "  PYTHON=<interpreter>     Python 3.11 or 3.12 to make the environment with"

setup: $(READY)  ## make the environment, .venv

# torch goes first and by its exact version: an open range may pull another build of several GB.
$(LOCKED): requirements.lock
	@python=$$(command -v python3 || command -v python) || { \
		echo "Python 3.11 or 3.12 is needed. Debian: apt-get install python3 python3-venv; macOS: brew install python@3.12" >&2; \
		exit 1; }; "$$python" -I reproductions/preflight.py "$(PYTHON)" "$(TORCH_INDEX)"
	@echo "making .venv: 2.5 GB of disk with a CPU build of torch, several more with a CUDA build (TORCH_INDEX= chooses)"
	"$(PYTHON)" -m venv --clear .venv
	$(PIP) $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") "$$(grep '^torch==' requirements.lock)"
	$(PIP) -r requirements.lock
	@touch $@

$(READY): pyproject.toml $(LOCKED)
	$(PIP) --no-deps --no-build-isolation --editable .
	@touch $@

check: $(READY)  ## lint, format, types, import rules
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m pyright --pythonpath $(PY)
	$(PY) -m pytest -q tests/test_layers.py

test: $(READY)  ## all tests, on two cores
	@cache=$$(mktemp -d) && trap 'rm -rf "$$cache"' EXIT && \
		OMP_NUM_THREADS=1 TRITON_CACHE_DIR="$$cache" $(PY) -m pytest -q -n 2 $(ARGS)

conformance: $(READY)  ## every attention backend against fp64: masks, dtypes, shapes; what each refuses
	@OMP_NUM_THREADS=1 $(PY) -m tests.common.attention.conformance $(ARGS)

mutants: $(READY)  ## plant faults in the kernels, see the tests catch each
	@OMP_NUM_THREADS=1 $(PY) -m tests.mutants $(ARGS)

kernels-static: $(READY)  ## compile the kernels for GPUs, without one: registers, spills, tensor-core instructions
	@$(PY) -m common.attention.kernels $(ARGS)

# Before anything is set up: a misspelt paper costs nothing.
_known-%:
	$(if $(filter $(paper),$(papers)),@:,$(error no paper "$(paper)"; there is: $(papers)))
	$(if $(and $(ROW)$(TABLE),$(if $(trained),,none)),$(error $(paper) has no rows that are trained: leave out ROW and TABLE),@:)

# A failed row is exit code 1, and the report shows it: so it is written all the same. Other codes (a wrong argument) stop.
repro-%: _known-% $(READY)  ## train the rows of its tables, then report
	@$(call train,$(scale)) $(if $(measured),$(measure)) $(PY) -m reproductions.report paper=$(paper) $(scale) && exit $$failed

# The field guide comes last: it reads rows of the others. By another name, as --dry-run runs lines that name MAKE itself.
again = $(MAKE) --no-print-directory
repro-all: $(READY)  ## every paper at one scale, finished rows skipped, and one table at the end
	@failed=0; for paper in $(filter-out field_guide,$(papers)) $(filter field_guide,$(papers)); do \
		$(again) repro-$$paper || failed=1; done; \
		$(PY) -m reproductions.summary $(scale) && exit $$failed

dry-run-%: _known-% $(READY)  ## one update of every row with a made-up batch; SCALE=paper unless given
	@$(call train,scale=$(or $(SCALE),paper) dry_run=true) exit $$failed

report-%: _known-% $(READY)  ## report on the runs there are; ARGS="rescore=true" under every scorer
	@$(PY) -m reproductions.report paper=$(paper) $(scale) $(ARGS)

stored-%: _known-% $(READY)  ## put the runs behind the tracked RESULTS.md into runs, where they are not there
	@$(PY) -m reproductions.archive paper=$(paper) $(scale)

results-%: _known-% $(READY)  ## write the report into its tracked RESULTS.md, its runs beside it
	@$(PY) -m reproductions.finished paper=$(paper) $(scale) && $(PY) -m reproductions.report paper=$(paper) $(scale) results=true $(ARGS)

plan: $(READY)  ## what fits into BUDGET=15m on this machine, and which claims it decides; ARGS="papers=luong" narrows it
	$(if $(BUDGET),,$(error give the time: make plan BUDGET=15m))@$(PY) -m reproductions.plan budget=$(BUDGET) $(scale) $(ARGS)

verify: $(READY)  ## whether the run RUN is what it says: files, hashes, data, scores; ARGS=again=true trains it again
	$(if $(RUN),,$(error give the run: make verify RUN=runs/bahdanau/small/rnnsearch_30-s1))@$(PY) \
		-m reproductions.verify run="$(RUN)" $(ARGS)

choose: $(READY)  ## which attention for a length and a task, ARGS="--length 8192 --task longqa --phase infer --memory 24GiB"
	@$(PY) -m reproductions.choose $(ARGS)

doctor: $(READY)  ## what is wrong with a run or a row, ARGS="oom|blur|position|causal|dims RUN_OR_OVERRIDES"
	@$(PY) -m reproductions.doctor $(ARGS)

site: $(READY)  ## one static site from the stored results, in site/; ARGS=out=FOLDER elsewhere
	@$(PY) -m reproductions.site $(ARGS)

dashboard: $(READY)  ## a W&B workspace and report of each paper, as code; without a key, their specifications in dashboard/
	@$(PY) -m reproductions.dashboard $(ARGS)

bench-nmt: $(READY)  ## speed of training and decoding
	@$(PY) -m reproductions.bench bench=nmt $(scale) $(ARGS)

PEERS := .venv-peers/.ready
$(PEERS): requirements-peers.lock requirements.lock
	"$(PYTHON)" -m venv --clear .venv-peers
	.venv-peers/bin/python $(INSTALL) $(if $(TORCH_INDEX),--index-url "$(TORCH_INDEX)") "$$(grep '^torch==' requirements.lock)"
	.venv-peers/bin/python $(INSTALL) --no-deps -r requirements-peers.lock
	@touch $@

bench-peers: $(PEERS)  ## other projects beside ours, in an environment of its own, .venv-peers; ROW=joeynmt,longformer,performer,generate,attention_interface chooses
	@.venv-peers/bin/python -m reproductions.peers $(subst $(comma), ,$(ROW))

bench-attention: $(READY)  ## times and memory of attention by backend, mask and length, in one JSON file
	@$(PY) -m common.bench attention $(ARGS)

translate: $(READY)  ## translate standard input with the model of RUN
	$(if $(RUN),,$(error give the run: make translate RUN=runs/bahdanau/small/rnnsearch_30-s1 < text))@$(PY) \
		-m reproductions.translate run="$(RUN)" $(ARGS)

convert: $(READY)  ## a run's weights with fewer heads of keys and values: RUN=<folder> ARGS="kv_heads=2 how=mean out=<file>"
	$(if $(RUN),,$(error give the run: make convert RUN=runs/mqa_gqa/small/multi_head-s1 ARGS="kv_heads=2 how=mean out=few.ckpt"))@$(PY) \
		-m reproductions.convert run="$(RUN)" $(ARGS)

clean:  ## remove caches; runs and .venv stay
	rm -rf .pytest_cache .ruff_cache .hypothesis outputs multirun build *.egg-info
	find common data reproductions tests -name __pycache__ -type d -prune -exec rm -rf {} +
