# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Every block of every page runs, or says why it cannot run here.

Commands and Python of a page run in its order, in a directory that has what
pages name (`inputs`). What is not run stands with its reason in `_NOT_RUN`.
"""

import contextlib
import dataclasses
import importlib.util
import json
import pathlib
import re
import shutil
import sys
import types
from typing import Any
from unittest import mock

import grain
import jax
import jax.numpy as jnp
import ml_collections
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.audit import difference
from chomp_data.commands import stores as store_commands
from chomp_data.commands.store_commands import shared
from chomp_data.config import files
from chomp_data.prepare import filters
from chomp_data.storage import opening
from chomp_data.stores import samples_array_record
from chomp_data.testing import stores as testing_stores
from examples import drawings
from tests import in_process
from tests.docs import inputs
from tests.docs import pages
from tests.remote import conftest

s3_server = conftest.s3_server
s3_bucket = conftest.s3_bucket

# Page, or None for all, how commands begin, why they are not run.
_NOT_RUN = (
  (None, "make ", "makes an environment; what more it makes is there"),
  (None, "python benchmarks/", "minutes; in seconds: benchmarks_test.py"),
  ("start.md", "python3 -m venv ", "the environment that runs this"),
  ("start.md", "pip install ", "the environment that runs this"),
  ("index.md", "pip install ", "the environment that runs this"),
  ("buckets.md", ". .venv/bin/activate", "the environment that runs this"),
  (
    "prepare.md",
    "chomp-prepare --input='corpus/**/*.jsonl' --output=data/corpus --engine",
    "Beam has an environment of its own: engines_test.py, `make test-beam`",
  ),
  ("prepare.md", "python -m apache_beam.", "a worker of a cluster"),
  ("benchmarks.md", "python -m tests.faults", "minutes; faults_test.py"),
  ("prepare.md", "chomp-prepare --input='s3://BUCKET", "a cluster"),
  ("prepare.md", "chomp-prepare --input='gs://BUCKET", "Dataflow"),
  (
    "on_call.md",
    "chomp-train --config=packed:runlocal --workdir=runs/served",
    "a port of its own: train_evaluation_test.py",
  ),
  ("maxtext.md", "python -m maxtext.", "MaxText: `make test-maxtext`"),
  ("stores.md", "ls ", "no command of ours"),
  ("stores.md", "rm -r ", "no command of ours"),
)
# Those that train a model again and again.
_SLOW = (
  "README.md",
  "answers.md",
  "buckets.md",
  "chats.md",
  "edits.md",
  "object_stores.md",
  "on_call.md",
  "pairs.md",
  "start.md",
  "targets.md",
)
_HAS_TORCH = importlib.util.find_spec("torch") is not None
# Programs that hang or fail: upstream_test.py runs each by itself.
_PROGRAMS = ("upstream.md",)
_LANGUAGES = {"sh", "python", "json", "text", "diff"}

_MEGATRON = {"append-eod", "dataset-impl"}  # Flags of it, in sentences.

# What a page needs, and what must have come of it: before and after `yield`.
# `names` are those of its Python, `found` what came of its commands.
_AROUND = {}


def around(page):
  def add(function):
    _AROUND[page] = contextlib.contextmanager(function)
    return function

  return add


@contextlib.contextmanager
def the_config_of(page):
  """Writes the first block of a page as mine.py, where Python finds it."""
  config = pages.blocks(page, "python")[0].text
  assert config.startswith('"""mine.py')
  pathlib.Path("mine.py").write_text(config)
  with mock.patch.object(sys, "path", ["", *sys.path]):
    sys.modules.pop("mine", None)
    yield


@around("README.md")
def around_readme(names, found):
  with the_config_of("README.md"):
    yield
  assert pathlib.Path("step.html").stat().st_size > 10_000
  assert names["batch"]["tokens"].shape == (8, 512)
  assert names["dataset"][0]["tokens"].shape == (8, 512)
  (trained,) = (own for line, own in found.items() if "own_trainer" in line)
  losses = [float(own) for own in re.findall(r"loss ([\d.]+)", trained.stdout)]
  assert len(losses) == 100
  assert losses[-1] < losses[0]
  assert (pathlib.Path.cwd() / "bigram" / "100").is_dir()
  assert pathlib.Path("runs/mine/summary.png").exists()


@around("index.md")
def around_index(names, found):
  with the_config_of("index.md"):
    yield
  assert names["batch"]["tokens"].shape == (8, 512)


@around("training.md")
def around_training(names, found):
  config = ml_collections.ConfigDict(
    {
      "data": {
        "seq_len": 64,
        "global_batch_size": 4,
        "epochs": 1,
        "sources": {"web": {"store": "data/web", "rows": {"kind": "bin"}}},
      }
    }
  )
  seen = []

  def train_step(state, batch):
    seen.append(batch["tokens"].shape)
    return state, {}

  names |= {
    "config": config,
    "sharding": jax.sharding.SingleDeviceSharding(jax.devices()[0]),
    "train_step": train_step,
    "state": {"w": jnp.zeros(3)},
  }
  yield
  steps = names["batches"].step
  assert steps > 100
  store = chomp_data.open_store("data/web")
  lengths = np.concatenate([part for _, part in store.iter_lengths()])
  assert names["targets"] == np.maximum(lengths - 1, 0).sum()
  assert set(seen) == {(4, 64)}
  assert len(seen) == 2 * steps
  # The loop with checkpoints, run again, begins at the newest one.
  names["manager"].close()
  again = {**names, "config": config}
  exec(names["change"](pages.blocks("training.md", "python")[1].text), again)
  assert again["manager"].latest_step() == steps // 100 * 100
  assert len(seen) == 2 * steps + steps % 100
  again["manager"].close()
  if _HAS_TORCH:
    losses = names["losses"]
    assert len(losses) == 10
    assert np.isfinite(losses).all()
    assert losses[-1] < losses[0]
    following = next(names["torch_batches"])
    for name, value in names["pipe"].batch(10).items():
      np.testing.assert_array_equal(following[name], value)
  assert names["batch"]["labels"].shape == (8, 512)
  assert names["rows"]["tokens"].shape == (4, 512)
  assert names["windows"].kind == "windows"
  size = len(names["web"])
  passes = grain.MapDataset.source(names["passes"])
  for dataset, orders in ((names["same"], 1), (passes, 3)):
    assert len(dataset) == 3 * size
    passed = {
      tuple(dataset[n * size + i]["tokens"].tobytes() for i in range(size))
      for n in range(3)
    }
    assert len(passed) == orders
  assert all(len(own) == 3 * size for own in names["orders"].values())
  batch = next(iter(names["loader"]))
  assert batch["tokens"].shape == (8, 512)


@around("answers.md")
def around_answers(names, found):
  (listed,) = (
    block.text
    for block in pages.blocks("answers.md", "text")
    if block.text.startswith("{")
  )
  pathlib.Path("leaked.jsonl").write_text(listed)
  names |= {
    "config": files.load_config("packed", ()),
    "sharding": jax.sharding.SingleDeviceSharding(jax.devices()[0]),
  }
  yield
  page = pages.text("answers.md")
  for line, done in found.items():
    if "--format=json" in line:
      for own in map(json.loads, done.stdout.splitlines()):
        assert all(f"`{name}`" in page for name in own), line
        for span in own.get("spans", ()):
          assert all(f"`{name}`" in page for name in span), line
    for html in re.findall(r"--html=(\S+)", line):
      assert pathlib.Path(html).stat().st_size > 10_000
  (block,) = pages.blocks("answers.md", "json")
  shown = json.loads(block.text)
  assert list(shown) == _fields(difference.Difference)
  for own in shown["sources"]["notes"].values():
    assert list(own) == _fields(difference.SourceSummary)
  verified, _, planned = [
    done.stdout for line, done in found.items() if "verify-run" in line
  ]
  assert "what was handed out is what the plan says: steps 0 .. " in verified
  assert planned.startswith("steps 0 .. 19: plan ")
  assert names["stretch"]["last"] == 3


def _fields(cls):
  return [own.name for own in dataclasses.fields(cls)]


@around("buckets.md")
def around_buckets(names, found):
  for name in drawings.DATASETS:
    path = f"data/images/array_record/{name}"
    samples_array_record.write_samples(path, drawings.samples(name, 450))
  yield
  pipe = pipeline.build(names["data"])
  shapes = {
    pipe.bucket_of(step)[1]: pipe.batch(step)["latent"].shape
    for step in range(20)
  }
  assert shapes == {"512x512": (16, 64, 64, 4), "512x768": (8, 64, 96, 4)}
  assert pipe.batch(0)["label"].tolist() == [3] * len(pipe.batch(0)["label"])


@around("targets.md")
def around_targets(names, found):
  tokens = {"input_ids": [5, 50256], "margin": 0.5}
  tokens["teacher_probs"] = [[0.125] * 8] * 2
  pathlib.Path("teacher.jsonl").write_text(json.dumps(tokens) + "\n")
  names["tokenizer_info"] = stores.TokenizerInfo(
    "custom", "0" * 64, 64, pad_id=0, eos_id=1
  )
  yield
  assert len(names["order"]) == 256
  assert names["batch"]["teacher_ids"][0, 2].tolist() == [1, 3]
  (shown,) = (done for line, done in found.items() if "inspect" in line)
  assert "prefix: " in shown.stdout
  assert "<middle>" in shown.stdout


@around("chats.md")
def around_chats(names, found):
  like = testing_stores.make_store("like", [[3]], bos_id=2)
  names |= {
    "tokenizer_info": like.opened.tokenizer,
    "jnp": jnp,
    "nll": np.ones((1, 2)),
    "batch": {"loss_mask": np.ones((1, 2), np.bool_)},
  }
  yield
  assert stores.open_store("data/answers").document_ids([0])[0] == "7"
  assert stores.open_store("data/pairs").labels.has_runs
  (chats,) = (line for line in found if "data/answers" in line)
  chats = chats.replace("tokenizer.json", "byte")
  pages.run_line(chats.replace("data/answers", "data/bytes"))
  plain = stores.open_store("data/bytes")
  text = stores.read_document(plain, 0).astype(np.uint8).tobytes().decode()
  preview, shown, *_ = pages.blocks("chats.md", "text")
  assert preview.text in [done.stdout for done in found.values()]
  assert text == shown.text.removesuffix("\n")
  assert plain.labels.trained_before(np.asarray([plain.num_tokens])) == [1]


@around("stores.md")
def around_stores(names, found):
  yield
  pipe = pipeline.build(names["several"])
  assert pipe.sources["web"].store.num_documents == 400
  web = stores.open_store("data/web")
  assert names["first"].tolist() == web.read_tokens([0], [10]).tolist()
  assert names["document"].tolist() == stores.read_document(web, 0).tolist()
  pipe = pipeline.build(names["tokenized"])
  assert pipe.batch(0)["tokens"].shape == (2, 64)
  store = pipe.sources["web"].store
  assert shared.line(store).endswith(store.hash[:16])
  assert names["batch"]["tokens"].shape == (8, 512)
  pipe = pipeline.build(names["data"])
  assert pipe.sources["mine"].store.num_documents == 1_000


@around("prepare.md")
def around_prepare(names, found):
  (own,) = (
    block
    for block in pages.blocks("prepare.md", "python")
    if block.text.startswith("def keep")
  )
  pathlib.Path("my_filters.py").write_text(own.text)
  filters.load.cache_clear()
  yield
  sys.modules.pop("my_filters", None)
  filters.load.cache_clear()
  made = {}
  others = {"data/trained", "data/ranks", "data/corpus"}
  for line in found:
    (output,) = re.findall(r"--output=(\S+)", line)
    if output in others:
      continue
    store = stores.open_store(output)
    ids = store.document_ids(range(store.num_documents))
    left_out = store.manifest.prepared.get("skipped", {}).get("reasons")
    made[output] = (ids, left_out)
  assert made == {
    "data/crawl": (["a", "b", "c"], None),
    "data/unique": (["a", "b"], {"duplicate": 1}),
    "data/good": (["a"], {"filtered": 1, "short": 1}),
    "data/dolma": (["d0", "d1", "d2"], None),
    "data/datatrove": (["t0", "t2", "t0", "t2"], {"no text": 2}),
  }
  info = stores.open_store("data/trained").opened.tokenizer
  assert info.kind == "huggingface"
  info = stores.open_store("data/ranks").opened.tokenizer
  assert (info.eos_id, info.pad_id) == (256, 100_300)
  assert names["batch"]["tokens"].sharding == names["rows"]


@around("edits.md")
def around_edits(names, found):
  shutil.rmtree("data/web")
  train = "chomp-train --config=packed --workdir=runs/x"
  pages.run_line(f"{train} --config.train.num_steps=3")
  place = pathlib.Path("runs/packed/checkpoints/150/input")
  place.mkdir(parents=True)
  config = files.load_config("packed")
  with chomp_data.make_iterator(config.data, step=150) as batches:
    (place / "input.json").write_bytes(batches.get_state())
  yield
  trained, simulated = found.values()
  said = "config.data.batch_size_schedule = ((0, 8), (3, 64))"
  assert said in trained.stderr
  assert "'stdlib'" not in simulated.stderr  # It does not begin anew.
  assert simulated.returncode == 0


@around("formats.md")
def around_formats(names, found):
  # Levanter is not here; what stands in takes any arguments.
  fields = dict.fromkeys(("tokens", "loss_weight", "segment_ids"))
  names |= {name: mock.MagicMock() for name in ("GrugAttentionMask", "hax")}
  names |= {"GrugLmExample": dict, "Pos": None, "batch": fields, "row": fields}
  names["LmExample"] = types.SimpleNamespace(causal=dict)
  yield


@around("on_call.md")
def around_on_call(names, found):
  split = "chomp-stores split data/stdlib --output=data/rest"
  pages.run_line(f"{split} --held_out=data/held --fraction=0.1")
  yield
  assert pathlib.Path("batch.npz").exists()
  page = pages.text("on_call.md")
  with open("runs/metrics/curves.jsonl") as file:
    shown = json.loads(file.readlines()[-1])
  for name in shown.keys() - {"step"}:
    assert f"`{name.replace('stdlib', 'SOURCE')}`" in page, name
  for family in names["metrics"].collect():
    assert family.name.removeprefix("chomp_data_") in page, family.name


@around("pairs.md")
def around_pairs(names, found):
  like = testing_stores.make_store("like_pairs", [[3]], bos_id=2)
  names["tokenizer_info"] = like.opened.tokenizer
  yield
  (trained,) = (
    done for line, done in found.items()
    if "dpo.py" in line and "config=" in line
  )  # fmt: skip
  assert "step 6: loss 0." in trained.stdout


@around("object_stores.md")
def around_object_stores(names, found):
  own = {"text": "some text " * 99}
  lines = [json.dumps({**own, "id": f"{i}"}) for i in range(9)]
  texts = opening.open_storage(names["change"]("s3://bucket/texts"))
  texts.put("0.jsonl", "\n".join(lines).encode())
  data = ml_collections.ConfigDict({"seq_len": 64, "global_batch_size": 4})
  names["config"] = types.SimpleNamespace(data=data)
  yield
  shuffle = dict(data.sources["text"]["shuffle"])
  assert shuffle == {"kind": "block", "lanes": 16}
  for own in ({"kind": "block"}, shuffle):
    # All of the corpus is in one chunk.
    data.sources["text"]["shuffle"] = {**own, "io_block_size": 1}
    pipe = pipeline.build(data)
    assert pipe.canonical(0)["tokens"].shape == (4, 64)
  assert list(pathlib.Path("chunks").iterdir())


@around("splice.md")
def around_splice(names, found):
  ids = ["a.txt", "b.txt", "c.py", "d.md"]
  testing_stores.make_store("data/law", [range(3, 60)] * 4, ids=ids)
  data = ml_collections.ConfigDict(
    {
      "seq_len": 32,
      "global_batch_size": 4,
      "sources": {
        "law": {
          "store": "data/law",
          "rows": {"kind": "multi_splice", "num_docs": 4},
        }
      },
    }
  )
  names["rows"] = data.sources.law.rows
  with data.unlocked():
    yield
    rows = names["rows"]
    chosen = {name: rows[name] for name in ("doc_key", "doc_meta")}
    del rows.doc_key, rows.doc_meta
    assert pipeline.build(data).batch(0)["tokens"].shape == (4, 32)
    own = {"kind": "multi_splice", "num_docs": 8, **chosen}
    data.sources.law = {"store": "data/fields", "rows": own}
    assert len(pipeline.build(data).sources["law"].documents) == 8
    own = {"kind": "multi_splice", "num_docs": 8, "group_by_meta": True}
    data.sources.law = {"store": "data/x", "rows": own}
    assert pipeline.build(data).batch(0)["tokens"].shape == (4, 32)


@around("start.md")
def around_start(names, found):
  yield
  assert names["batch"]["tokens"].shape == (8, 512)
  assert names["losses"][-1] < names["losses"][0]


@pytest.fixture(scope="module")
def named(tmp_path_factory, stdlib_store):
  root = tmp_path_factory.mktemp("pages")
  inputs.write(root, stdlib_store)
  return root


@pytest.fixture
def change(named, tmp_path, monkeypatch, request):
  """Runs in a directory of its own; gives how a block changes there."""
  shutil.copytree(named, tmp_path, symlinks=True, dirs_exist_ok=True)
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.syspath_prepend(str(tmp_path))

  def changed(text):
    if "import torch\n" in text and not _HAS_TORCH:
      return ""
    if "s3://bucket" in text:
      root = request.getfixturevalue("s3_bucket").root
      text = text.replace("s3://bucket", root)
    return text.replace("/tmp/", f"{tmp_path}/")

  return changed


@contextlib.contextmanager
def _nothing(names, found):
  yield


def _skipped(page):
  begins = tuple(begin for own, begin, _ in _NOT_RUN if own in (page, None))
  return lambda line: line.startswith(begins)


@pytest.mark.parametrize(
  "page",
  [
    pytest.param(page, marks=[pytest.mark.slow] * (page in _SLOW))
    for page in pages.NAMES
    if page not in _PROGRAMS
    if pages.blocks(page, "sh", "python") or pages.captions(page)
  ],
)
def test_every_block_of_a_page_runs(page, change):
  names: dict[str, Any] = {"change": change}
  found: dict[str, Any] = {}
  with _AROUND.get(page, _nothing)(names, found):
    pages.run(page, names, found, change, _skipped(page))
  for line in pages.captions(page):
    pages.run_line(line)


def _help(name):
  """Returns what a tool tells of its flags; of a benchmark what it defines."""
  if name.startswith("benchmarks/"):
    own = (pages.ROOT / name).read_text()
    own += (pages.ROOT / "benchmarks" / "harness.py").read_text()
    flags = re.findall(r'DEFINE_(\w+)\(\s*"(\w+)"', own)
    return " ".join(
      f"--[no]{name}" if kind.startswith("bool") else f"--{name}"
      for kind, name in flags
    )
  return in_process.run_tool(name, "--help").stdout


def _has(help_text, flag):
  flag = flag.removeprefix("no") if f"--[no]{flag[2:]}" in help_text else flag
  return re.search(rf"--(\[no\])?{flag}\b", help_text)


@pytest.mark.parametrize(
  ("page", "begin"), [own[:2] for own in _NOT_RUN], ids=str
)
def test_what_is_not_run_is_on_its_page_and_its_flags_are_there(page, begin):
  found = [
    line
    for own in (pages.NAMES if page is None else [page])
    for block in pages.blocks(own, "sh")
    for line in pages.lines(block.text)
    if line.startswith(begin)
  ]
  assert found
  targets = re.findall(
    r"^([a-z-]+):", (pages.ROOT / "Makefile").read_text(), re.MULTILINE
  )
  for line in found:
    if begin == "make ":
      assert set(line.split()[1:]) <= set(targets)
    elif own := pages.tool(line):
      for flag in re.findall(r" --([\w-]+)", line.partition(" -- ")[0]):
        flag = flag.replace("-", "_")  # As absl reads it.
        assert _has(_help(own[0]), flag), (line, flag)


def test_every_block_says_its_language_and_no_command_is_outside_of_one():
  for page in (*pages.NAMES, "api.md", "options.md"):
    for block in pages.blocks(page):
      assert block.language in _LANGUAGES, (page, block)
      if block.language == "json":
        json.loads(block.text)
    assert not re.search(
      r"```|^    (chomp-|python |make |pip )", pages.prose(page), re.MULTILINE
    ), page


def test_flags_in_sentences_are_those_of_some_tool():
  tools = [own.stem for own in (pages.ROOT / "tools").glob("*.py")]
  tools += [f"examples/{own}.py" for own in ("dpo", "sft", "train_buckets")]
  tools += [
    f"benchmarks/{own.name}" for own in pages.ROOT.glob("benchmarks/*.py")
  ]
  known = " ".join(map(_help, tools))
  for name in store_commands.COMMANDS:
    known += in_process.run_tool("stores", name, "--help").stdout
  for page in pages.NAMES:
    for code in re.findall(r"`([^`]+)`", pages.prose(page)):
      for flag in re.findall(r"(?<!\S)--([\w-]+)", code):
        if not code.startswith("pip ") and flag not in _MEGATRON:
          assert _has(known, flag), (page, code)
