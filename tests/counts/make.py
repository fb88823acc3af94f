# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the counts that runs are compared with, as they are now.

    python -m tests.counts.make

With the versions of constraints.txt. Only for a change that is meant: a count
that grew is a defect unless CHANGELOG.md says what was had for it.
"""

import pathlib
import tempfile

from absl import logging

from tests.counts import baseline
from tests.counts import measuring


def main() -> None:
  """Measures every kind of run, and says what differs."""
  logging.set_verbosity(logging.ERROR)
  before = baseline.read() if baseline.PATH.exists() else {}
  found = {}
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    measuring.write(root)
    for kind, data in measuring.kinds(root).items():
      found[kind] = measuring.counts(kind, data, root)
      print(*baseline.differences(kind, found[kind], before.get(kind, {})))
  baseline.write(found)


if __name__ == "__main__":
  main()
