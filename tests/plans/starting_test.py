# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs in buckets begin at any step, and print what they are."""

import numpy as np
import pytest

import chomp_data
from chomp_data.loading import state


@pytest.mark.parametrize("kind", ["text", "pictures"])
@pytest.mark.parametrize(
  "worker_count", [0, pytest.param(2, marks=pytest.mark.slow)]
)
def test_an_iterator_of_buckets_starts_at_any_step(kind, worker_count, request):
  data = {**request.getfixturevalue(kind), "worker_count": worker_count}
  pipe = chomp_data.build(data)
  steps = pipe.num_steps
  for step in (1, steps // 2, steps - 1, steps):
    with chomp_data.make_iterator(pipe, step=step) as iterator:
      batches = list(iterator)
      assert iterator.step == steps
    assert len(batches) == steps - step
    for offset, batch in enumerate(batches[:4]):
      for name, value in pipe.batch(step + offset).items():
        assert np.array_equal(batch[name], value), (step + offset, name)
  with pytest.raises(IndexError, match=rf"0 \.\. {steps}.*got {steps + 1}\."):
    chomp_data.make_iterator(pipe, step=steps + 1)


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
