# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What docs/training.md says of torch ranks holds."""

import numpy as np
import pytest

import chomp_data


def test_a_state_holds_for_any_number_of_ranks(stdlib_store):
  options = [f"data.sources.stdlib.store={stdlib_store}"]
  pipe = chomp_data.build(
    chomp_data.load_config("packed:runlocal", options).data
  )
  half = pipe.global_batch_size // 2
  ranks = [np.arange(half), np.arange(half, 2 * half)]
  first, second = (iter(pipe.data_loader(rows)) for rows in ranks)
  for _ in range(3):
    next(first)
    next(second)
  state = first.get_state()
  assert state == second.get_state()
  alone = iter(pipe.data_loader())
  alone.set_state(state)
  second.set_state(state)
  whole, part = next(alone), next(second)
  np.testing.assert_array_equal(whole["tokens"], pipe.batch(3)["tokens"])
  np.testing.assert_array_equal(whole["tokens"][half:], part["tokens"])


def test_a_state_of_other_workers_or_another_config_is_refused(stdlib_store):
  config = chomp_data.load_config(
    "packed:runlocal", [f"data.sources.stdlib.store={stdlib_store}"]
  )
  batches = iter(chomp_data.build(config.data).data_loader())
  next(batches)
  state = batches.get_state()
  for name, value, match in (
    ("worker_count", 1, "Worker count in checkpoint"),
    ("seed", 1, "DataSource in checkpoint"),
  ):
    other = config.data.copy_and_resolve_references()
    with other.unlocked():
      other[name] = value
    with pytest.raises(ValueError, match=match):
      iter(chomp_data.build(other).data_loader()).set_state(state)
