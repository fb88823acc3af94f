# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The configs whose batches are pinned: one list for the test and `make`.

A store is named by its corpus, in `dataset_mix` as `{name}`. Append a case for
what is new; what is known to be wrong does not belong here.
"""

import copy
import dataclasses
import importlib
import pathlib
from typing import Any

from tests.golden import corpora

# Where corpora lie, from the working directory.
ROOT = pathlib.Path("stores")

BLOCK = {"kind": "block", "window_blocks": 2}
ROW_BLOCK = {**BLOCK, "io_block_size": 4}
FULL = {"kind": "full"}
RECORD = {"token_dtype": "uint16", "vocab_size": 256, "pad_id": 0, "eos_id": 1}
PACKED_RECORD = {**RECORD, "token_dtype": "uint32"}


@dataclasses.dataclass(frozen=True)
class Case:
  """One config.

  Attributes:
    data: `config.data`.
    far: Steps looked at besides the first ones and, where the run ends, those
      around its middle and its end.
    states: Steps whose state is kept, and the batches after it.
    resumed: The step whose `resume_state` another run starts from, or None.
  """

  data: dict[str, Any]
  far: tuple[int, ...] = (55, 89, 144, 233, 377, 1_000, 100_003)
  states: tuple[int, ...] = ()
  resumed: int | None = None

  @property
  def large(self) -> bool:
    """Whether it is of a corpus that takes seconds to write."""
    return not stores_of(self.data) <= set(corpora.SMALL)

  def at(self, root: pathlib.Path) -> dict[str, Any]:
    """Returns `config.data` with corpora under a directory."""
    data = copy.deepcopy(self.data)
    for source in data["sources"].values():
      own = source["store"]
      if "from_source" in source:
        source["store"] = corpora.from_source(own, **source.pop("from_source"))
        continue
      source["store"] = (
        str(root / own)
        if isinstance(own, str)
        else tuple(str(root / one) for one in own)
      )
    if data.get("tombstones"):
      data["tombstones"] = tuple(
        (step, str(root / name)) for step, name in data["tombstones"]
      )
    if data.get("start_after"):
      data["start_after"] = str(root / data["start_after"])
    if data.get("dataset_mix"):
      paths = {name: str(root / name) for name in corpora.NAMES}
      data["dataset_mix"] = data["dataset_mix"].format(**paths)
    return data


def stores_of(data: dict[str, Any]) -> set[str]:
  """Returns the corpora of a config."""
  found = set()
  for own in data["sources"].values():
    store = own["store"]
    found |= {store} if isinstance(store, str) else {*store}
  # A corpus of Megatron is a file in its directory.
  return {name.partition("/")[0] for name in found}


def _source(store, kind, shuffle=None, of_source=None, **rows):
  return {
    "store": store,
    "rows": {"kind": kind, **rows},
    "shuffle": dict(shuffle or {}),
    **(of_source or {}),
  }


def _rows(store, kind, shuffle=None, run=None, of_source=None, **rows):
  """Returns `config.data` of one source alone."""
  return {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 3,
    "epochs": 2,
    "document_id": True,
    **(run or {}),
    "sources": {"text": _source(store, kind, shuffle, of_source, **rows)},
  }


def _splice(store="books", shuffle=FULL, run=None, **rows):
  return _rows(store, "splice", shuffle, run, **rows)


def _multi(store="books", shuffle=FULL, run=None, **rows):
  rows = {"num_docs": 5, "content_length": 16, **rows}
  return _rows(store, "multi_splice", shuffle, run, **rows)


_SPLICES = {
  "splice_anchor_start": Case(
    _splice(
      content_start_mode="anchor_start",
      content_length=20,
      doc_select_mode="longest",
      shuffle=None,
      run={"remainder": "pad"},
    )
  ),
  "splice_slide_tight": Case(
    _splice(
      content_start_mode="slide_within",
      content_length=24,
      offset_domain="tight",
      offset_stride=3,
    ),
    states=(0, 7, 100),
  ),
  "splice_slide_grid": Case(
    _splice(
      content_start_mode="slide_within",
      content_length=12,
      offset_domain="grid",
      content_stride=3,
      offset_stride=4,
      shuffle_content=True,
      shuffle_offsets=True,
      shuffle={"kind": "era", "era_length": 20},
    )
  ),
  "splice_slide_frame": Case(
    _splice(
      "web",
      content_start_mode="slide_within",
      doc_select_mode="random",
      min_doc_length=20,
      content_stride=2,
      offset_stride=5,
      shuffle_content=16,
      shuffle_offsets=4,
      content_seed=5,
      offset_seed=6,
      filler="eos",
      trailing_filler_in_segment=False,
      shuffle=None,
    )
  ),
  "splice_cyclic_roll": Case(
    _splice(
      content_start_mode="cyclic_roll",
      doc_index=2,
      content_stride=5,
      offset_stride=6,
      eos_before_document=True,
      min_copy_len=8,
      run={"train_on_eos": False},
    )
  ),
  "splice_jitter_uniform": Case(
    _splice(
      content_length=32,
      offset_jitter=3,
      alpha=1.0,
      epoch_length=50,
      run={"epochs": 3, "batch_format": "maxtext"},
    )
  ),
  "splice_jitter_low_discrepancy": Case(
    _splice(
      "labelled",
      doc_key="labelled/4",
      content_length=12,
      offset_jitter=4,
      jitter_mode="low_discrepancy",
      alpha=0.5,
      run={"epochs": None},
      shuffle={**ROW_BLOCK, "seed": 9},
    )
  ),
  "splice_mode_slide": Case(
    _splice("books", mode="slide", content_stride=7, shuffle=None)
  ),
  "multi_temperature": Case(
    _multi(
      alpha=0.8,
      balance_tau=0.7,
      offset_jitter=2,
      epoch_length=90,
      run={"epochs": None},
    ),
    states=(0, 3, 30),
  ),
  "multi_coverage": Case(
    _multi(
      "web",
      balance_mode="by_coverage",
      doc_select_mode="first",
      min_doc_length=10,
      max_doc_length=90,
      adaptive_k=False,
      shuffle=ROW_BLOCK,
      run={"batch_format": "chomp"},
    )
  ),
  "multi_by_document": Case(
    _multi("web", balance_mode="by_document", adaptive_k=False, num_docs=4)
  ),
  "multi_enumerate": Case(
    _multi(
      "web",
      balance_mode="enumerate",
      content_start_mode="slide_within",
      doc_select_mode="shortest",
      min_doc_length=8,
      offset_stride=7,
      num_docs=6,
      run={"epochs": 1, "remainder": "pad"},
    )
  ),
  "multi_groups": Case(
    _multi(
      "labelled",
      num_docs=9,
      balance_tau=0.0,
      groups={
        "first": ("labelled/0", "labelled/1", "labelled/2"),
        "second": ("labelled/5", "labelled/7"),
      },
      group_weights={"first": 2.5},
      doc_weights={"labelled/1": 3.0},
      doc_overrides={
        "labelled/2": {"content_stride": 3},
        "labelled/5": {"alpha": 2.0},
      },
      doc_select_mode="first",
      epoch_length=77,
    )
  ),
  "multi_groups_by_meta": Case(
    _multi(
      "labelled",
      num_docs=None,
      group_by_meta=True,
      group_weights={"law": 2.0, "rest": 0.5},
      epoch_length=120,
    )
  ),
  "multi_ramp": Case(
    _multi(
      curriculum_start=2,
      curriculum_every=25,
      content_length_schedule=((40, 8), (90, None)),
      shuffle_content=True,
      epoch_length=60,
      run={"epochs": None},
    ),
    states=(2, 11),
  ),
  "multi_restricted": Case(
    _multi(
      "web",
      num_docs=10,
      strict_num_docs=False,
      doc_select_mode="longest",
      restrict_to_training_subset=True,
      initial_batch_size=2,
      max_train_batches=6,
      min_doc_length=12,
      shuffle=None,
    )
  ),
  "windows": Case(
    _rows("books", "windows", stride=10, num_docs=4, run={"lookahead": True})
  ),
  "windows_block": Case(
    _rows(
      "web",
      "windows",
      ROW_BLOCK,
      doc_select_mode="longest",
      min_copy_len=5,
      run={"epochs": 3, "remainder": "pad"},
    )
  ),
}

_SEQUENTIAL = {
  "sequential": Case(_rows("web", "sequential", tail="drop")),
  "sequential_block": Case(
    _rows(
      "web",
      "sequential",
      ROW_BLOCK,
      {"epochs": 3, "lookahead": True, "remainder": "pad"},
      add_bos=True,
      add_eos=True,
    ),
    states=(0, 5, 10),
  ),
  "sequential_block_of_chunks": Case(
    _rows("code", "sequential", BLOCK, {"epochs": None, "lookahead": True})
  ),
  "sequential_block_narrowed": Case(
    _rows(
      "stdlib",
      "sequential",
      {"kind": "block", "window_blocks": 8, "cache_windows": 3},
      {"shuffle_cache_bytes": 4_096},
    )
  ),
  "sequential_era": Case(
    _rows(
      "notes",
      "sequential",
      {"kind": "era", "era_length": 7},
      {"epochs": 5, "lookahead": True, "batch_format": "maxtext"},
      add_eos=True,
      shuffle_documents="block",
      document_block=4,
      reshuffle_documents=False,
      reset_positions=False,
      document_slots=2,
    )
  ),
  "sequential_linear": Case(
    _rows(
      "web",
      "sequential",
      {"kind": "full", "perm_type": "linear", "seed": 12},
      {
        "mask_boundary_loss": False,
        "train_on_eos": False,
        "document_id": False,
      },
      add_eos=True,
      trailing_filler_in_segment=True,
    )
  ),
  "sequential_documents_full": Case(
    _rows(
      "web",
      "sequential",
      FULL,
      {"epochs": None, "batch_format": "levanter"},
      shuffle_documents="full",
      add_eos=True,
      filler="eos",
    ),
    states=(40,),
  ),
  "sequential_documents_full_once": Case(
    _rows(
      "notes",
      "sequential",
      None,
      {"epochs": None},
      shuffle_documents="full",
      reshuffle_documents=False,
      eos_token_id=7,
      pad_token_id=9,
      add_eos=True,
    )
  ),
  "sequential_documents_block": Case(
    _rows(
      "web",
      "sequential",
      ROW_BLOCK,
      {"epochs": 4},
      shuffle_documents="block",
      document_block=8,
      add_bos=True,
    )
  ),
  "sequential_stored_ends": Case(
    _rows(
      "ended",
      "sequential",
      FULL,
      {"train_on_eos": False, "mask_boundary_loss": False, "lookahead": True},
    )
  ),
}

_FIM = {"rate": 0.6, "prefix_id": 253, "suffix_id": 254, "middle_id": 255}

_BINS = {
  "bin_ffd": Case(
    _rows("web", "bin", packing_buffer_docs=16, shuffle_rows=False)
  ),
  "bin_ffd_block": Case(
    _rows(
      "web",
      "bin",
      BLOCK,
      {"epochs": None, "lookahead": True},
      packing_buffer_docs=8,
      add_eos=True,
    ),
    states=(0, 9, 61),
  ),
  "bin_ffd_documents_full": Case(
    _rows(
      "web",
      "bin",
      BLOCK,
      {"epochs": 4, "remainder": "pad"},
      packing_buffer_docs=10,
      shuffle_documents="full",
      add_bos=True,
      add_eos=True,
    ),
    states=(6,),
  ),
  "bin_ffd_documents_block": Case(
    _rows(
      "web",
      "bin",
      {"kind": "era", "era_length": 9},
      {"epochs": 3, "batch_format": "chomp", "mask_boundary_loss": False},
      packing_buffer_docs=12,
      document_block=4,
      shuffle_documents="block",
      packing_max_docs_per_bin=3,
      long_documents="truncate",
    )
  ),
  "bin_ffd_documents_block_once": Case(
    _rows(
      "notes",
      "bin",
      FULL,
      {"epochs": 6, "batch_format": "levanter"},
      packing_buffer_docs=10,
      document_block=5,
      shuffle_documents="block",
      reshuffle_documents=False,
      long_documents="drop",
      reset_positions=False,
    )
  ),
  "bin_exact": Case(
    _rows(
      "web",
      "bin",
      None,
      {"lookahead": True},
      packing_algorithm="exact",
      packing_buffer_docs=16,
      add_eos=True,
    )
  ),
  "bin_exact_block": Case(
    _rows(
      "code",
      "bin",
      {**BLOCK, "perm_type": "linear"},
      {"epochs": None, "batch_format": "maxtext", "lookahead": True},
      packing_algorithm="exact",
      packing_buffer_docs=4,
      document_slots=3,
    ),
    states=(17,),
  ),
  "bin_exact_documents_full": Case(
    _rows(
      "web",
      "bin",
      FULL,
      {"epochs": 4, "train_on_eos": False},
      packing_algorithm="exact",
      packing_buffer_docs=8,
      shuffle_documents="full",
      shuffle_rows=False,
      add_eos=True,
    )
  ),
  "bin_fim": Case(
    _rows(
      "web",
      "bin",
      BLOCK,
      {"epochs": None, "num_targets": 2},
      packing_buffer_docs=16,
      add_bos=True,
      add_eos=True,
      fim=_FIM,
    ),
    states=(0, 9),
  ),
  "bin_fim_stored_ends": Case(
    _rows(
      "ended",
      "bin",
      FULL,
      {"epochs": 4, "remainder": "pad", "batch_format": "maxtext"},
      packing_buffer_docs=10,
      shuffle_documents="full",
      fim={**_FIM, "rate": 1.0, "train_sentinels": False},
    )
  ),
  "records_bin": Case(
    _rows(
      "records",
      "bin",
      BLOCK,
      {"epochs": None},
      {"array_record": RECORD},
      packing_buffer_docs=9,
      add_eos=True,
    ),
    states=(4,),
  ),
  "records_sequential": Case(
    _rows(
      "packed_records",
      "sequential",
      BLOCK,
      {"lookahead": True, "remainder": "pad"},
      {"array_record": PACKED_RECORD},
      add_eos=True,
    )
  ),
  "source_bin": Case(
    _rows(
      "web",
      "bin",
      BLOCK,
      {"epochs": None},
      {"from_source": {}},
      packing_buffer_docs=9,
      add_eos=True,
    ),
    states=(4,),
  ),
  "source_sequential": Case(
    _rows(
      "notes",
      "sequential",
      FULL,
      {"lookahead": True, "remainder": "pad"},
      {"from_source": {"key": "input_ids", "in_threads": True}},
      shuffle_documents="full",
      add_eos=True,
    )
  ),
  "multi_of_source": Case(
    _rows(
      "books",
      "multi_splice",
      FULL,
      {"epochs": None},
      {"from_source": {}},
      num_docs=5,
      content_length=16,
    )
  ),
  "records_splice": Case(
    _rows(
      "packed_records",
      "multi_splice",
      FULL,
      {"epochs": 1},
      {"array_record": PACKED_RECORD},
      num_docs=4,
      content_length=10,
    )
  ),
}

_BIN = _source("web", "bin", BLOCK, packing_buffer_docs=8, add_eos=True)
_EXACT = _source(
  "code",
  "bin",
  FULL,
  packing_algorithm="exact",
  packing_buffer_docs=8,
  shuffle_documents="full",
)
_STREAM = _source("notes", "sequential", ROW_BLOCK, filler="eos")
_SPLICED = _source(
  "books",
  "multi_splice",
  FULL,
  num_docs=3,
  content_length=20,
  epoch_length=60,
  offset_jitter=1,
)
_RECORDS = _source(
  "records", "sequential", FULL, {"array_record": RECORD}, add_eos=True
)


def _mix(sources, mix=None, **run):
  return {
    "seq_len": 32,
    "global_batch_size": 8,
    "seed": 7,
    "lookahead": True,
    "document_id": True,
    **run,
    "sources": sources,
    "mix": mix or {},
  }


_ALL = {"web": _BIN, "code": _EXACT, "notes": _STREAM, "books": _SPLICED}
_THREE = {"web": _BIN, "notes": _STREAM, "books": _SPLICED}
_PLAIN = {"notes": _STREAM, "books": _SPLICED}
# Where units must be planned, a far step takes all epochs before it.
_NEAR = (12, 18, 24, 30, 55, 144, 377, 1_000)

_MIXES = {
  "mix_tokens": Case(_mix(_ALL), _NEAR, states=(0, 6, 70), resumed=9),
  "mix_fim": Case(
    _mix(
      {"web": {**_BIN, "rows": {**_BIN["rows"], "fim": _FIM}}, **_PLAIN},
      epochs=None,
    ),
    _NEAR,
    states=(4,),
  ),
  "mix_weighted": Case(
    _mix(
      {
        "web": {**_BIN, "weight": 0.6, "max_epochs": 2},
        "books": {**_SPLICED, "weight": 0.3},
        "notes": {**_STREAM, "weight": 0.1},
      },
      {"kind": "weighted"},
      epochs=1,
      remainder="pad",
      batch_format="maxtext",
    ),
  ),
  "mix_loss_tokens": Case(
    _mix(
      {**_THREE, "records": _RECORDS},
      {
        "unit": "loss_tokens",
        "weights": {"web": 3, "notes": 0.5, "books": 1, "records": 1.25},
      },
    ),
    resumed=12,
  ),
  "mix_stages": Case(
    _mix(
      _ALL,
      {
        "stages": [
          (0, {"web": 2, "notes": 1}),
          (5, {"web": 1, "notes": 1, "books": 0.5}),
          (17, {"notes": 1, "books": 2}),
          (23, {"web": 1, "code": 3, "notes": 1}),
        ]
      },
    ),
    _NEAR,
    states=(4, 17, 30),
  ),
  "mix_weighted_rows": Case(
    _mix(
      _THREE,
      {"kind": "weighted", "weights": {"web": 0.6, "books": 0.3, "notes": 0.1}},
      epochs=1,
    ),
    states=(5,),
  ),
  "mix_first_exhausted": Case(
    _mix(_THREE, {"exhaustion": "first_exhausted"}, remainder="pad"),
    states=(4,),
  ),
  "mix_first_exhausted_after_epochs": Case(
    _mix(
      {
        "web": {**_BIN, "max_epochs": 3},
        "books": {**_SPLICED, "max_epochs": 2},
      },
      {"exhaustion": "first_exhausted", "weights": {"web": 2, "books": 1}},
      epochs=2,
    )
  ),
  "mix_all_exhausted": Case(
    _mix(_THREE, {"exhaustion": "all_exhausted"}, epochs=1, remainder="pad"),
    states=(13,),
  ),
  "mix_all_exhausted_within_epochs": Case(
    _mix(
      {**_THREE, "notes": {**_STREAM, "max_epochs": 1}},
      {"exhaustion": "all_exhausted"},
      epochs=1,
      remainder="pad",
    ),
  ),
  "mix_without_replacement": Case(
    _mix(
      _THREE,
      {"exhaustion": "all_exhausted_without_replacement"},
      epochs=1,
      remainder="pad",
    ),
    states=(3,),
  ),
  "mix_drop": Case(
    _mix(
      {**_ALL, "web": {**_BIN, "max_epochs": 1}},
      {"kind": "weighted", "unit": "tokens"},
      epochs=2,
      batch_format="chomp",
      lookahead=False,
      train_on_eos=False,
    )
  ),
  "mix_in_line": Case(
    _mix(
      {"default": {**_BIN, "shuffle": {**BLOCK, "seed": 4}}},
      dataset_mix="{web}:0.7 again={web}:0.1 {notes}:0.2",
    ),
    states=(8,),
  ),
  "mix_in_line_of_declared": Case(
    _mix(
      {"books": {**_SPLICED, "weight": 2.0}, "web": {**_BIN, "max_epochs": 2}},
      {"kind": "weighted", "weights": None},
      dataset_mix="books={books}:1 web={web}:3",
      epochs=2,
    )
  ),
  "mix_of_own_seeds": Case(
    _mix(
      {
        "web": {**_BIN, "shuffle": {**BLOCK, "seed": 5}},
        "notes": {**_STREAM, "shuffle": {**ROW_BLOCK, "seed": 5}},
        "ended": _source("ended", "sequential", {"kind": "full", "seed": 6}),
      },
      {"kind": "weighted"},
      mask_boundary_loss=False,
    )
  ),
  "mix_of_one": Case(
    _mix({"web": _BIN}, {"weights": {"web": 0.25}}, epochs=3), resumed=4
  ),
  "mix_resumed": Case(
    _mix(
      _THREE,
      {
        "weights": {"web": 1, "notes": 1, "books": 4},
        # Where the same mix under equal weights is before step 6.
        "resume_state": {
          "datasets": [
            {"spec": "books", "row_offset": 21},
            {"spec": "notes", "row_offset": 13, "token_offset": 416},
            {"spec": "web", "row_offset": 14, "token_offset": 402},
            {"spec": "retired", "row_offset": 8, "token_offset": 99},
          ]
        },
      },
    ),
    states=(6,),
  ),
}


def _lengths(sources, buckets=None, mix=None, **run):
  return {
    "seed": 3,
    "document_id": True,
    **run,
    "buckets": {
      "kind": "length",
      "lengths": (8, 16, 32, 64),
      "tokens_per_batch": 64,
      **(buckets or {}),
    },
    "sources": sources,
    "mix": mix or {},
  }


def _sizes(sources, buckets=None, mix=None, **run):
  return {
    "seed": 5,
    "global_batch_size": 6,
    **run,
    "buckets": {
      "kind": "resolution",
      "sizes": corpora.SIZES,
      "fields": ("pixels", "latent"),
      **(buckets or {}),
    },
    "sources": sources,
    "mix": mix or {},
  }


_TEXTS = {
  "web": {"store": "web", "rows": {"add_eos": True}},
  "notes": {
    "store": "notes",
    "rows": {"add_bos": True, "filler": "eos"},
    "shuffle": {"seed": 11},
  },
}
_PICTURES = {"photos": {"store": "photos"}, "scans": {"store": "scans"}}

_BUCKETS = {
  "lengths_least_waste": Case(
    _lengths(_TEXTS, None, {"weights": {"web": 3, "notes": 1}}, epochs=2),
    states=(0, 4),
  ),
  "lengths_powers_of_two": Case(
    _lengths(
      {
        **_TEXTS,
        "records": {"store": "records", "array_record": RECORD},
      },
      {
        "assign": "powers_of_two",
        "stages": [
          (0, {"8": 2, "16": 1}),
          (6, {"8": 1, "32": 2, "64": 1}),
        ],
      },
      {"unit": "tokens"},
      lookahead=True,
      remainder="pad",
    ),
    states=(3, 25),
  ),
  "lengths_weighted": Case(
    _lengths(
      _TEXTS,
      {"lengths": (12, 48), "tokens_per_batch": 96},
      {
        "kind": "weighted",
        "exhaustion": "all_exhausted",
        "stages": [(0, {"web": 1}), (5, {"web": 1, "notes": 2})],
      },
      epochs=1,
      remainder="pad",
      batch_format="chomp",
      train_on_eos=False,
    )
  ),
  "lengths_of_one": Case(
    _lengths(
      {"text": {"store": "code"}},
      {"tokens_per_batch": 128, "assign": "powers_of_two"},
      epochs=3,
      batch_format="maxtext",
      lookahead=True,
    )
  ),
  "lengths_in_line": Case(
    _lengths(
      {"default": {"store": "web", "rows": {"add_eos": True}}},
      dataset_mix="{web}:2 {notes}:1",
      batch_format="levanter",
    )
  ),
  "lengths_first_exhausted": Case(
    _lengths(
      {"web": {**_TEXTS["web"], "max_epochs": 3}, "notes": _TEXTS["notes"]},
      None,
      {"exhaustion": "first_exhausted"},
      epochs=2,
    )
  ),
  "sizes": Case(
    _sizes(
      _PICTURES,
      {"metadata": ("label", "score"), "batch_sizes": {"8x8": 3}},
      {"unit": "pixels", "weights": {"photos": 0.75, "scans": 0.25}},
      epochs=2,
      remainder="pad",
    ),
    states=(0, 7),
  ),
  "sizes_stages": Case(
    _sizes(
      _PICTURES,
      {
        "sizes": None,
        "fields": {"latent": None},
        "patch_size": 2,
        "stages": [
          (0, {"4x6": 1, "6x4": 1}),
          (9, {"4x6": 1, "6x4": 1, "8x8": 3}),
        ],
      },
      {"unit": "tokens", "stages": [(0, {"photos": 1}), (4, {"scans": 1})]},
    ),
    states=(12,),
  ),
  "sizes_dropped": Case(
    _sizes(
      {
        "photos": {"store": "photos", "weight": 2.0, "shuffle": {"seed": 1}},
        "scans": {"store": "scans", "max_epochs": 2},
      },
      {"sizes": ((8, 8), (4, 6)), "unbucketed": "drop"},
      {"exhaustion": "drop"},
      epochs=1,
    )
  ),
}


# Their passes over all documents are kept beside the store.
_MANY = {
  "many_sequential": Case(
    _rows(
      "many",
      "sequential",
      ROW_BLOCK,
      {"seq_len": 128},
      shuffle_documents="block",
      add_eos=True,
    )
  ),
  "many_sequential_in_order": Case(
    _rows("many", "sequential", None, {"seq_len": 128, "epochs": 1})
  ),
  "many_exact": Case(
    _rows(
      "many",
      "bin",
      BLOCK,
      {"seq_len": 128},
      packing_algorithm="exact",
      packing_buffer_docs=4_096,
    )
  ),
  "many_lengths": Case(
    _lengths({"text": {"store": "many"}}, {"lengths": (4, 8, 64)}, epochs=1)
  ),
}


def _file(name: str, arg: str) -> dict[str, Any]:
  """Returns `config.data` of a file under configs/, over small corpora."""
  config = importlib.import_module(f"configs.{name}").get_config(arg)
  data = config.data.to_dict()
  for own, source in data["sources"].items():
    source["store"] = own
  return data


_FILES = {
  f"config_{name}_{arg.replace(',', '_')}": Case(_file(name, arg))
  for name, arg in (
    ("block_shuffle", "full,runlocal"),
    ("block_shuffle", "era,runlocal"),
    ("block_shuffle", "block_k8,runlocal"),
    ("block_shuffle", "block_k32,runlocal"),
    ("length_buckets", "runlocal"),
    ("packed", "runlocal"),
    ("packed", "none,runlocal"),
    ("packed", "full,runlocal"),
    ("pretrain_mix", "runlocal"),
    ("resolution_buckets", "runlocal"),
    ("splice_in_mix", "runlocal"),
    ("splice_multi", "runlocal"),
    ("splice_single", "runlocal"),
  )
}

_EDITS = {
  "skip": ((2, 4), (9, 9)),
  "tombstones": ((0, "gone.jsonl"), (11, "gone.jsonl")),
}
_SIZES = {
  "global_batch_size": None,
  "batch_size_schedule": ((0, 8), (7, 4), (15, 12)),
}
_SIMULATED = {"target_tokens": 100_000, "run_tokens": 45_000}
# Options that came after the first files here: their states have certificates.
_LATER = {
  "edits": Case(
    _rows(
      "web", "bin", BLOCK, {**_EDITS, **_SIZES, "epochs": 5},
      packing_buffer_docs=8,
    ),
    states=(0, 2, 8, 14),
  ),
  "edits_of_splices": Case(_multi("web", run=_EDITS), states=(1, 12)),
  "edits_of_mix": Case(
    _mix(
      _THREE,
      {"stages": [(0, {"web": 1, "notes": 1}), (6, {"web": 1, "books": 2})]},
      **{**_SIZES, "skip": ((5, 6),)},
      tombstones=((3, "gone_of_mix.jsonl"),),
    ),
    _NEAR,
    states=(4, 9, 40),
    resumed=9,
  ),
  "edits_of_lengths": Case(
    _lengths({"text": {"store": "web"}}, epochs=2, **_EDITS), states=(6,)
  ),
  "joined": Case(
    _rows(
      ("notes", "web", "books"),
      "bin",
      BLOCK,
      {"epochs": 4},
      {"joined": (0, 1, 3)},
      packing_buffer_docs=8,
    ),
    states=(3, 7, 20, 29),
  ),
  "joined_of_mix": Case(
    _mix(
      {
        "more": {**_STREAM, "store": ("notes", "web"), "joined": (0, 2)},
        "books": _SPLICED,
      }
    ),
    _NEAR,
    states=(30,),
  ),
  "several_stores": Case(
    _rows(("code", "web"), "sequential", FULL), states=(5,)
  ),
  "weighed": Case(
    _rows(
      "weighed", "bin", FULL, {"lookahead": True}, packing_algorithm="exact"
    ),
    states=(0, 6),
  ),
  "pairs": Case(
    _rows(
      "pairs", "bin", BLOCK,
      {
        "num_targets": 1, "global_batch_size": 4, "epochs": 4,
        "tombstones": ((6, "gone_of_pairs.jsonl"),),
      },
      packing_buffer_docs=8, add_bos=True, add_eos=True, pair_slots=3,
      long_pairs="truncate_prompt",
    ),
    states=(0, 4, 9),
  ),
  "pairs_of_mix": Case(
    _mix(
      {
        "one": _source(
          "pairs", "bin", FULL, packing_buffer_docs=16, pair_slots=4,
          shuffle_documents="block", document_block=4,
        ),
        "other": _source(
          "pairs", "bin", pair_slots=4, packing_buffer_docs=16,
          shuffle_documents="full", packing_max_docs_per_bin=2,
        ),
      },
      {"weights": {"one": 2, "other": 1}},
      lookahead=False,
    ),
    _NEAR,
    states=(4, 30),
    resumed=9,
  ),
  "lanes": Case(
    _rows(
      "web", "sequential", {"kind": "block", "window_blocks": 2, "lanes": 2},
      {"epochs": None},
    ),
    states=(7,),
  ),
  "targets": Case(
    _rows(
      "weighed", "sequential", ROW_BLOCK, {"num_targets": 3}, add_eos=True,
    ),
    states=(4,),
  ),
  "columns": Case(
    _rows(
      "columned", "bin", BLOCK,
      {
        "columns": ("quality", ("teacher", -1), ("score", 0.5), "margin"),
        "tombstones": ((3, "gone.jsonl"),),
      },
      packing_buffer_docs=20, add_bos=True, add_eos=True, document_slots=8,
    ),
    states=(0, 4),
  ),
  "targets_of_mix": Case(
    _mix(
      _THREE,
      {"stages": [(0, {"web": 1, "notes": 1}), (6, {"web": 1, "books": 2})]},
      num_targets=2,
      lookahead=False,
      sequence_layout={"kind": "dual_chunk_swap", "shards": 4},
      tombstones=((3, "gone_of_mix.jsonl"),),
    ),
    _NEAR,
    states=(4,),
  ),
  "targets_of_lengths": Case(
    _lengths(
      {"text": {"store": "web", "rows": {"add_eos": True}}},
      {"lengths": (16, 32), "tokens_per_batch": 64},
      epochs=2,
      batch_format="maxtext",
      num_targets=2,
      sequence_layout={"kind": "striped", "shards": 4},
      remainder="pad",
    ),
    states=(3,),
  ),
  "mix_kept_fields": Case(
    _mix(
      _THREE, {"weights": {"web": 2, "notes": 1, "books": 1}},
      batch_format="maxtext",
      keep_fields=("source_id", "document_id", "attention_mask"),
    ),
    _NEAR,
    states=(4,),
  ),
  "simulated": Case(
    _rows(
      "web",
      "bin",
      BLOCK,
      {"epochs": 5, "simulated_epochs": _SIMULATED},
      packing_buffer_docs=8,
      add_eos=True,
    ),
    states=(3,),
  ),
  "simulated_of_mix": Case(
    _mix(
      {"web": _BIN, "code": _EXACT, "notes": _STREAM},
      {"stages": [(0, {"web": 1, "notes": 1}), (6, {"web": 1, "code": 2})]},
      simulated_epochs=_SIMULATED,
      tombstones=((3, "gone_of_mix.jsonl"),),
    ),
    _NEAR,
    states=(4,),
  ),
  "simulated_of_lengths": Case(
    _lengths(
      {"text": {"store": "web"}}, epochs=2, simulated_epochs=_SIMULATED
    ),
    states=(3,),
  ),
  "balanced": Case(
    _rows(
      "web", "bin", BLOCK, {"balance": "attention", "balance_shards": 4},
      packing_buffer_docs=8,
    ),
    states=(7,),
  ),
  "after_a_phase": Case(
    _rows("web", "bin", FULL, {"start_after": corpora.PHASE, "seq_len": 64}),
    states=(0, 1),
  ),
  "megatron": Case(
    _rows(
      "megatron/int32_document",
      "sequential",
      FULL,
      {"epochs": 3},
      {"megatron": {"vocab_size": 100_000, "eos_id": 0, "adds_eos": True}},
      pad_token_id=0,
    ),
    states=(2,),
  ),
  "levanter": Case(
    _rows(
      "levanter/sharded",
      "bin",
      FULL,
      {"epochs": 3},
      {"levanter": {"vocab_size": 100_000}},
      pad_token_id=0,
    ),
    states=(2,),
  ),
}  # fmt: skip

CASES: dict[str, Case] = {
  **_SPLICES,
  **_SEQUENTIAL,
  **_BINS,
  **_MIXES,
  **_BUCKETS,
  **_MANY,
  **_FILES,
  **_LATER,
}

# Their corpora, and the side indexes that they leave, are kept in an archive.
KEPT_2 = (
  "edits",
  "joined",
  "several_stores",
  "weighed",
  "multi_groups_by_meta",
  "megatron",
  "levanter",
  "lengths_of_one",
)
KEPT = (
  "bin_ffd",
  "bin_ffd_block",
  "bin_ffd_documents_full",
  "sequential_block_of_chunks",
  "multi_groups_by_meta",
  "records_bin",
  "records_sequential",
  "sizes",
  *_MANY,
)
