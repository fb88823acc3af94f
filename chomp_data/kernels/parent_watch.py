# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Ends a process when the one that started it has ended, however it did."""

import os
import threading
import time

_EVERY_S = 0.2


def begin(parent: int) -> None:
  """Ends this process, from now on, soon after its parent.

  Args:
    parent: The process that started this one, which may have ended already.
  """
  threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
  while os.getppid() == parent:
    time.sleep(_EVERY_S)
  os._exit(1)
