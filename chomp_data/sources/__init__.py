# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Row sources: ways to choose the spans of rows."""

from chomp_data.sources.bins import BinSource as BinSource
from chomp_data.sources.grid import GridSource as GridSource
from chomp_data.sources.mix_options import MixOptions as MixOptions
from chomp_data.sources.mixture import MixtureSource as MixtureSource
from chomp_data.sources.packing_options import BinOptions as BinOptions
from chomp_data.sources.packing_options import (
  SequentialOptions as SequentialOptions,
)
from chomp_data.sources.packing_report import PackingReport as PackingReport
from chomp_data.sources.row_source import RowSource as RowSource
from chomp_data.sources.sequential import SequentialSource as SequentialSource
from chomp_data.sources.shuffle_options import ShuffleOptions as ShuffleOptions
from chomp_data.sources.shuffled import ShuffledSource as ShuffledSource
from chomp_data.sources.splice import SpliceSource as SpliceSource
from chomp_data.sources.splice_options import (
  MultiSpliceOptions as MultiSpliceOptions,
)
from chomp_data.sources.splice_options import SpliceOptions as SpliceOptions
from chomp_data.sources.splice_options import WindowOptions as WindowOptions
