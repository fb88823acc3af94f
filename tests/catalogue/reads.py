# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What the runs of the catalogue fetch: chunks and reads of each source.

    python -m tests.catalogue.reads

writes `reads.json` anew; more of anything is a regression to explain.
"""

import json
import pathlib
import tempfile

import chomp_data
from chomp_data import pipeline
from tests.catalogue import runs
from tests.golden import corpora

PATH = pathlib.Path(__file__).parent / "reads.json"
STEPS = 40


def fetched(name: str, root: pathlib.Path) -> dict[str, dict[str, int]]:
  """Returns what the first steps of a run fetch, by source of text."""
  pipe = chomp_data.build(runs.data_of(name, root))
  source = pipeline.batch_source(pipe)
  for step in range(runs.last_of(pipe, STEPS)):
    source[step]
  return {
    name: {"chunks": own.chunks_fetched, "reads": own.coalesced_ranges}
    for name, own in source.reads.by_source().items()
  }


def main() -> None:
  """Writes the file."""
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    corpora.write_all(root)
    found = {name: fetched(name, root) for name in runs.NAMES}
  PATH.write_text(json.dumps(found, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
  main()
