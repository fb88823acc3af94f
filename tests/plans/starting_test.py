# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs in buckets begin at any step, and print what they are."""

import pytest

import chomp_data
from chomp_data.loading import state


@pytest.mark.parametrize("kind", ["text", "pictures"])
def test_runs_in_buckets_print_their_shapes(kind, request):
  pipe = chomp_data.build(request.getfixturevalue(kind))
  shapes = "; ".join(map(str, pipe.buckets))
  digest = state.digest(pipe.fingerprint)[:16]
  names = ", ".join(pipe.source_names)
  assert repr(pipe) == (
    f"Pipeline({pipe.num_steps} steps, {shapes}, sources {names},"
    f" fingerprint {digest})"
  )
  with chomp_data.make_iterator(pipe, step=2) as iterator:
    assert repr(iterator) == (
      f"InputIterator(step 2 of {pipe.num_steps}, {shapes}, on devices by"
      f" SingleDeviceSharding, 0 workers, fingerprint {digest})"
    )
