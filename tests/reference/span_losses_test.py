# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Losses by span: sums, files between checkpoints, documents that stand out."""

import numpy as np
import pytest

import chomp_data
from chomp_data import errors
from chomp_data.reference import span_losses
from chomp_data.rows import spans as spans_lib
from chomp_data.storage import opening
from chomp_data.testing import stores as testing_stores

_SEQ_LEN = 16


@pytest.fixture(name="pipe")
def fixture_pipe(tmp_path):
  """Packed rows of two sources, six documents each."""
  rng = np.random.default_rng(0)
  paths = {}
  for name in ("a", "b"):
    paths[name] = tmp_path / name
    testing_stores.make_store(
      paths[name],
      [rng.integers(3, 60, size=n) for n in (5, 30, 8, 11, 7, 20)],
      vocab_size=64,
    )
  return chomp_data.build(
    {
      "seq_len": _SEQ_LEN,
      "global_batch_size": 3,
      "sources": {
        name: {
          "store": str(path),
          "rows": {"kind": "bin", "packing_buffer_docs": 3},
          "shuffle": {"kind": "full"},
        }
        for name, path in paths.items()
      },
      "mix": {"kind": "token_balanced"},
    }
  )


def metrics_of(pipe, step: int, rng, lost=None) -> dict[str, np.ndarray]:
  """Returns what a trainer hands over, with losses of `lost` by document."""
  batch = pipe.canonical(step)
  nll = rng.random(batch["tokens"].shape).astype(np.float32)
  if lost is not None:
    for source, document, row, column, length in zip(
      *of(pipe.plan(step)), strict=True
    ):
      nll[row, column : column + length] = lost(step, source, document)
  mask = batch["loss_mask"]
  return {"token_nll": np.where(mask, nll, 0), "token_mask": mask}


def add(writer, pipe, step, metrics):
  writer.add(span_losses.of_step(pipe, step, metrics)[1])


def of(spans: spans_lib.Spans):
  return (
    own.tolist()
    for own in (
      spans.source, spans.document, spans.row, spans.column, spans.length
    )
  )  # fmt: skip


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_are_those_of_each_span(pipe, weighted):
  rng = np.random.default_rng(1)
  metrics = metrics_of(pipe, 4, rng)
  nll, mask = metrics["token_nll"], metrics["token_mask"]
  weight = rng.random(nll.shape) * mask if weighted else None
  spans = pipe.plan(4)
  found = span_losses.by_span(spans, nll, mask, weight)
  whole = np.where(mask, 1.0, 0.0) if weight is None else weight
  for i, (_, _, row, column, length) in enumerate(zip(*of(spans), strict=True)):
    cut = (row, slice(column, column + length))
    assert found.nll[i] == pytest.approx(nll[cut].sum(), abs=1e-6)
    assert found.tokens[i] == mask[cut].sum()
    assert found.weight[i] == pytest.approx(whole[cut].sum(), abs=1e-6)
  assert found.tokens.sum() == mask.sum()


def test_a_resumed_run_has_the_files_of_an_unbroken_one(pipe, tmp_path):
  def run(workdir, flushes, kill=None):
    writer = span_losses.Writer(pipe, workdir, writes=True)
    saved = 0
    step = 0
    while step < 12:
      if step == kill:
        # What was not at a checkpoint is done again.
        kill, step = None, saved
        writer = span_losses.Writer(pipe, workdir, writes=True)
        writer.begin(saved)
      add(
        writer, pipe, step, metrics_of(pipe, step, np.random.default_rng(step))
      )
      step += 1
      if step in flushes:
        writer.flush()
        # The checkpoint itself is there only a little later.
        saved = step if step != 8 else saved
    return [
      (own.step, own.loss, own.tokens)
      for own in span_losses.read(pipe, workdir, 2, 11)
    ]

  whole = run(opening.open_storage(tmp_path / "whole"), (4, 8, 12))
  resumed = run(opening.open_storage(tmp_path / "resumed"), (4, 8, 12), kill=9)
  assert len(whole) == len(resumed) == 3
  for one, other in zip(whole, resumed, strict=True):
    for mine, yours in zip(one, other, strict=True):
      np.testing.assert_array_equal(mine, yours)


def test_steps_that_were_not_written_are_named(pipe, tmp_path):
  workdir = opening.open_storage(tmp_path / "run")
  with pytest.raises(errors.StateError, match=r"none of step 0.*span_losses"):
    list(span_losses.read(pipe, workdir, 0, 1))
  writer = span_losses.Writer(pipe, workdir, writes=True)
  add(writer, pipe, 0, metrics_of(pipe, 0, np.random.default_rng(0)))
  writer.flush()
  assert span_losses.steps_written(workdir) == (0, 1)
  with pytest.raises(errors.StateError, match=r"steps 0 \.\. 1.*of step 1"):
    list(span_losses.read(pipe, workdir, 0, 2))
  (file,) = (tmp_path / "run" / span_losses.DIRECTORY).iterdir()
  file.write_bytes(b"no zip file")
  with pytest.raises(errors.StateError, match=r"cannot be read"):
    list(span_losses.read(pipe, workdir, 0, 1))


def test_8_bytes_a_span(pipe, tmp_path):
  workdir = opening.open_storage(tmp_path / "run")
  writer = span_losses.Writer(pipe, workdir, writes=True)
  for step in range(100):
    add(writer, pipe, step, metrics_of(pipe, step, np.random.default_rng(step)))
  writer.flush()
  (file,) = (tmp_path / "run" / span_losses.DIRECTORY).iterdir()
  spans = len(pipe.plan(0, 100))
  # 4 bytes a step beside them, and the file's own head.
  assert file.stat().st_size <= 8 * spans + 4 * 100 + 1_000


def test_a_document_that_gets_worse_comes_first(pipe, tmp_path):
  """Losses fall as the run goes on; one document's rise at the end."""
  workdir = opening.open_storage(tmp_path / "run")
  writer = span_losses.Writer(pipe, workdir, writes=True)
  steps = 160

  def lost(step, source, document):
    usual = 5 - 4 * step / steps + source + 0.1 * document
    spike = step >= 150 and (source, document) == (1, 3)
    return usual + (2 if spike else 0)

  rng = np.random.default_rng(0)
  for step in range(steps):
    add(writer, pipe, step, metrics_of(pipe, step, rng, lost))
  writer.flush()
  found = span_losses.documents(pipe, workdir, 150, 160)
  first, *others = found
  assert (first["source"], first["document"]) == ("b", 3)
  assert first["excess"] > 1
  assert max(own["excess"] for own in others) < 0.5
  # Against brute force: rows and steps of that document before.
  visits = [
    step
    for step in range(150)
    for source, document, *_ in zip(*of(pipe.plan(step)), strict=True)
    if (source, document) == (1, 3)
  ]
  assert first["spans_before"] == len(visits)
  assert first["last_before"] == visits[-1]
  expected = np.mean([lost(step, 1, 3) for step in visits])
  assert first["loss_before"] == pytest.approx(expected, rel=1e-5)


def test_one_step_is_compared_with_the_steps_around(pipe, tmp_path):
  """A source's only document of a step is not its own mean."""
  workdir = opening.open_storage(tmp_path / "run")
  writer = span_losses.Writer(pipe, workdir, writes=True)
  spike, rng = 40, np.random.default_rng(0)
  for step in range(70):
    lost = (lambda *_: 3.0) if step == spike else (lambda *_: 1.0)
    add(writer, pipe, step, metrics_of(pipe, step, rng, lost))
    if step % 16 == 0:
      writer.flush()
  writer.flush()
  found = span_losses.documents(pipe, workdir, spike, spike + 1)
  assert found
  for own in found:
    assert own["loss"] == pytest.approx(3)
    # The mean of 64 steps, of which one has the spike.
    assert own["relative"] == pytest.approx(2, abs=0.2)
    wider = span_losses.documents(pipe, workdir, spike - 3, spike + 20)
    (same,) = (
      other
      for other in wider
      if (other["source"], other["document"])
      == (own["source"], own["document"])
    )
    assert same["relative"] <= own["relative"]
