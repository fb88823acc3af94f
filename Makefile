# The commands of the README. Each stands on its own on a fresh machine.

PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
WORKDIR ?= runs/code
CONFIG ?= configs/python_code.py
ARGS ?=
# MaxText needs another Python and other versions: an environment of its own.
MAXTEXT_PYTHON ?= python3.12
MAXTEXT_BIN := .venv-maxtext/bin
# Kept bytecode, whatever the environment says: else each process that tests
# start compiles the package, and pytest rewrites all asserts anew.
PYTEST := PYTHONDONTWRITEBYTECODE= $(BIN)/python -m pytest --numprocesses=2 --dist=worksteal

# The machine's own real text: the standard library's sources and texts.
STDLIB := $(shell $(PYTHON) -c 'import sysconfig; print(sysconfig.get_path("stdlib"))')

.PHONY: train test test-slow test-all test-oldest faults test-beam test-maxtext test-chats bench-peers check docs prepare prepare-mix prepare-images inspect clean help

help:  ## Say what each command does.
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

# The main job's sources: the functions, methods and classes of that code.
CODE := $(foreach name,functions methods classes,data/$(name)/manifest.json)

train: $(CODE)  ## Prepare three stores, train on packed rows of them, and draw how it went; resumes when run again.
	$(BIN)/python tools/train.py --config=$(CONFIG) --workdir=$(WORKDIR) $(ARGS)

test: $(BIN)/.test .venv-moto/bin/moto_server  ## Run the tests, two at once, but not the slow ones.
	$(PYTEST) -m 'not slow' --hypothesis-profile=quick $(ARGS)

test-slow: $(BIN)/.test .venv-moto/bin/moto_server  ## Run the slow tests, two at once.
	$(PYTEST) -m slow --hypothesis-profile=quick --timeout=1800 $(ARGS)

# Before a release. Hypothesis runs each property on 1,000 examples, not 25.
test-all: test  ## Run all tests, and each property on 40 times the examples: 40 minutes.
	$(PYTEST) -m 'slow or hypothesis' --hypothesis-profile=full --timeout=1800 $(ARGS)

# Old packages warn of what they leave open and of what they will remove.
test-oldest: .venv-oldest/bin/.test .venv-moto/bin/moto_server  ## Run the tests with the oldest allowed versions of all dependencies.
	PYTHONDONTWRITEBYTECODE= .venv-oldest/bin/python -m pytest --numprocesses=2 --dist=worksteal \
	  -m 'not slow' --hypothesis-profile=quick -W ignore::ResourceWarning \
	  -W ignore::pytest.PytestUnraisableExceptionWarning $(ARGS)

faults: $(BIN)/.test .venv-moto/bin/moto_server  ## Inject faults by the thousand and count what comes of them: an hour.
	$(BIN)/python -m tests.faults $(ARGS)

test-maxtext: $(MAXTEXT_BIN)/.made  ## Train real MaxText on our input for a few steps.
	$(MAXTEXT_BIN)/python -m pytest tests/integrations $(ARGS)

test-beam: .venv-beam/bin/pytest  ## Run what is on Apache Beam, in an environment of its own.
	.venv-beam/bin/python -m pytest -n0 -k 'not killed and not far' tests/prepare/beam_test.py \
	  tests/prepare/beam_bucket_test.py tests/docs/engines_test.py

test-chats: .venv-chats/.made  ## Compare chats with transformers on TRL's templates, in an environment of its own.
	.venv-chats/bin/python -m pytest -n2 tests/integrations/transformers_test.py $(ARGS)

bench-peers: .venv-peers/.made | $(BIN)/.test  ## Compare speed and resuming with other loaders.
	$(BIN)/python benchmarks/peers.py --rows=8,64 $(ARGS)

check: $(BIN)/.dev  ## Lint, format and type checks.
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/pyright
	$(BIN)/python -m pytest tests/types_test.py

docs: .venv-docs/bin/mkdocs  ## Build the documentation into site/, without network.
	NO_MKDOCS_2_WARNING=1 .venv-docs/bin/mkdocs build --strict --quiet

prepare: $(CODE)  ## Only prepare the three stores.

MIXED := $(foreach name,stdlib packages notes,data/$(name)/manifest.json)
prepare-mix: $(MIXED)  ## Prepare the corpora of the mixes.

prepare-images: | $(BIN)/.test  ## Draw the pictures of the resolution buckets.
	$(BIN)/python examples/prepare_images.py --output=data/images

inspect: $(CODE)  ## Look at two rows of the first batch.
	$(BIN)/python tools/inspect_batches.py --config=$(CONFIG) --count=1 --rows=2 $(ARGS)

data/text/functions.jsonl: examples/stdlib_documents.py | $(BIN)/.train
	$(BIN)/python examples/stdlib_documents.py --output=data/text

data/functions/manifest.json: data/text/functions.jsonl
	$(BIN)/python tools/prepare.py --input=$< --output=data/functions --overwrite \
	  --train_tokenizer=bpe --vocab_size=4096 --workers=2

# With the tokenizer that was trained on the functions.
data/methods/manifest.json data/classes/manifest.json: data/%/manifest.json: data/functions/manifest.json
	$(BIN)/python tools/prepare.py --input=data/text/$*.jsonl --output=data/$* --overwrite \
	  --tokenizer=data/functions/tokenizer.json --workers=2

data/stdlib/manifest.json: | $(BIN)/.train
	$(BIN)/python tools/prepare.py --input='$(STDLIB)/**/*.py' \
	  --input='$(STDLIB)/**/*.txt' --exclude='*site-packages/*' --exclude='*dist-packages/*' \
	  --exclude='*/test/*' --exclude='*/tests/*' --exclude='*/idle_test/*' \
	  --output=data/stdlib --tokenizer=byte --workers=2

data/packages/manifest.json: | $(BIN)/.train
	$(BIN)/python tools/prepare.py --output=data/packages --tokenizer=byte \
	  --workers=2 --exclude='*/tests/*' --exclude='*_test.py' \
	  $(foreach name,numpy jax flax grain optax,--input='$(VENV)/lib/*/site-packages/$(name)/**/*.py')

data/notes/manifest.json: | $(BIN)/.train
	$(BIN)/python tools/prepare.py --output=data/notes --tokenizer=byte \
	  --workers=2 --exclude='*/tests/*' --exclude='*/test/*' --on_error=skip \
	  --input='$(VENV)/lib/*/site-packages/**/LICENSE*' \
	  --input='$(VENV)/lib/*/site-packages/**/METADATA' \
	  --input='$(VENV)/lib/*/site-packages/**/*.txt' \
	  --input='$(VENV)/lib/*/site-packages/**/*.md'

$(BIN)/.train: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the environment, about a minute."
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[train]'
	touch $@

$(BIN)/.test: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[test]'
	touch $@ $(BIN)/.train

# apache-beam asks for older versions of some packages than constraints.txt has.
.venv-beam/bin/pytest: pyproject.toml
	test -x .venv-beam/bin/python || $(PYTHON) -m venv .venv-beam
	.venv-beam/bin/python -m pip install --quiet --editable '.[beam]' \
	  hypothesis pytest pytest-timeout pytest-xdist
	touch $@

# A server of S3's protocol, for tests: its packages ask for older versions of
# some that others ask for, so they have an environment of their own.
.venv-moto/bin/moto_server:
	test -x .venv-moto/bin/python || $(PYTHON) -m venv .venv-moto
	.venv-moto/bin/python -m pip install --quiet 'moto[s3]>=5.1,<6' 'flask>=3,<4' 'flask-cors>=5'

# Of trl only its templates are read, so it comes without its packages.
.venv-chats/.made: pyproject.toml
	test -x .venv-chats/bin/python || $(PYTHON) -m venv .venv-chats
	.venv-chats/bin/python -m pip install --quiet --editable '.[arrow,jinja2]' \
	  'transformers>=5.23,<6' hypothesis pytest pytest-timeout pytest-xdist
	.venv-chats/bin/python -m pip install --quiet --no-deps 'trl>=1.16,<2'
	touch $@

.venv-oldest/bin/.test: pyproject.toml constraints-oldest.txt
	test -x .venv-oldest/bin/python || $(PYTHON) -m venv .venv-oldest
	.venv-oldest/bin/python -m pip install --quiet --constraint constraints-oldest.txt --editable '.[test]'
	touch $@

.venv-docs/bin/mkdocs:
	test -x .venv-docs/bin/python || $(PYTHON) -m venv .venv-docs
	.venv-docs/bin/python -m pip install --quiet 'mkdocs-material>=9.5,<10'

# Loaders to compare with, which ask for other versions than constraints.txt has.
.venv-peers/.made: benchmarks/peers_requirements.txt
	test -x .venv-peers/bin/python || $(PYTHON) -m venv .venv-peers
	.venv-peers/bin/python -m pip install --quiet --requirement $<
	touch $@

$(BIN)/.dev: pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --constraint constraints.txt --editable '.[dev]'
	touch $@ $(BIN)/.test $(BIN)/.train

$(MAXTEXT_BIN)/.made: pyproject.toml tests/integrations/maxtext_requirements.txt
	test -x $(MAXTEXT_BIN)/python || $(MAXTEXT_PYTHON) -m venv .venv-maxtext
	$(MAXTEXT_BIN)/python -m pip install --quiet \
	  --requirement tests/integrations/maxtext_requirements.txt --editable .
	touch $@

clean:  ## Remove the corpus and the runs (not the environment).
	rm -rf data runs
