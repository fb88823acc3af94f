# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The catalogue of runs that every law is checked on.

One config for each row kind, shuffle, mix policy, stage, bucket, label, edit,
phase and kind of store. They are cases of tests/golden, so a law that fails
here and golden batches that changed speak of the same runs. To add a kind of
run, add a golden case and its name to `NAMES`.
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

NAMES = (
  # Row kinds, with the shuffles of rows and of documents.
  "sequential",
  "sequential_block",
  "sequential_block_narrowed",
  "sequential_era",
  "sequential_linear",
  "sequential_documents_full",
  "sequential_documents_block",
  "sequential_stored_ends",
  "bin_ffd",
  "bin_ffd_block",
  "bin_ffd_documents_full",
  "bin_ffd_documents_block",
  "bin_exact",
  "bin_exact_documents_full",
  "bin_fim",
  "bin_fim_stored_ends",
  "splice_slide_grid",
  "splice_cyclic_roll",
  "splice_jitter_low_discrepancy",
  "multi_temperature",
  "multi_coverage",
  "multi_enumerate",
  "multi_groups",
  "multi_ramp",
  "windows_block",
  # Mixes: policies, units, stages, sources of a command line.
  "mix_tokens",
  "mix_weighted",
  "mix_loss_tokens",
  "mix_fim",
  "mix_stages",
  "mix_first_exhausted",
  "mix_all_exhausted",
  "mix_without_replacement",
  "mix_in_line",
  "mix_resumed",
  # Buckets of lengths and of sizes.
  "lengths_least_waste",
  "lengths_powers_of_two",
  "lengths_weighted",
  "lengths_of_one",
  "sizes",
  "sizes_stages",
  # Edits, stores that join, a phase after another, labels, balance, lanes.
  "edits",
  "edits_of_mix",
  "edits_of_lengths",
  "joined",
  "several_stores",
  "after_a_phase",
  "weighed",
  "balanced",
  "lanes",
  # Targets at several depths, layouts of columns, fields beside a format's.
  "targets",
  "targets_of_mix",
  "targets_of_lengths",
  "mix_kept_fields",
  # Columns per token, aligned to targets, and per document.
  "columns",
  # Preference pairs.
  "pairs",
  "pairs_of_mix",
  # Simulated epochs.
  "simulated",
  "simulated_of_mix",
  "simulated_of_lengths",
  # Files under configs/.
  "config_packed_runlocal",
  "config_pretrain_mix_runlocal",
  "config_splice_multi_runlocal",
  # Kinds of store: ours, ArrayRecord, Megatron, Levanter.
  "records_bin",
  "records_sequential",
  "megatron",
  "levanter",
  # A user's Grain source.
  "source_bin",
  "source_sequential",
  "multi_of_source",
)  # fmt: skip

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
