# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which stages of a mix are worked out."""

from chomp_data.index.mix import merge_stages


def stages(monkeypatch):
  """Returns a list of the stages whose merge tells the next begin."""
  numbers = []
  followed = merge_stages.StageChain._followed

  def counted(self, known, last):
    numbers.append(last.index)
    return followed(self, known, last)

  monkeypatch.setattr(merge_stages.StageChain, "_followed", counted)
  return numbers
