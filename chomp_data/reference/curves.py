# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Curves of a run, in a file of JSON lines and for TensorBoard.

Both lie in the run's directory and grow as it goes. A resume cuts what was
written after its step, so each step is there once.
"""

from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import json
import math
import pathlib
from typing import Any

FILE = "curves.jsonl"
# Of single documents: held out, and learned by heart.
DOCUMENTS = "documents.jsonl"
_TENSORBOARD = "tensorboard"


class Curves:
  """Appends points, of the process that writes."""

  def __init__(self, workdir: str | None):
    """Binds a directory.

    Args:
      workdir: A local directory, or None to write nothing.
    """
    self._directory = None if workdir is None else pathlib.Path(workdir)
    self._events = None
    self._purge: int | None = None

  def begin(self, step: int) -> None:
    """Goes on at a step: lines of later ones are cut."""
    if self._directory is None:
      return
    self._directory.mkdir(parents=True, exist_ok=True)
    for name in (FILE, DOCUMENTS):
      path = self._directory / name
      if path.exists():
        self._purge = step
        _cut(path, step)

  def add(self, step: int, values: Mapping[str, float]) -> None:
    """Adds a point of each curve.

    Args:
      step: Steps taken.
      values: By name; what is not finite is null.
    """
    if self._directory is None or not values:
      return
    finite = {
      name: value if math.isfinite(value) else None
      for name, value in values.items()
    }
    self._append(FILE, [{"step": step, **finite}])
    if (events := self._writer()) is not None:
      for name, value in finite.items():
        if value is not None:
          events.add_scalar(name, value, step)
      events.flush()

  def add_documents(
    self, step: int, kind: str, records: Iterable[Mapping[str, Any]]
  ) -> None:
    """Adds a line for each of some documents.

    Args:
      step: Steps taken.
      kind: What was asked of them.
      records: JSON values; NaN is null.
    """
    if self._directory is None:
      return
    lines = [
      {
        "step": step,
        "kind": kind,
        **{
          name: None if value != value else value
          for name, value in record.items()
        },
      }
      for record in records
    ]
    self._append(DOCUMENTS, lines)

  def _append(self, name: str, lines: Sequence[Mapping[str, Any]]) -> None:
    assert self._directory is not None
    with open(self._directory / name, "a") as file:
      file.write("".join(json.dumps(line) + "\n" for line in lines))

  def close(self) -> None:
    """Closes what is open."""
    if self._events is not None:
      self._events.close()
      self._events = None

  def _writer(self):
    """Returns TensorBoard's writer; None where its package is missing."""
    if self._events is None:
      try:
        import tensorboardX
      except ImportError:
        return None
      assert self._directory is not None
      # TensorBoard itself leaves out events of steps from `purge_step` on
      # that an earlier file has.
      purge = None if self._purge is None else self._purge + 1
      self._events = tensorboardX.SummaryWriter(
        str(self._directory / _TENSORBOARD), purge_step=purge
      )
    return self._events


def _cut(path: pathlib.Path, step: int) -> None:
  """Leaves the lines of steps up to one, and none that a kill cut short."""
  lines = []
  for line in path.read_bytes().splitlines():
    with contextlib.suppress(ValueError, KeyError, TypeError):
      if json.loads(line)["step"] <= step:
        lines.append(line)
  part = path.with_name(path.name + ".part")
  part.write_bytes(b"".join(line + b"\n" for line in lines))
  part.replace(path)
