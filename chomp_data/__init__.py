# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""chomp_data: a run's whole input as one pure function, plan(step) -> spans.

All that is public is named here; docs/api.md says what each is. Names are
handed on lazily, so that a spawned loader worker that unpickles a row source
does not import jax and ml_collections on the way.
"""

import importlib
from typing import TYPE_CHECKING

from chomp_data.version import __version__ as __version__

if TYPE_CHECKING:
  from chomp_data.config.files import load_config as load_config
  from chomp_data.config.placeholders import (
    with_placeholders as with_placeholders,
  )
  from chomp_data.errors import ConfigError as ConfigError
  from chomp_data.errors import InputError as InputError
  from chomp_data.errors import PrepareError as PrepareError
  from chomp_data.errors import StateError as StateError
  from chomp_data.errors import StoreError as StoreError
  from chomp_data.iterators import InputIterator as InputIterator
  from chomp_data.iterators import make_iterator as make_iterator
  from chomp_data.loading.checkpoint import InputRestore as InputRestore
  from chomp_data.loading.checkpoint import InputSave as InputSave
  from chomp_data.loading.samplers import (
    BlockShuffleSampler as BlockShuffleSampler,
  )
  from chomp_data.loading.samplers import EraShuffleSampler as EraShuffleSampler
  from chomp_data.loading.samplers import (
    FullShuffleSampler as FullShuffleSampler,
  )
  from chomp_data.loading.samplers import NoShuffleSampler as NoShuffleSampler
  from chomp_data.mix.mix_options import MixOptions as MixOptions
  from chomp_data.mix.mixture import MixtureSource as MixtureSource
  from chomp_data.order.shuffle_options import ShuffleOptions as ShuffleOptions
  from chomp_data.order.shuffled import ShuffledSource as ShuffledSource
  from chomp_data.pack.bins import BinSource as BinSource
  from chomp_data.pack.packing_options import BinOptions as BinOptions
  from chomp_data.pack.packing_options import (
    SequentialOptions as SequentialOptions,
  )
  from chomp_data.pack.sequential import SequentialSource as SequentialSource
  from chomp_data.pipeline import build as build
  from chomp_data.pipeline import Pipeline as Pipeline
  from chomp_data.rows.spans import Spans as Spans
  from chomp_data.sources.epochs import Epochs as Epochs
  from chomp_data.sources.row_source import RowSource as RowSource
  from chomp_data.splice.grid import GridSource as GridSource
  from chomp_data.splice.options import MultiSpliceOptions as MultiSpliceOptions
  from chomp_data.splice.options import SpliceOptions as SpliceOptions
  from chomp_data.splice.options import WindowOptions as WindowOptions
  from chomp_data.splice.source import SpliceSource as SpliceSource
  from chomp_data.stores import ArrayRecordOptions as ArrayRecordOptions
  from chomp_data.stores import open_array_records as open_array_records
  from chomp_data.stores import open_store as open_store
  from chomp_data.stores import Store as Store
  from chomp_data.stores import verify_store as verify_store
  from chomp_data.stores import write_store as write_store
  from chomp_data.stores.samples import open_samples as open_samples
  from chomp_data.stores.samples import SampleStore as SampleStore

_LAZY = {
  "load_config": "chomp_data.config.files",
  "with_placeholders": "chomp_data.config.placeholders",
  "ConfigError": "chomp_data.errors",
  "InputError": "chomp_data.errors",
  "PrepareError": "chomp_data.errors",
  "StateError": "chomp_data.errors",
  "StoreError": "chomp_data.errors",
  "InputRestore": "chomp_data.loading.checkpoint",
  "InputSave": "chomp_data.loading.checkpoint",
  "InputIterator": "chomp_data.iterators",
  "BlockShuffleSampler": "chomp_data.loading.samplers",
  "EraShuffleSampler": "chomp_data.loading.samplers",
  "FullShuffleSampler": "chomp_data.loading.samplers",
  "NoShuffleSampler": "chomp_data.loading.samplers",
  "Spans": "chomp_data.rows.spans",
  "Pipeline": "chomp_data.pipeline",
  "build": "chomp_data.pipeline",
  "make_iterator": "chomp_data.iterators",
  "BinOptions": "chomp_data.pack.packing_options",
  "BinSource": "chomp_data.pack.bins",
  "GridSource": "chomp_data.splice.grid",
  "MixOptions": "chomp_data.mix.mix_options",
  "MixtureSource": "chomp_data.mix.mixture",
  "MultiSpliceOptions": "chomp_data.splice.options",
  "Epochs": "chomp_data.sources.epochs",
  "RowSource": "chomp_data.sources.row_source",
  "SequentialOptions": "chomp_data.pack.packing_options",
  "SequentialSource": "chomp_data.pack.sequential",
  "ShuffledSource": "chomp_data.order.shuffled",
  "ShuffleOptions": "chomp_data.order.shuffle_options",
  "SpliceOptions": "chomp_data.splice.options",
  "SpliceSource": "chomp_data.splice.source",
  "WindowOptions": "chomp_data.splice.options",
  "ArrayRecordOptions": "chomp_data.stores",
  "open_array_records": "chomp_data.stores",
  "open_store": "chomp_data.stores",
  "Store": "chomp_data.stores",
  "verify_store": "chomp_data.stores",
  "write_store": "chomp_data.stores",
  "open_samples": "chomp_data.stores.samples",
  "SampleStore": "chomp_data.stores.samples",
}

__all__ = [
  "ArrayRecordOptions",
  "BinOptions",
  "BinSource",
  "BlockShuffleSampler",
  "ConfigError",
  "Epochs",
  "EraShuffleSampler",
  "FullShuffleSampler",
  "GridSource",
  "InputError",
  "InputIterator",
  "InputRestore",
  "InputSave",
  "MixOptions",
  "MixtureSource",
  "MultiSpliceOptions",
  "NoShuffleSampler",
  "Pipeline",
  "PrepareError",
  "RowSource",
  "SampleStore",
  "SequentialOptions",
  "SequentialSource",
  "ShuffleOptions",
  "ShuffledSource",
  "Spans",
  "SpliceOptions",
  "SpliceSource",
  "StateError",
  "Store",
  "StoreError",
  "WindowOptions",
  "__version__",
  "build",
  "load_config",
  "make_iterator",
  "open_array_records",
  "open_samples",
  "open_store",
  "verify_store",
  "with_placeholders",
  "write_store",
]

if not TYPE_CHECKING:  # Else any name would pass for one of ours.

  def __getattr__(name):
    if name in _LAZY:
      return getattr(importlib.import_module(_LAZY[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
  return sorted([*globals(), *_LAZY])
