# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
# All public names, and where they are: the only list of them. Type checkers
# read it as a stub, and `__init__.py` imports a name of it when it is used.

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
from chomp_data.loading.samplers import FullShuffleSampler as FullShuffleSampler
from chomp_data.loading.samplers import NoShuffleSampler as NoShuffleSampler
from chomp_data.mix.mix_options import MixOptions as MixOptions
from chomp_data.mix.mixture import MixtureSource as MixtureSource
from chomp_data.order.shuffle_options import ShuffleOptions as ShuffleOptions
from chomp_data.order.shuffled import ShuffledSource as ShuffledSource
from chomp_data.pack.bins import BinSource as BinSource
from chomp_data.pack.fill_in_the_middle import FimOptions as FimOptions
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
from chomp_data.version import __version__ as __version__
