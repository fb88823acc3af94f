# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The catalogue of runs that every law is checked on.

One config for each row kind, shuffle, mix policy, stage, bucket, label, edit,
phase and kind of store. They are cases of tests/golden, so a law that fails
here and golden batches that changed speak of the same runs. To add a kind of
run, add a golden case.
"""

from collections.abc import Iterable
import copy
import functools
import pathlib
from typing import Any

import numpy as np
import pytest

import chomp_data
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

# Cases that others stand for, or whose laws take minutes.
_LEFT_OUT = (
  "splice_anchor_start",
  "splice_slide_tight",
  "splice_slide_frame",
  "splice_jitter_uniform",
  "splice_mode_slide",
  "multi_by_document",
  "multi_groups_by_meta",
  "multi_restricted",
  "windows",
  "sequential_block_of_chunks",
  "sequential_documents_full_once",
  "bin_ffd_documents_block_once",
  "bin_exact_block",
  "records_splice",
  "mix_weighted_rows",
  "mix_first_exhausted_after_epochs",
  "mix_all_exhausted_within_epochs",
  "mix_drop",
  "mix_in_line_of_declared",
  "mix_of_own_seeds",
  "mix_of_one",
  "lengths_in_line",
  "lengths_first_exhausted",
  "sizes_dropped",
  "many_sequential",
  "many_sequential_in_order",
  "many_exact",
  "many_lengths",
  "config_block_shuffle_full_runlocal",
  "config_block_shuffle_era_runlocal",
  "config_block_shuffle_block_k8_runlocal",
  "config_block_shuffle_block_k32_runlocal",
  "config_length_buckets_runlocal",
  "config_packed_none_runlocal",
  "config_packed_full_runlocal",
  "config_resolution_buckets_runlocal",
  "config_splice_in_mix_runlocal",
  "config_splice_single_runlocal",
  "edits_of_splices",
  "joined_of_mix",
)
NAMES = tuple(name for name in cases.CASES if name not in _LEFT_OUT)

# One of each row kind, shuffle, policy, bucket, edit, label and kind of store:
# `make test` checks most laws on these, and `make test-slow` on the others.
FEW = (
  "sequential_block",
  "sequential_documents_full",
  "bin_ffd_block",
  "bin_exact_documents_full",
  "bin_fim",
  "splice_cyclic_roll",
  "multi_groups",
  "windows_block",
  "mix_stages",
  "mix_loss_tokens",
  "mix_first_exhausted",
  "lengths_weighted",
  "sizes_stages",
  "edits_of_mix",
  "joined",
  "after_a_phase",
  "weighed",
  "lanes",
  "targets_of_mix",
  "columns",
  "pairs",
  "simulated_of_mix",
  "records_bin",
  "source_bin",
)


def marked(names: Iterable[str]) -> list[Any]:
  """Returns parameters of runs, of which only `FEW` are in `make test`."""
  return [
    own if own in FEW else pytest.param(own, marks=pytest.mark.slow)
    for own in names
  ]


# A second source of a corpus, in `mix_in_line`.
_SAME = {"again": "web"}

# Steps from the start that a law reads one after the other.
FIRST = 12


@functools.cache
def documents(store: str) -> tuple[np.ndarray, ...]:
  """Returns the tokens of each document, as the corpus was made."""
  return tuple(corpora.documents(store))


def data_of(name: str, root: pathlib.Path, **changes: Any) -> dict[str, Any]:
  """Returns `config.data` of a run with other values of some of its fields.

  Args:
    name: Of `NAMES`.
    root: The directory of the corpora.
    **changes: Top-level fields; None removes one.
  """
  data = {**cases.CASES[name].at(root), **changes}
  return {
    field: copy.deepcopy(value)
    for field, value in data.items()
    if value is not None or field in ("epochs", "global_batch_size")
  }


def documents_of(
  name: str, pipe: chomp_data.Pipeline
) -> list[list[np.ndarray]]:
  """Returns the documents of each source of a run, by the source's number.

  What a config names in `dataset_mix` alone has the name of its corpus.
  """
  sections = cases.CASES[name].data["sources"]
  found = []
  for source in pipe.source_names:
    store = sections.get(source, {}).get("store", _SAME.get(source, source))
    stores = [store] if isinstance(store, str) else store
    found.append([tokens for own in stores for tokens in documents(own)])
  return found


def steps_of(pipe: chomp_data.Pipeline) -> list[int]:
  """Returns the first steps of a run, and some far on, to its end if any."""
  return measuring.steps_of(pipe.num_steps, (55, 144))


def last_of(pipe: chomp_data.Pipeline, most: int = 2 * FIRST) -> int:
  """Returns how many steps are counted one by one."""
  return most if pipe.num_steps is None else min(most, pipe.num_steps)
