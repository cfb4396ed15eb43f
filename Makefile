# Two commands: `make serve` and `make test`. `make` alone lists the verbs.
#
# PYTHON=python3.12        which Python makes .venv; otherwise the first of 3.10 or newer
# PIP_ARGS="..."           arguments for pip, as an index or a folder of wheels
# ARGS="--port 9000"       arguments for the verb's program

VENV := .venv
PYTHON ?=
PIP_ARGS ?=
ARGS ?=
SEEDS ?= 200
RUN := $(VENV)/bin/python
STAMP := $(VENV)/.installed

.DEFAULT_GOAL := help
.PHONY: help serve test check check-invariance sim chaos bench train-default venv clean

help:
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-17s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)
	@echo 'ARGS="..." goes to the verb, as in: make serve ARGS="--port 9000 --model DIR"'

serve: $(STAMP) ## serve the default model on 127.0.0.1:8000
	@exec $(RUN) -m server $(ARGS)

test: $(STAMP) ## run every test
	@exec $(RUN) -m pytest -q $(ARGS)

check: $(STAMP) ## compile everything with warnings as errors, then the style test
	@$(RUN) -W error -m compileall -q server loader model tools bench tests
	@exec $(RUN) -m pytest -q tests/test_style.py

check-invariance: $(STAMP) ## what a CPU must pass to claim answers that never depend on company
	@OPENBLAS_NUM_THREADS=1 exec $(RUN) -m tests.check_invariance $(ARGS)

sim: $(STAMP) ## simulate faults over the real state machines: make sim SEEDS=2000
	@exec $(RUN) -m tests.simulate --seeds $(SEEDS) $(ARGS)

chaos: $(STAMP) ## kill and stop real processes under verifying clients
	@exec $(RUN) -m tests.chaos $(ARGS)

bench: $(STAMP) ## the short form of every benchmark, within 15 minutes, and a page of its figures
	@exec $(RUN) -m bench.all $(ARGS)

train-default: $(STAMP) ## make models/sms-spam anew from data/sms-spam
	@exec $(RUN) -m tools.train data/sms-spam/train.tsv --eval data/sms-spam/eval.tsv \
		--card data/sms-spam/MODEL.md -o models/sms-spam --force $(ARGS)

venv: $(STAMP) ## make .venv with the tested versions, if it is not there
	@echo "$(VENV) stands: $$($(RUN) -V)"

clean: ## remove .venv and what Python left behind
	@rm -rf $(VENV) .pytest_cache build dist *.egg-info
	@find . -name __pycache__ -type d -prune -exec rm -rf {} +

# A .venv whose Python is gone (an upgrade, a copied clone) is made again.
$(shell test -x $(RUN) || rm -f $(STAMP))

$(STAMP): constraints.txt
	@.ci/venv $(VENV) "$(PYTHON)" $(PIP_ARGS)
	@touch $@
