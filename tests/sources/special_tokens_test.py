# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Which tokens rows are padded with, by what tokenizers have."""

import logging as std_logging

import numpy as np
import pytest

import chomp_data
from chomp_data import schema

ROW = [7, 8, 9]
SEQ_LEN = 5


@pytest.fixture
def padding(make_store, caplog):
  """Packs a row; returns its padding, and what was logged."""

  def pack(store_options, **options):
    caplog.clear()
    store = make_store([ROW, ROW], **store_options)
    with caplog.at_level(std_logging.WARNING, "absl"):
      source = chomp_data.BinSource(
        store, chomp_data.BinOptions(**options), seq_len=SEQ_LEN
      )
    batch = source.read(source.plan(np.arange(1)))
    assert not batch["loss_mask"][0, len(ROW) - 1 :].any()
    assert not batch["segment_ids"][0, len(ROW) :].any()
    (token,) = set(batch["tokens"][0, len(ROW) :].tolist())
    return token, caplog.messages

  return pack


@pytest.mark.parametrize(
  ("store_options", "options", "token", "text"),
  [
    ({"pad_id": None, "eos_id": 3}, {}, 3, "its EOS, id 3,"),
    ({"pad_id": None, "eos_id": 3}, {"eos_token_id": 4}, 4, "its EOS, id 4,"),
    ({"pad_id": None, "eos_id": None}, {}, 0, "id 0,"),
  ],
)
def test_without_a_padding_token_rows_are_padded_with_eos_and_it_is_logged(
  padding, store_options, options, token, text
):
  found, (line,) = padding(store_options, **options)
  assert found == token
  assert "has no padding token" in line
  assert text in line
  assert line.endswith("Set rows.pad_token_id to pad with another id.")


def test_a_padding_token_or_an_option_is_used_without_a_word(padding):
  assert padding({"pad_id": 5, "eos_id": 3}) == (5, [])
  assert padding({"pad_id": None, "eos_id": 3}, pad_token_id=0) == (0, [])
  assert padding({"pad_id": None, "eos_id": 3}, filler="eos") == (3, [])


def test_an_eos_that_is_needed_must_be_known(padding):
  with pytest.raises(schema.ConfigError, match=r"`rows\.eos_token_id`.*no eos"):
    padding({"pad_id": None, "eos_id": None}, add_eos=True)
  with pytest.raises(
    schema.ConfigError, match=r"`rows\.eos_token_id`.*below.*got 1000000"
  ):
    padding({"pad_id": None, "eos_id": None}, eos_token_id=10**6)
