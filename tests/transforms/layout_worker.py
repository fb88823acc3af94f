# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What JAX processes of the layout tests do: read columns, and attend."""

from unittest import mock

import jax

import chomp_data
from chomp_data import process_input
from chomp_data.sources import row_reading
from tests.loading import distributed_worker

P = jax.sharding.PartitionSpec


def fetched(data) -> list[int]:
  """Returns the columns of which this process reads a token."""
  sharding = distributed_worker.make_sharding("columns", jax.process_count())
  columns, copy_tokens = set(), row_reading.copy_tokens

  def recorded(sources, spans, tokens):
    for low, high in zip(spans.column, spans.ends(), strict=True):
      columns.update(range(int(low), int(high)))
    copy_tokens(sources, spans, tokens)

  layout = process_input.DeviceLayout.of(sharding)
  source = process_input.of_pipeline(chomp_data.build(data), layout).source
  with mock.patch.object(row_reading, "copy_tokens", recorded):
    for step in range(chomp_data.build(data).num_steps):
      source[step]
  return sorted(columns)
