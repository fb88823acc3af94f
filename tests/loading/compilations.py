# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which programs JAX compiles, from its log."""

import contextlib
import logging

import jax


@contextlib.contextmanager
def of(function: str):
  """Gathers the messages of compilations of a function, in any thread."""
  messages = []
  handler = logging.Handler()

  def emit(record):
    text = record.getMessage()
    if text.startswith(f"Compiling jit({function})"):
      messages.append(text)

  handler.emit = emit
  logger = logging.getLogger("jax")
  logger.addHandler(handler)
  jax.config.update("jax_log_compiles", True)
  try:
    yield messages
  finally:
    jax.config.update("jax_log_compiles", False)
    logger.removeHandler(handler)
