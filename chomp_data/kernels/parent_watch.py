# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Ends a process when its parent has ended, even if that was killed."""

import os
import threading
import time

_EVERY_S = 0.2


def begin(parent: int) -> None:
  """Starts a thread that ends this process soon after its parent has ended.

  Args:
    parent: The process that started this one, which may have ended already.
  """
  threading.Thread(target=_watch, args=(parent,), daemon=True).start()


def _watch(parent: int) -> None:
  """Ends this process once its parent has another process id."""
  while os.getppid() == parent:
    time.sleep(_EVERY_S)
  os._exit(1)
