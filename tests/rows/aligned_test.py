# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Arrays that JAX takes without a copy."""

import jax
import numpy as np
import pytest

from chomp_data.kernels import compiled
from chomp_data.rows import aligned
from chomp_data.rows import row_layout
from tests.rows import row_layout_test


@pytest.mark.parametrize("dtype", [np.int32, np.bool_, np.uint16])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5), (64, 2_048)])
def test_arrays_begin_where_they_need_not_be_copied(shape, dtype):
  for _ in range(5):
    array = aligned.empty(shape, dtype)
    assert array.shape == shape
    assert array.dtype == dtype
    assert array.flags.c_contiguous
    assert not array.size or array.ctypes.data % 64 == 0
    array[...] = 1
    assert (array == 1).all()


def test_rows_are_put_on_a_cpu_as_they_are():
  spans = row_layout_test.plan([[(0, 2, 1), (2, 3, 2)]] * 4)
  layout = row_layout.RowLayout(2_048, 9)
  with compiled.allowed(True) as loaded:
    fields = row_layout.placed(spans, layout)
  names = list(fields) if loaded else ["tokens", "positions"]
  for name in names:
    placed = jax.device_put(fields[name])
    assert np.shares_memory(np.asarray(placed), fields[name]), name
