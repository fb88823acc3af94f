# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How long a resume takes to a step that nothing has visited before."""

from collections.abc import Mapping
import json
import time
from typing import Any

from chomp_data import iterators
from chomp_data.loading import state


def first_visits(
  data: Mapping[str, Any], step: int, repeats: int
) -> list[float]:
  """Returns times from a state to its first batch on the device, ms.

  Each is of a pipeline of its own, which has planned and read nothing: a
  second visit would find both in memory.

  Args:
    data: `config.data`.
    step: The step of the state.
    repeats: How many times.
  """
  times = []
  for _ in range(repeats + 1):
    with iterators.make_iterator(data) as it:
      fingerprint = json.loads(it.get_state())["fingerprint"]
      saved = state.encode(step, fingerprint, {})
      began = time.perf_counter()
      it.set_state(saved)
      next(it)["tokens"].block_until_ready()
      times.append((time.perf_counter() - began) * 1e3)
  # The first one loads what JAX needs to place a batch.
  return times[1:]
