# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How many examples a law is tried on: its own number times the profile's.

A profile (tests/conftest.py) says by its `max_examples` how thorough a run is,
where 100 is once: `default` takes each law's number as it is written, `quick`
(`make test`) a quarter of it, `full` (`make test-all`) ten times as many,
`nightly` fifty times. A law that says nothing has 100.
"""

from typing import Any

import hypothesis


def examples(count: int, **settings: Any) -> hypothesis.settings:
  """Returns settings that try a law on so many examples.

      @laws.examples(60)                  60, nightly 3_000
      @hypothesis.given(spans=SPANS)
      def test_...

  Args:
    count: Examples in the profile `default`.
    **settings: Others of `hypothesis.settings`.
  """
  profile = hypothesis.settings().max_examples
  return hypothesis.settings(
    max_examples=max(1, count * profile // 100), **settings
  )
