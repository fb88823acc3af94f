# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packed preference pairs: padding, time and memory, beside padded pairs.

    python benchmarks/pairs.py

Halves have lognormal lengths (median 400, sigma 0.8), alone and after shared
prompts (median 300). Packing reads no token, so counts are the same on any
machine. Batches, and steps of the model of examples/dpo.py, are timed in turn
with those of padded pairs: two rows a pair, as long as the longest of a batch
(reading) or as the longest that is accepted (steps, which have one shape).

Three minutes on two CPU cores.
"""

from collections.abc import Callable
from collections.abc import Iterator
import itertools
import pathlib
import resource
import statistics
import sys
import time
from typing import Any

import corpora
from flax import nnx
import harness
import jax
import jax.numpy as jnp
import numpy as np

import chomp_data
from chomp_data import stores

sys.path.append(str(pathlib.Path(__file__).parents[1] / "examples"))
import dpo

_SEQ_LEN = 4_096  # tokens
_DOCUMENTS = 1_000_000
# Of a step: the model is small, and all lengths are a quarter, for a CPU.
_STEP_SEQ_LEN, _STEP_LONGEST, _VOCAB = 1_024, 512, 1_000
_REPEATS = 5


def packed(directory: str, num_documents: int, prompts: bool) -> list[Any]:
  """Packs an epoch in this process; returns the cells of a line."""
  store = corpora.PairLengthsStore(
    pathlib.Path(directory, f"pairs-{num_documents}-{prompts}"),
    num_documents // 2,
    prompts,
  )
  before = harness.resident()
  began = time.perf_counter()
  rows = chomp_data.BinSource(store, chomp_data.BinOptions(), seq_len=_SEQ_LEN)
  packing_s = time.perf_counter() - began
  began = time.perf_counter()
  plan = rows.plan(np.arange(len(rows)))
  planning_us = 1e6 * (time.perf_counter() - began) / (len(plan) // 2)
  report = rows.report()
  chosen = plan.document[::2]
  assert len(np.unique(chosen)) == len(chosen) == len(plan) // 2
  assert len(chosen) == report.documents - report.dropped
  most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
  return [
    "shared" if prompts else "none",
    f"{num_documents:,}",
    f"{report.padding:.3%}",
    f"{report.dropped:,}",
    f"{len(chosen) / len(rows):.2f}",
    f"{packing_s:.2f}",
    f"{planning_us:.2f}",
    f"{(most - before) / 2**20:.0f}",
  ]


def packing(directory: str, small: bool) -> harness.Table:
  """Returns padding, time and memory of packing, each in a fresh process."""
  lines = [
    [
      "prompts", "documents", "padding", "pairs dropped", "pairs a row",
      "packing s", "planning us a pair", "memory MiB, with the whole plan",
    ]
  ]  # fmt: skip
  documents = 20_000 if small else _DOCUMENTS
  for prompts in (False, True):
    lines.append(harness.probed(directory, documents, prompts))
  return f"Pairs in rows of {_SEQ_LEN:,}, ffd, windows of 5,120 pairs", lines


def make_store(path: pathlib.Path, num_pairs: int, longest: int) -> Any:
  """Writes pairs of random tokens, with halves up to a length.

  Lengths shrink with the longest, which is 2,048 for a median of 400.
  """
  rng = np.random.default_rng(1)
  sizes = corpora.pair_lengths(rng, num_pairs, False) * longest // 2_048
  sizes = np.clip(sizes, 1, longest)
  return stores.write_store(
    path,
    (rng.integers(3, _VOCAB, size=n) for n in sizes),
    tokenizer_info=corpora.TOKENIZER,
    pairs=True,
  )


def padded_batches(
  store: Any, num_pairs: int, length: int | None = None
) -> Iterator[dict[str, np.ndarray]]:
  """Yields batches of padded pairs, [2 N, L] each, in random order.

  Args:
    store: Of the pairs.
    num_pairs: N.
    length: L; None is the longest half of each batch.
  """
  rng = np.random.default_rng(0)
  while True:
    order = rng.permutation(store.num_documents // 2)
    for at in range(0, len(order) - num_pairs + 1, num_pairs):
      pairs = order[at : at + num_pairs]
      documents = np.stack([2 * pairs, 2 * pairs + 1], axis=1).reshape(-1)
      first, sizes = store.bounds(documents)
      width = int(sizes.max()) if length is None else length
      tokens = np.zeros((len(documents), width), np.int32)
      starts = np.arange(len(documents)) * width
      store.copy_tokens(first, sizes, tokens.reshape(-1), starts)
      columns = np.arange(width, dtype=np.int32)
      is_token = columns < sizes[:, None]
      yield {
        "tokens": tokens,
        "segment_ids": is_token.astype(np.int32),
        "positions": np.broadcast_to(columns, tokens.shape),
        "loss_mask": columns + 1 < sizes[:, None],
      }


def _packed_data(store: Any, seq_len: int, rows: int) -> dict[str, Any]:
  return {
    "seq_len": seq_len,
    "global_batch_size": rows,
    "sources": {
      "pairs": {
        "store": store.path,
        "rows": {"kind": "bin", "pair_slots": 32},
        "shuffle": {"kind": "block"},
      }
    },
  }


def _alternately(
  calls: dict[str, Callable[[], int]],
) -> dict[str, tuple[list[float], list[float]]]:
  """Returns seconds, and CPU seconds, by pair of calls that return pairs."""
  times: dict[str, tuple[list[float], list[float]]] = {
    name: ([], []) for name in calls
  }
  for repeat in range(_REPEATS + 1):
    for name, call in calls.items():
      began, cpu = time.perf_counter(), time.process_time()
      pairs = call()
      if repeat:  # The first one compiles and fills caches.
        times[name][0].append((time.perf_counter() - began) / pairs)
        times[name][1].append((time.process_time() - cpu) / pairs)
  return times


def reading(directory: str, small: bool) -> harness.Table:
  """Returns the time and the positions of a pair in batches on the host."""
  num_pairs = 2_000 if small else 20_000
  store = make_store(pathlib.Path(directory, "read"), num_pairs, 2_048)
  pipe = chomp_data.build(_packed_data(store, _SEQ_LEN, 8))
  loader = iter(pipe.data_loader())
  wide = padded_batches(store, 32)
  steps = 10 if small else 100
  positions = {"packed": [0, 0], "padded": [0, 0]}

  def read_packed() -> int:
    pairs = 0
    for batch in itertools.islice(loader, steps):
      pairs += int(batch["pair_mask"].sum())
      positions["packed"][0] += batch["tokens"].size
    positions["packed"][1] += pairs
    return pairs

  def read_padded() -> int:
    for batch in itertools.islice(wide, steps):
      positions["padded"][0] += batch["tokens"].size
    positions["padded"][1] += 32 * steps
    return 32 * steps

  times = _alternately({"packed": read_packed, "padded": read_padded})
  lines = [["batches", "us a pair", "CPU us a pair", "positions a pair"]]
  for name, (wall, cpu) in times.items():
    total, pairs = positions[name]
    lines.append(
      [
        f"{name} {'[8, 4096]' if name == 'packed' else '[64, longest]'}",
        f"{1e6 * statistics.median(wall):.1f}",
        f"{1e6 * statistics.median(cpu):.1f}",
        f"{total / pairs:,.0f}",
      ]
    )
  return "Batches on the host, medians of five turns", lines


def training(directory: str, small: bool) -> harness.Table:
  """Returns the time of a pair in steps of DPO, packed and padded."""
  store = make_store(pathlib.Path(directory, "train"), 2_000, _STEP_LONGEST)
  seq_len = _STEP_SEQ_LEN
  pipe = chomp_data.build(_packed_data(store, seq_len, 4))
  loader = iter(pipe.data_loader())
  # As many positions in both.
  num_pairs = 4 * seq_len // (2 * _STEP_LONGEST)
  wide = padded_batches(store, num_pairs, _STEP_LONGEST)
  model = dpo.Model(_VOCAB, seq_len, nnx.Rngs(0))

  @nnx.jit
  def packed_step(model, batch):
    def loss_of(model):
      after = dpo.answer_log_probs(dpo.logits_of(model, batch), batch)
      return dpo.dpo_loss(after, 0 * after, batch["pair_mask"], 0.1)[0]

    return nnx.value_and_grad(loss_of)(model)

  @nnx.jit
  def padded_step(model, batch):
    def loss_of(model):
      after = dpo.token_log_probs(dpo.logits_of(model, batch), batch)
      after = after.sum(axis=1).reshape(-1, 2)
      return -jax.nn.log_sigmoid(
        0.1 * (after @ jnp.asarray([1.0, -1.0]))
      ).mean()

    return nnx.value_and_grad(loss_of)(model)

  steps = 1 if small else 4

  def train_packed() -> int:
    pairs = 0
    for batch in itertools.islice(loader, steps):
      jax.block_until_ready(packed_step(model, batch)[0])
      pairs += int(batch["pair_mask"].sum())
    return pairs

  def train_padded() -> int:
    for batch in itertools.islice(wide, steps):
      jax.block_until_ready(padded_step(model, batch)[0])
    return num_pairs * steps

  times = _alternately({"packed": train_packed, "padded": train_padded})
  lines = [["batches", "ms a pair"]]
  for name, (wall, _) in times.items():
    shape = f"[4, {seq_len}]"
    if name == "padded":
      shape = f"[{2 * num_pairs}, {_STEP_LONGEST}]"
    lines.append([f"{name} {shape}", f"{1e3 * statistics.median(wall):.1f}"])
  return (
    "Loss and gradient of a small model, all lengths a quarter, medians",
    lines,
  )


if __name__ == "__main__":
  harness.run(
    {
      name: lambda directory, part=part: part(
        str(directory), harness.SMALL.value
      )
      for name, part in (
        ("packing", packing), ("reading", reading), ("training", training),
      )
    },
    packed,
  )  # fmt: skip
