# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of a run, in files of JSON lines and for TensorBoard.

They are in the run's directory and grow as it goes. A resume cuts what was
written after its step, so each step is there once.
"""

from collections.abc import Mapping
import contextlib
import json
import math
import pathlib
from typing import Any

from chomp_data.storage import publish

FILE = "curves.jsonl"
_TENSORBOARD = "tensorboard"


class Curves:
  """Appends points, of the process that writes."""

  def __init__(self, workdir: str | None):
    """Binds a local directory; None writes nothing."""
    self._directory = None if workdir is None else pathlib.Path(workdir)
    self._events: Any = None
    self._purge: int | None = None

  def begin(self, step: int) -> None:
    """Continues at a step: lines of later ones are cut."""
    if self._directory is None:
      return
    self._directory.mkdir(parents=True, exist_ok=True)
    path = self._directory / FILE
    if path.exists():
      # TensorBoard leaves out events of an earlier file from here on.
      self._purge = step + 1
      _cut(path, step)

  def add(self, step: int, values: Mapping[str, float]) -> None:
    """Adds a point of each curve; what is not finite is null."""
    if self._directory is None or not values:
      return
    with open(self._directory / FILE, "a") as file:
      point = {name: _finite(value) for name, value in values.items()}
      file.write(json.dumps({"step": step, **point}) + "\n")
    if (events := self._writer(self._directory)) is not None:
      for name, value in values.items():
        if math.isfinite(value):
          events.add_scalar(name, value, step)
      events.flush()

  def close(self) -> None:
    """Closes what is open."""
    if self._events is not None:
      self._events.close()
      self._events = None

  def _writer(self, directory: pathlib.Path) -> Any:
    """Returns TensorBoard's writer; None where its package is missing."""
    if self._events is None:
      try:
        import tensorboardX
      except ImportError:
        return None
      self._events = tensorboardX.SummaryWriter(
        str(directory / _TENSORBOARD), purge_step=self._purge
      )
    return self._events


def _finite(value: Any) -> Any:
  """Returns a JSON value: null for a number that is not finite."""
  if isinstance(value, float) and not math.isfinite(value):
    return None
  return value


def _cut(path: pathlib.Path, step: int) -> None:
  """Leaves the lines of steps up to one, and none that a kill cut short."""
  lines = []
  for line in path.read_bytes().splitlines():
    with contextlib.suppress(ValueError, KeyError, TypeError):
      if json.loads(line)["step"] <= step:
        lines.append(line)
  with publish.staged_file(path) as file:
    file.writelines(line + b"\n" for line in lines)
