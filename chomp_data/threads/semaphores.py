# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Names of the semaphores that processes share, so that leftovers are removed.

`multiprocessing` keeps the locks of processes that it spawns in `/dev/shm`, 25
for each loader worker. They are removed when the process ends, by itself or by
a helper process of Python's; where a signal kills all of a process group, that
ends, too, and they stay. So here their names identify their owner, and the
next process that starts others removes those whose owner has ended:

    sem.chomp-4026531836-1234-56789-x1_9a0b2

which are its namespace of processes, its number, when it began, and 8 random
characters.
"""

import functools
import multiprocessing
import os
import pathlib
import re

# Where Linux keeps them; elsewhere they cannot be listed.
DIRECTORY = pathlib.Path("/dev/shm")
_NAME = re.compile(r"sem\.chomp-(\d+)-(\d+)-(\d+)-.*")


def name_and_sweep() -> None:
  """Names semaphores after this process; removes those of ended ones, once.

  Call it before processes are spawned.
  """
  _once(os.getpid())


@functools.cache
def _once(process: int) -> None:
  began = start_time(process)
  if began is None:
    return
  # Not public; where it is not there names stay those of Python.
  config = getattr(multiprocessing.current_process(), "_config", {})
  if "semprefix" in config:
    config["semprefix"] = f"/chomp-{pid_namespace()}-{process}-{began}"
  removed = sweep()
  if removed:
    from absl import logging  # Not in workers, which remove nothing.

    logging.info("removed %d semaphores of processes that were killed", removed)


def sweep() -> int:
  """Removes what is left of ended processes of this user; returns how many."""
  removed = 0
  try:
    names = os.listdir(DIRECTORY)
  except OSError:
    return 0
  for name in names:
    owner = _NAME.fullmatch(name)
    # In another namespace the same number is another process.
    if owner is None or int(owner[1]) != pid_namespace():
      continue
    if start_time(int(owner[2])) == int(owner[3]):
      continue
    try:
      if (DIRECTORY / name).lstat().st_uid == os.geteuid():
        (DIRECTORY / name).unlink()
        removed += 1
    except OSError:
      continue  # Another process removes them, too.
  return removed


def pid_namespace() -> int:
  """Returns the number of this process's namespace of processes."""
  return os.stat("/proc/self/ns/pid").st_ino


def start_time(process: int) -> int | None:
  """Returns when a process began, in ticks since boot; None: it has ended."""
  try:
    text = pathlib.Path(f"/proc/{process}/stat").read_text()
  except OSError:
    return None
  # The second field, in brackets, may hold anything.
  fields = text.rpartition(")")[2].split()
  return None if fields[0] in "ZX" else int(fields[19])
