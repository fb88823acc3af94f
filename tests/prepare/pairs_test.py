# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Preference pairs from records: what is trained on, and halves that stay."""

import json

import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import run
from chomp_data.prepare import tokenizers
from tests import in_process
from tests.prepare import corpora

KEYS = {"chosen_key": "chosen", "rejected_key": "rejected"}


@pytest.fixture
def prepare(tmp_path):
  """Prepares records of pairs with the byte tokenizer."""

  def call(records, **options):
    path = tmp_path / "in.jsonl"
    path.write_text("".join(f"{json.dumps(own)}\n" for own in records))
    options = {"tokenizer": tokenizers.TokenizerSpec("byte"), **KEYS, **options}
    return run.prepare(
      run.Options((str(path),), str(tmp_path / "out"), **options)
    )

  return call


def texts(store):
  """Returns (text, text that is trained on) of each document."""
  return [corpora.trained_bytes(store, i) for i in range(store.num_documents)]


def message(role, content):
  return {"role": role, "content": content}


def test_texts_follow_their_prompt(prepare):
  store, made = prepare(
    [
      {"id": "a", "q": "2 + 2 = ", "chosen": "4", "rejected": "5"},
      {"q": "", "chosen": "Hi", "rejected": "Go"},
    ],
    prompt_key="q",
  )
  assert made
  assert store.opened.pairs
  assert texts(store) == [
    (b"2 + 2 = 4", b"4"), (b"2 + 2 = 5", b"5"), (b"Hi", b"Hi"), (b"Go", b"Go"),
  ]  # fmt: skip
  assert store.document_ids(range(4)) == [
    "a#chosen", "a#rejected", "in.jsonl:2#chosen", "in.jsonl:2#rejected",
  ]  # fmt: skip
  assert store.manifest.pairs
  assert store.manifest.prepared["chosen_key"] == "chosen"
  _, made = prepare(
    [
      {"id": "a", "q": "2 + 2 = ", "chosen": "4", "rejected": "5"},
      {"q": "", "chosen": "Hi", "rejected": "Go"},
    ],
    prompt_key="q",
    overwrite=True,
  )


def test_without_a_prompt_texts_are_trained_on_as_a_whole(prepare):
  store, _ = prepare([{"chosen": "yes", "rejected": "no"}])
  assert texts(store) == [(b"yes", b"yes"), (b"no", b"no")]


EARLIER = [message("user", "Hi"), message("assistant", "Hello")]
ASKED = [*EARLIER, message("user", "2 + 2?")]
PLAIN = b"user:\nHi\n\nassistant:\nHello\n\nuser:\n2 + 2?\n\nassistant:\n"


@pytest.mark.parametrize("with_prompt", [True, False])
def test_messages_are_trained_on_after_the_prompt_only(prepare, with_prompt):
  """Not earlier answers in it; the prompt may be in both lists."""
  prompt = [] if with_prompt else ASKED
  store, _ = prepare(
    [
      {
        "prompt": ASKED,
        "chosen": [*prompt, message("assistant", "4")],
        "rejected": [*prompt, message("assistant", "Five")],
      }
    ],
    prompt_key="prompt" if with_prompt else None,
  )
  assert texts(store) == [(PLAIN + b"4", b"4"), (PLAIN + b"Five", b"Five")]
  # Rows must end such answers.
  assert store.manifest.prepared["chats"]["needs_eos"] == 2


def test_answers_of_several_turns_are_trained_on(prepare):
  store, _ = prepare(
    [
      {
        "chosen": [*ASKED, message("assistant", "4"), *ASKED[2:],
                   message("assistant", "4!")],
        "rejected": [*ASKED, message("assistant", "No")],
      }
    ]
  )  # fmt: skip
  assert [trained for _, trained in texts(store)] == [b"4\n\n4!", b"No"]


def test_a_template_renders_both_halves(prepare, tmp_path):
  pytest.importorskip("jinja2")
  template = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}\n{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
  )
  store, _ = prepare(
    [
      {
        "prompt": ASKED,
        "chosen": [message("assistant", "4")],
        "rejected": [message("assistant", "Five")],
      }
    ],
    prompt_key="prompt",
    chat=chats.ChatOptions(template, allow_open_turns=True),
  )
  start = b"<user>Hi\n<assistant>Hello\n<user>2 + 2?\n<assistant>"
  assert [text for text, _ in texts(store)] == [
    start + b"4\n", start + b"Five\n",
  ]  # fmt: skip
  assert [trained.strip() for _, trained in texts(store)] == [b"4", b"Five"]


@pytest.mark.parametrize(
  ("record", "match"),
  [
    ({"chosen": "a"}, "must have the key 'rejected'"),
    ({"chosen": "a", "rejected": ""}, "under 'rejected', got ''"),
    ({"chosen": "a", "rejected": []}, "must have texts, or lists of messages"),
    ({"chosen": 1, "rejected": 2}, "must have texts, or lists of messages"),
    ({"chosen": ASKED, "rejected": EARLIER}, "'assistant' after the prompt"),
    ({"chosen": "a", "rejected": "a"}, "two different answers.*got 'a' twice"),
    ({"chosen": EARLIER, "rejected": EARLIER}, "two different answers under"),
    ({"chosen": [1], "rejected": [2]}, "messages of 'role' and 'content'"),
  ],
)
def test_what_is_no_pair_is_an_error_or_left_out_as_a_whole(
  prepare, record, match
):
  good = {"chosen": "yes", "rejected": "no"}
  with pytest.raises(errors.BadInput, match=match):
    prepare([good, record])
  store, _ = prepare([good, record], on_error="skip")
  assert len(texts(store)) == 2
  assert store.manifest.prepared["skipped"]["lines"] == 1


def test_duplicates_and_filters_count_pairs(prepare, monkeypatch, tmp_path):
  pair = {"chosen": "yes", "rejected": "no"}
  store, _ = prepare(
    [pair, {"chosen": "yes", "rejected": "never"}, pair, pair],
    duplicates="drop",
  )
  assert [text for text, _ in texts(store)] == [b"yes", b"no", b"yes", b"never"]
  assert store.manifest.prepared["skipped"]["reasons"] == {"duplicate": 2}
  (tmp_path / "short_texts.py").write_text(
    "def keep(text, record):\n  return 'short' if len(text) < 3 else True\n"
  )
  monkeypatch.syspath_prepend(tmp_path)
  store, _ = prepare(
    [pair, {"chosen": "yes", "rejected": "never"}],
    filter="short_texts:keep",
    overwrite=True,
  )
  assert [text for text, _ in texts(store)] == [b"yes", b"never"]
  assert store.manifest.prepared["skipped"]["reasons"] == {"short": 1}


def test_parts_and_workers_keep_halves_together(prepare):
  records = [
    {"chosen": f"yes {i}", "rejected": f"no {i % 7}"} for i in range(60)
  ]
  store, _ = prepare(records, shard_bytes=200)
  expected = [
    own[key].encode() for own in records for key in ("chosen", "rejected")
  ]
  assert [text for text, _ in texts(store)] == expected


def test_pairs_in_tables(prepare, tmp_path):
  pyarrow = pytest.importorskip("pyarrow")
  from pyarrow import parquet

  table = pyarrow.Table.from_pylist(
    [
      {
        "chosen": [*ASKED, message("assistant", "4")],
        "rejected": [*ASKED, message("assistant", "Five")],
      }
    ]
  )
  parquet.write_table(table, tmp_path / "in.parquet")
  store, _ = run.prepare(
    run.Options(
      (str(tmp_path / "in.parquet"),),
      str(tmp_path / "tables"),
      tokenizer=tokenizers.TokenizerSpec("byte"),
      **KEYS,
    )
  )
  assert texts(store) == [(PLAIN + b"4", b"4"), (PLAIN + b"Five", b"Five")]


def test_stores_of_pairs_are_merged_split_and_converted_as_pairs(
  prepare, tmp_path
):
  store, _ = prepare(
    [{"id": i, "chosen": f"yes {i}", "rejected": "no"} for i in range(200)]
  )
  held, rest, both = (tmp_path / name for name in ("held", "rest", "both"))

  def call(*arguments):
    return in_process.run_tool("stores", *map(str, arguments), check=True)

  call(
    "split", store.path, "--fraction=0.3", f"--held_out={held}",
    f"--output={rest}",
  )  # fmt: skip
  sides = [stores.open_store(path) for path in (held, rest)]
  for side in sides:
    assert side.opened.pairs
    found = [text for text, _ in texts(side)]
    assert 80 < len(found) < 320
    assert set(found[1::2]) == {b"no"}
    assert all(text.startswith(b"yes") for text in found[::2])
  call("merge", held, rest, f"--output={both}")
  assert stores.open_store(both).opened.pairs
  call("convert", both, f"--output={tmp_path / 'z'}", "--to=zstd")
  assert stores.open_store(tmp_path / "z").opened.pairs
  text = call("info", both, "--format=json").stdout
  assert json.loads(text)["pairs"] == 200
