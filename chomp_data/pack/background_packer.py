# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Packs an epoch in a background thread before a reader needs it."""

import functools
from typing import Any

from absl import logging

from chomp_data.kernels import compiled
from chomp_data.pack import window_packing
from chomp_data.stores import side_index
from chomp_data.threads import background


class BackgroundPacker:
  """Writes indexes of orders of documents; removes those of earlier epochs.

  Reshuffled documents are packed again for each epoch: 10**6 documents take 0.1
  to 0.4 s compiled and 2.5 s in NumPy, for which no batch should wait.
  """

  def __init__(self, packing: window_packing.WindowPacking):
    """Stores what packs windows; starts no thread."""
    self._packing = packing
    self._last_order = -1
    # Orders whose indexes this process wrote and did not remove.
    self._written: list[int] = []
    self._threads: list[background.Thread] = []

  def __reduce__(self) -> tuple[Any, ...]:
    # Another process starts threads of its own.
    return BackgroundPacker, (self._packing,)

  def request(self, order: int, sums_only: bool = False) -> None:
    """Starts to pack an order, unless it or a later one was requested before.

    Args:
      order: The epoch whose order of documents is packed, from 0.
      sums_only: Whether only the sums of packed rows are written.
    """
    if order <= self._last_order:
      return
    thread = background.Thread(
      functools.partial(self._run, order, sums_only), "background packer"
    )
    self._threads = [t for t in self._threads if t.is_alive()]
    self._threads.append(thread)
    last_order, self._last_order = self._last_order, order
    try:
      thread.start()
    except background.Stopped:
      self._last_order = last_order
      raise

  def wait(self) -> None:
    """Waits for the threads that were started."""
    for thread in self._threads:
      thread.join()

  def _run(self, order: int, sums_only: bool) -> None:
    # Without a compiled loop, packing would compete with reading and training
    # for minutes, and 'exact' can pack each window when it is needed.
    if self._packing.exact and not compiled.wait():
      return
    try:
      packed = self._packing.in_order(order)
      if sums_only:
        packed.build_sums(in_background=True)
        return
      if packed.find_index() is None:
        packed.build_index(in_background=True)
        self._written.append(order)
      if self._written and self._written[0] < order - 1:
        self._packing.in_order(self._written.pop(0)).drop_index()
    except background.Stopped:
      # Another reader of this source may request it again.
      self._last_order = min(self._last_order, order - 1)
      raise
    except side_index.BusyError:
      pass  # Another process packs it.
    except Exception:  # The epoch's reader meets the error too and reports it.
      logging.debug("epoch %d is not packed ahead", order, exc_info=True)
