"""Row sources: rows of a corpus by random access."""

from chomp_data.sources.grid import GridSource as GridSource
from chomp_data.sources.row_source import RowSource as RowSource
from chomp_data.sources.shuffled import ShuffledSource as ShuffledSource
from chomp_data.sources.shuffled import ShuffleOptions as ShuffleOptions
from chomp_data.sources.splice import SpliceSource as SpliceSource
from chomp_data.sources.splice_options import (
  MultiSpliceOptions as MultiSpliceOptions,
)
from chomp_data.sources.splice_options import SpliceOptions as SpliceOptions
from chomp_data.sources.splice_options import WindowOptions as WindowOptions
