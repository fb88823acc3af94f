# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A tokenizer trained on the inputs, and one tokenizer from begin to end."""

import dataclasses
import json
import os
import shutil

import pytest

from chomp_data import errors
from chomp_data.prepare import engines
from chomp_data.prepare import parts
from chomp_data.prepare import run
from chomp_data.prepare import run_tokenizer
from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import training
from chomp_data.stores import base as store_base

BPE = run_tokenizer.TrainOptions("bpe", 300)


@pytest.fixture
def lines(tmp_path):
  """Some hundred documents."""
  path = tmp_path / "lines.jsonl"
  words = ["the cat", "a hat", "le chat était là", "sat on the mat"]
  path.write_text(
    "".join(
      json.dumps({"text": f"{words[i % 4]} {i} {words[i % 3]}"}) + "\n"
      for i in range(200)
    )
  )
  return path


class Killed(BaseException):
  pass


def interrupt(monkeypatch, done):
  """Ends a run after some parts, as a kill does."""
  real = engines.Pool.run

  def run(self, function, tasks, *tell):
    if function is not parts.part_of:
      yield from real(self, function, tasks, *tell)
      return
    for number, result in real(self, function, tasks, *tell):
      if number >= done:
        raise Killed
      yield number, result

  monkeypatch.setattr(engines.Pool, "run", run)


def test_a_tokenizer_is_trained_on_the_inputs(lines, prepare):
  store, written = prepare(lines, train=BPE)
  assert written
  info = store.opened.tokenizer
  assert (info.kind, info.vocab_size) == ("huggingface", 300)
  assert (info.pad_id, info.eos_id, info.bos_id) == (0, 1, 2)
  loaded = tokenizers.load_tokenizer(store)
  text = loaded.decode(store_base.read_document(store, 2))
  assert text == "le chat était là 2 le chat était là"
  assert len(store_base.read_document(store, 2)) < len(text.encode())
  text = "never seen: 日本語 🎉\x00\t"
  assert loaded.decode(loaded.encode_batch([text]).tokens) == text
  _, written = prepare(lines, train=BPE)
  assert not written


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.slow
def test_the_same_inputs_give_the_same_tokenizer(
  lines, prepare, workers, monkeypatch
):
  first, _ = prepare(lines, train=BPE, output="first")
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
  other, _ = prepare(lines, train=BPE, output="other", workers=workers)
  assert other.hash == first.hash
  assert store_base.tokenizer_file(other) == store_base.tokenizer_file(first)


def test_training_tells_how_far_it_is(lines, tmp_path, monkeypatch):
  monkeypatch.setattr(run_tokenizer, "PROGRESS_BYTES", 1_000)
  told = []
  options = run.Options((str(lines),), str(tmp_path / "out"), train=BPE)
  run.prepare(options, told.append)
  stages = [own.stage for own in told]
  assert list(dict.fromkeys(stages))[:2] == ["plan", "train"]
  training = [own for own in told if own.stage == "train"]
  done = [own.done_bytes for own in training]
  assert done == sorted(done)
  assert len(set(done)) > 3
  assert (done[0], done[-1]) == (0, lines.stat().st_size)
  assert training[-1].documents == 200


def test_a_run_that_goes_on_trains_no_more(
  lines, prepare, tmp_path, monkeypatch
):
  whole, _ = prepare(lines, train=BPE, output="whole", shard_bytes=1_000)
  calls = []
  real = training.train_bpe
  monkeypatch.setattr(
    training, "train_bpe", lambda *own: calls.append(1) or real(*own)
  )
  with monkeypatch.context() as patch:
    interrupt(patch, 2)
    with pytest.raises(Killed):
      prepare(lines, train=BPE, shard_bytes=1_000)
  assert len(calls) == 1
  store, _ = prepare(lines, train=BPE, shard_bytes=1_000)
  assert len(calls) == 1
  assert store.hash == whole.hash
  assert not (tmp_path / "out.partial").exists()


def test_other_inputs_are_trained_on_anew(
  lines, prepare, tmp_path, monkeypatch
):
  with monkeypatch.context() as patch:
    interrupt(patch, 1)
    with pytest.raises(Killed):
      prepare(lines, train=BPE, shard_bytes=1_000)
  lines.write_text(lines.read_text() + '{"text": "zzz zzz zzz zzz"}\n')
  store, _ = prepare(lines, train=BPE, shard_bytes=1_000)
  fresh, _ = prepare(lines, train=BPE, shard_bytes=1_000, output="fresh")
  assert store.hash == fresh.hash


def test_of_many_bytes_evenly_spaced_pieces_are_read(lines, prepare):
  some = dataclasses.replace(BPE, train_bytes=2_000)
  all_of_it, _ = prepare(lines, train=BPE, output="all", shard_bytes=500)
  part, _ = prepare(lines, train=some, output="some", shard_bytes=500)
  assert store_base.tokenizer_file(part) != store_base.tokenizer_file(all_of_it)
  again, _ = prepare(lines, train=some, output="again", shard_bytes=500)
  assert again.hash == part.hash


@pytest.mark.parametrize("overwrite", [False, True])
def test_a_tokenizer_that_changes_under_a_store_is_an_error(
  lines, prepare, tmp_path, monkeypatch, overwrite
):
  store, _ = prepare(lines, train=BPE, output="first")
  file = tmp_path / "tokenizer.json"
  shutil.copy(os.path.join(store.path, "tokenizer.json"), file)
  spec = tokenizers.TokenizerSpec(str(file))
  with monkeypatch.context() as patch:
    interrupt(patch, 2)
    with pytest.raises(Killed):
      prepare(lines, tokenizer=spec, shard_bytes=1_000)
  file.write_bytes(file.read_bytes() + b"\n")
  with pytest.raises(
    errors.PrepareError, match=r"begun.*tokenizer\.json.*out\.partial"
  ):
    prepare(lines, tokenizer=spec, shard_bytes=1_000)
  if overwrite:
    with monkeypatch.context() as patch:
      interrupt(patch, 2)
      with pytest.raises(Killed):
        prepare(lines, tokenizer=spec, shard_bytes=1_000, overwrite=True)
  else:
    shutil.rmtree(tmp_path / "out.partial")
  # It is begun anew, and goes on as any other.
  store, _ = prepare(lines, tokenizer=spec, shard_bytes=1_000)
  assert store_base.tokenizer_file(store) == file.read_bytes()
