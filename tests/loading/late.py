# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Threads of a run that are late with what others may wait for."""

import threading

from chomp_data.plans import accounts
from chomp_data.plans import totals


def sums(monkeypatch):
  """Returns an event that the thread which sums what came before waits for."""
  may_sum = threading.Event()
  totals_at = totals.PlanTotals.at

  def late(*args, **options):
    if threading.current_thread().name == "accounts":
      assert may_sum.wait(60)
    return totals_at(*args, **options)

  monkeypatch.setattr(totals.PlanTotals, "at", late)
  return may_sum


def counters(monkeypatch):
  """Returns a list that what counts the steps of each run is added to."""
  found, follow = [], accounts.Accounts.follow

  def remember(self, *arguments):
    found.append(follow(self, *arguments))
    return found[-1]

  monkeypatch.setattr(accounts.Accounts, "follow", remember)
  return found
