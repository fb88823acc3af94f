# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tf.train.Example: parsed as protobuf's own library wrote it."""

import struct

import hypothesis
from hypothesis import strategies as st
import pytest

from chomp_data.prepare.reading import tf_example
from tests import laws
from tests.prepare import corpora

FLOATS = st.floats(width=32, allow_nan=False)
VALUES = st.one_of(
  st.lists(st.binary(max_size=300)),
  st.lists(FLOATS),
  st.lists(st.integers(-(2**63), 2**63 - 1)),
)


@laws.examples(100)
@hypothesis.given(st.dictionaries(st.text(max_size=9), VALUES, max_size=5))
def test_an_example_is_read_as_it_was_written(features):
  expected = {
    name: values[0] if len(values) == 1 else values or None
    for name, values in features.items()
  }
  data = corpora.example(**features)
  assert tf_example.parse(data) == expected
  assert tf_example.is_example(data) == bool(features)


def test_numbers_need_not_be_packed():
  floats = b"".join(b"\x0d" + struct.pack("<f", v) for v in (0.5, -2.0))
  integers = b"\x08\x07" + b"\x08" + b"\xff" * 9 + b"\x01"

  def entry(name, field, values):
    feature = bytes([field, len(values)]) + values
    own = b"\x0a" + bytes([len(name)]) + name
    own += b"\x12" + bytes([len(feature)]) + feature
    return b"\x0a" + bytes([len(own)]) + own

  own = entry(b"f", 0x12, floats) + entry(b"i", 0x1A, integers)
  assert tf_example.parse(b"\x0a" + bytes([len(own)]) + own) == {
    "f": [0.5, -2.0],
    "i": [7, -1],
  }


@pytest.mark.parametrize(
  "text", [b"", b"text", b"\n", b"\n\n", b"\n\x02hi", "é".encode(), b"{}"]
)
def test_text_is_no_example(text):
  assert not tf_example.is_example(text)


@pytest.mark.parametrize("cut", [1, 5, 20])
def test_an_example_that_is_cut_is_an_error(cut):
  data = corpora.example(text=[b"a longer text"], n=[1, 2, 300])
  with pytest.raises(ValueError, match=r"[Ee]rror|fields"):
    tf_example.parse(data[:-cut])
