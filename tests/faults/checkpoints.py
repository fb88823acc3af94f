# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of the trainer: bits that flip in their files."""

from collections.abc import Iterator
import contextlib
import functools
import pathlib
import random
import shutil
from unittest import mock

import jax
import numpy as np

from chomp_data import errors
from chomp_data.reference import checkpoint_sums
from chomp_data.reference import workdir
from tests.faults import harness
from tests.reference import workdir_test


@contextlib.contextmanager
def _without_sums() -> Iterator[None]:
  with mock.patch.object(
    checkpoint_sums, "compare_files", return_value=iter(())
  ):
    yield


def flips(
  rng: random.Random, directory: pathlib.Path
) -> Iterator[harness.Case]:
  """Yields cases that flip a bit of a file of the newest checkpoint."""
  whole = directory / "whole"
  kept = workdir.Workdir(str(whole), None)
  workdir_test.save(kept, 10)
  kept.close()

  def case() -> str:
    own = directory / "run"
    shutil.rmtree(own, ignore_errors=True)
    shutil.copytree(whole, own)
    files = workdir_test.files_of(own / "checkpoints" / "10")
    # Arrays are most of a checkpoint, and a small part of these files.
    arrays = [file for file in files if "/d/" in file.as_posix()]
    file = rng.choice(rng.choice((files, arrays)))
    offset = rng.randrange(8 * file.stat().st_size)
    workdir_test.flip(file, offset)
    again = workdir.Workdir(str(own), None)
    try:
      if again.choose() != 10:
        return f"{harness.SILENT}: another step"
      found = workdir_test.restored(again, 10)
    except errors.StateError:
      return harness.REFUSED
    except Exception as error:
      return f"{harness.UNCLEAR}: {file.name}: {error!r}"
    finally:
      again.close()
    same = jax.tree.all(
      jax.tree.map(np.array_equal, found, workdir_test.model_of(10))
    )
    return harness.UNHARMED if same else f"{harness.SILENT}: {file.name}"

  while True:
    yield functools.partial(case)


FAULTS = (
  harness.Fault(
    "checkpoint-bits",
    "one bit of a checkpoint: it is refused, or the model is what it was",
    flips,
    harness.Guard("sums", _without_sums),
    few=60,
    many=2_000,
  ),
)
