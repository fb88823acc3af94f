# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What each token weighs."""

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import errors
from chomp_data.prepare import labelled
from chomp_data.prepare import records
from chomp_data.prepare import tokenizers
from tests import laws
from tests.prepare import tokenizer_kinds_test

PIECES = st.lists(
  st.tuples(
    st.text("the cat\né🎉 :"), st.sampled_from([0.0, 0.0, 1.0, 0.5])
  )
)  # fmt: skip


@pytest.fixture(scope="module", params=tokenizer_kinds_test.KINDS)
def tokenizer(request, tmp_path_factory):
  folder = tmp_path_factory.mktemp("tokenizer")
  return tokenizer_kinds_test.make(request.param, folder)


@pytest.fixture(scope="module")
def byte():
  return tokenizers.make_tokenizer(tokenizers.TokenizerSpec())


def encode(tokenizer, *pieces, weights=None):
  documents = [
    records.Document(str(i), "", "", tuple(own), (weights or [1.0] * 99)[i])
    for i, own in enumerate(pieces)
  ]
  key = None if weights is None else "weight"
  read = records.ReadOptions(raw=False, messages_key="m", weight_key=key)
  return labelled.encode(tokenizer, documents, read)


def flat(found):
  """The weight of each token."""
  starts, weights = found.labels
  runs = np.diff(np.append(starts, len(found.tokens)))
  return np.repeat(weights, runs)


@laws.examples(60)
@hypothesis.given(documents=st.lists(PIECES, max_size=3))
def test_bytes_weigh_what_their_piece_weighs(byte, documents):
  found = encode(byte, *documents)
  assert found.lengths.tolist() == [
    len("".join(text for text, _ in own).encode()) for own in documents
  ]
  assert flat(found).tolist() == [
    weight for own in documents for text, weight in own for _ in text.encode()
  ]
  starts, weights = found.labels
  assert (np.diff(starts) > 0).all()
  assert (weights[1:] != weights[:-1]).all()


@laws.examples(
  60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(pieces=PIECES)
def test_labels_change_no_token(tokenizer, pieces):
  text = "".join(text for text, _ in pieces)
  found = encode(tokenizer, pieces)
  plain = tokenizer.encode_batch([text])
  assert found.tokens.tolist() == plain.tokens.tolist()
  assert len(flat(found)) == len(found.tokens)
  assert set(flat(found).tolist()) <= {weight for _, weight in pieces} | {0.0}


@laws.examples(
  60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(pieces=PIECES)
def test_no_token_of_an_answer_is_lost(tokenizer, pieces):
  text = "".join(text for text, _ in pieces)
  weights = flat(encode(tokenizer, pieces))
  (covered,) = tokenizer.encode_covered([text])
  of_characters = [weight for text, weight in pieces for _ in text]
  for weight, begin, end in zip(
    weights, covered.begins, covered.ends, strict=True
  ):
    if begin < end:
      assert weight == max(of_characters[begin:end])


def test_a_token_over_an_edge_has_the_larger_weight():
  covered = tokenizers.TokensWithOffsets(
    np.arange(5), np.asarray([0, 2, 5, 5, 6]), np.asarray([2, 5, 5, 6, 7])
  )
  pieces = [("abc", 0.0), ("", 9.0), ("de", 0.5), ("f", 2.0), ("g", 0.0)]
  weights = labelled.token_weights(covered, pieces)
  assert weights.tolist() == [0.0, 0.5, 2.0, 2.0, 0.0]


def test_a_space_that_a_token_leaves_out_is_its_own():
  covered = tokenizers.TokensWithOffsets(
    np.arange(2), np.asarray([0, 3]), np.asarray([2, 3])
  )
  pieces = [("ab", 0.0), (" ", 2.0), ("d", 0.0)]
  assert labelled.token_weights(covered, pieces).tolist() == [0.0, 2.0]


def test_weights_of_documents_are_told(byte):
  found = encode(byte, [("a", 1.0)], [("b", 0.0)], weights=[0.5, 2])
  assert found.weights.tolist() == [0.5, 2.0]
  assert found.weights.dtype == np.float32
  read = records.ReadOptions(raw=True, weight_key="w")
  plain = labelled.encode(
    byte, [records.Document("0", b"ab", "", (), 0.25)], read
  )
  assert plain.labels is None
  assert plain.weights.tolist() == [0.25]
  assert plain.tokens.tolist() == [97, 98]


def test_no_documents_have_no_labels(byte):
  found = encode(byte)
  assert found.tokens.tolist() == found.lengths.tolist() == []
  assert [own.tolist() for own in found.labels] == [[], []]


@pytest.mark.parametrize("pieces", [False, True])
def test_a_document_that_cannot_be_encoded_is_named(tmp_path, pieces):
  pytest.importorskip("tiktoken")
  tokenizer = tokenizer_kinds_test.make(
    "tiktoken", tmp_path, pattern="o200k_base"
  )
  texts = ["fine", " " * 2_000_000, "fine"]  # The pattern tries all ways.
  documents = [
    records.Document(f"a:{i}", text, "", ((text, 1.0),))
    for i, text in enumerate(texts)
  ]
  read = records.ReadOptions(raw=False, messages_key="m" if pieces else None)
  with pytest.raises(errors.PrepareError, match=r"'a:1' .*2,000,000 char"):
    labelled.encode(tokenizer, documents, read)
