# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the golden files: what every config gives today.

    python -m tests.golden.make                   # cases that have none yet
    python -m tests.golden.make mix_tokens bin_ffd
    python -m tests.golden.make stores            # hashes of manifests
    python -m tests.golden.make stores_2          # the archive, where none is
    python -m tests.golden.make all

A golden file that is there may be written again for one reason only: a change
that is made on purpose, whose reason CHANGELOG.md names. Whoever makes another
change and sees the golden test fail has a defect, and not an old file. States
are kept while the batches are the same: earlier code has saved them, and they
must go on being accepted.
"""

import json
import os
import pathlib
import sys
import tempfile
from typing import Any

from tests.golden import archive
from tests.golden import cases
from tests.golden import corpora
from tests.golden import measuring

STORES = "stores"
STORES_2 = "stores_2"


def main(names: list[str]) -> None:
  """Writes the golden files of named cases, else of those that have none."""
  known = [*cases.CASES, STORES]
  if names == ["all"]:
    names = known
  known.append(STORES_2)
  unknown = sorted(set(names) - set(known))
  if unknown:
    raise SystemExit(f"no case is called {', '.join(unknown)}")
  lacking = [own for own in cases.CASES if not measuring.path_of(own).exists()]
  if not archive.SCHEMA_2.exists():
    lacking.append(STORES)
  if not archive.PATH_2.exists():
    lacking.append(STORES_2)
  with tempfile.TemporaryDirectory() as kept:
    # No index of an earlier run must be found, and none stay behind.
    os.environ["XDG_CACHE_HOME"] = str(pathlib.Path(kept, "cache"))
    # Checkpoints of a `dataset_mix` hold its paths.
    os.chdir(kept)
    root = cases.ROOT
    root.mkdir()
    corpora.write_all(root)
    names = names or lacking
    for name in set(corpora.NAMES) - set(corpora.SMALL):
      if any(own in cases.CASES and cases.CASES[own].large for own in names):
        corpora.write(root, name)
    for name in names:
      print(name)
      if name == STORES_2:
        own = pathlib.Path("archive_2")
        own.mkdir()
        archive.write(own, cases.KEPT_2)
        archive.pack(own, archive.PATH_2)
        continue
      if name == STORES:
        own = pathlib.Path("archive")
        own.mkdir()
        archive.write(own)
        text = json.dumps(archive.beside_arrays(own), indent=1, sort_keys=True)
        archive.SCHEMA_2.write_text(f"{text}\n")
        continue
      found = with_old_states(name, measuring.measure(cases.CASES[name], root))
      text = json.dumps(found, indent=1, sort_keys=True)
      measuring.path_of(name).write_text(f"{text}\n")


def with_old_states(name: str, found: dict[str, Any]) -> dict[str, Any]:
  """Returns what is kept of a case, with the states that are there already."""
  if not measuring.path_of(name).exists() or "states" not in found:
    return found
  old = measuring.golden(name)
  if old["batches"] != found["batches"]:
    return found
  kept = old.get("states", {})
  states = {step: kept.get(step, own) for step, own in found["states"].items()}
  return {**found, "states": states}


if __name__ == "__main__":
  main(sys.argv[1:])
