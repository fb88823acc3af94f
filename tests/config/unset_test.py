# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options left out whose defaults may surprise are logged once at the start."""

import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.testing import stores as testing_stores

SHUFFLE = (
  "`shuffle` is not set for text: rows come in stored order. Set"
  " config.data.sources.text.shuffle.kind to 'block' or 'full' to shuffle them,"
  " or to 'none' to keep this order."
)
ADD_EOS = (
  "`add_eos` is not set for text: nothing is put between the documents of a"
  " row. Set config.data.sources.text.rows.add_eos to True to put an"
  " end-of-document token (EOS) after each, or to False to leave them so."
)
DOCUMENTS = [np.arange(3, 3 + n) for n in (40, 30, 50, 20)]
EOS = {"add_eos": True}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  path = tmp_path_factory.mktemp("stores") / "text"
  return testing_stores.make_store(path, DOCUMENTS).path


@pytest.fixture
def logged(store, caplog):
  """Builds a run; returns what was logged, and the run."""

  def build(rows, shuffle=None, **data):
    caplog.clear()
    entry = {"store": str(store), "rows": rows}
    if shuffle is not None:
      entry["shuffle"] = shuffle
    pipe = pipeline.build(
      {
        "seq_len": 16,
        "global_batch_size": 2,
        "sources": {"text": entry},
        **data,
      }
    )
    return [own for own in caplog.messages if "is not set for" in own], pipe

  with caplog.at_level("WARNING", "absl"):
    yield build


@pytest.mark.parametrize(
  ("rows", "shuffle", "lines"),
  [
    ({"kind": "bin"}, None, [SHUFFLE, ADD_EOS]),
    ({"kind": "sequential"}, None, [SHUFFLE, ADD_EOS]),
    ({"kind": "sequential"}, {"seed": 3}, [SHUFFLE, ADD_EOS]),
    ({"kind": "sequential", **EOS}, None, [SHUFFLE]),
    ({"kind": "splice"}, None, [SHUFFLE]),
    ({"kind": "sequential"}, {"kind": "full"}, [ADD_EOS]),
    # What settles each, without a change of the batches.
    ({"kind": "bin", "add_eos": False}, {"kind": "none"}, []),
    # Something else says the order, or stands between documents.
    ({"kind": "bin", "shuffle_documents": "full", **EOS}, None, []),
    ({"kind": "bin", "add_bos": True, "bos_token_id": 2}, {"kind": "full"}, []),
  ],
)
def test_what_is_left_out_is_logged_with_the_option_that_settles_it(
  logged, rows, shuffle, lines
):
  assert logged(rows, shuffle)[0] == lines


def test_what_settles_a_line_changes_no_batch(logged):
  _, without = logged({"kind": "bin"})
  lines, explicit = logged({"kind": "bin", "add_eos": False}, {"kind": "none"})
  assert lines == []
  assert explicit.fingerprint == without.fingerprint
  tokens = [own.batch(0)["tokens"].tolist() for own in (without, explicit)]
  assert tokens[0] == tokens[1]


def test_documents_that_end_with_eos_need_no_line(logged, tmp_path):
  ended = testing_stores.make_store(
    tmp_path / "ended", DOCUMENTS, adds_eos=True
  )
  source = {"store": str(ended.path), "rows": {"kind": "bin"}}
  sources = {"text": {**source, "shuffle": {"kind": "full"}}}
  assert logged({}, sources=sources)[0] == []


def test_buckets_are_shuffled_and_hold_one_document_a_row(store, caplog):
  with caplog.at_level("WARNING", "absl"):
    pipe = pipeline.build(
      {
        "buckets": {
          "kind": "length",
          "lengths": (64,),
          "tokens_per_batch": 128,
        },
        "sources": {"text": {"store": str(store)}},
      }
    )
  assert pipe.run_options.kind != "rows"
  assert "is not set for" not in caplog.text


def test_one_line_names_several_sources(logged, store):
  entry = {"store": str(store), "rows": {"kind": "bin", **EOS}}
  lines, _ = logged({}, sources=dict.fromkeys("abcde", entry))
  (line,) = lines
  assert line.startswith("`shuffle` is not set for a, b, c and 2 more: ")
  assert "config.data.sources.a.shuffle.kind" in line
