# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From chats to batches: what the assistant says, and nothing else."""

import importlib
import json
import re

import ml_collections
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import parts
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.prepare import run_tokenizer
from chomp_data.prepare import tokenizers
from tests import in_process
from tests.prepare import corpora

WORDS = ["one", "deux", "drei\n", "чотири", "五", "🎉 six"]


def chat(number):
  """A chat of some turns; the assistant's text is told from the user's."""
  messages = []
  for turn in range(1 + number % 3):
    words = " ".join(WORDS[(number + turn + i) % 6] for i in range(number % 4))
    messages += [
      {"role": "user", "content": f"ask {number} {words}"},
      {"role": "assistant", "content": f"say {words} {turn}"},
    ]
  return {"messages": messages, "id": f"chat {number}", "score": number / 4}


def said(record):
  return [
    own["content"] for own in record["messages"] if own["role"] == "assistant"
  ]


@pytest.fixture
def lines(tmp_path):
  path = tmp_path / "chats.jsonl"
  path.write_text("".join(json.dumps(chat(i)) + "\n" for i in range(40)))
  return path


def trained_text(store, document):
  """The bytes of a document that are trained on, where bytes are tokens."""
  return corpora.trained_bytes(store, document)[1].decode()


def test_bytes_trained_on_are_those_of_the_assistant(lines, prepare):
  store, _ = prepare(lines, messages_key="messages", shard_bytes=500)
  assert store.labels.has_runs
  for i in range(store.num_documents):
    # A blank line ends each answer but the last.
    assert trained_text(store, i) == "\n\n".join(said(chat(i)))
    assert store.document_ids([i])[0] == f"chat {i}"
  total = sum(len("\n\n".join(said(chat(i))).encode()) for i in range(40))
  assert store.labels.trained_before(np.asarray([store.num_tokens])) == [total]


@pytest.mark.parametrize("changes", [{"workers": 2}, {"shard_bytes": 200}])
def test_the_store_is_the_same_for_any_parts_and_workers(
  lines, prepare, changes
):
  keys = {"messages_key": "messages", "weight_key": "score"}
  first, _ = prepare(lines, **keys, shard_bytes=10_000)
  other, _ = prepare(
    lines, **keys, output="other", **{"shard_bytes": 700, **changes}
  )
  assert other.hash == first.hash


def test_weights_of_documents_and_of_messages_are_kept(tmp_path, prepare):
  records = [chat(i) for i in range(6)]
  records[1]["messages"][1]["weight"] = 0.5
  records[4]["messages"][1]["weight"] = 0
  records[5]["messages"][1]["weight"] = 2.25
  path = tmp_path / "chats.jsonl"
  path.write_text("\n".join(map(json.dumps, records)))
  store, _ = prepare(
    path, messages_key="messages", weight_key="score", shard_bytes=100
  )
  assert store.labels.levels.tolist() == [0.0, 1.0, 0.5, 2.25]
  assert store.labels.document_weights(np.arange(6)).tolist() == [
    record["score"] for record in records
  ]
  assert trained_text(store, 4) == "".join(said(records[4])[1:])
  begin, length = store.bounds(np.asarray([1]))
  assert set(store.labels.runs(begin, length)[3].tolist()) == {0, 1, 2}


def test_prompts_are_not_trained_on(tmp_path, prepare):
  path = tmp_path / "pairs.jsonl"
  path.write_text('{"q": "2 + 2 = ", "a": "4"}\n{"q": "", "a": "Hi"}\n')
  store, _ = prepare(path, prompt_key="q", completion_key="a")
  assert [trained_text(store, i) for i in range(2)] == ["4", "Hi"]
  assert store.num_tokens == len("2 + 2 = 4Hi")


def test_a_template_spells_special_tokens(lines, prepare, tmp_path):
  pytest.importorskip("jinja2")
  template = (
    "{{ bos_token }}{% for m in messages %}{{ m.role }}:{{ m.content }}"
    "{{ eos_token }}{% endfor %}"
  )
  store, _ = prepare(
    lines,
    messages_key="messages",
    chat=chats.ChatOptions(template),
    train=run_tokenizer.TrainOptions("bpe", 300),
  )
  info = store.opened.tokenizer
  tokens = stores.read_document(store, 1)
  assert tokens[0] == info.bos_id
  assert tokens[-1] == info.eos_id
  assert (tokens == info.eos_id).sum() == 4
  text = tokenizers.load_tokenizer(store).decode(tokens)
  assert text.startswith("<|bos|>user:ask 1 ")
  begin, length = store.bounds(np.asarray([1]))
  _, low, high, level = store.labels.runs(begin, length)
  spoken = [
    tokenizers.load_tokenizer(store).decode(tokens[a:b])
    for a, b, own in zip(low, high, level, strict=True)
    if own
  ]
  expected = [f"assistant:{text}<|eos|>" for text in said(chat(1))]
  assert spoken == expected


CHATML = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def run_of(store, **rows):
  """A run over a store of chats."""
  source = {"store": store.path, "rows": {"kind": "bin", **rows}}
  data = {
    "global_batch_size": 4,
    "seq_len": 256,
    "sources": {"chats": source},
  }
  return pipeline.build(ml_collections.ConfigDict(data))


def test_chats_that_rows_must_end_need_add_eos(lines, prepare, tmp_path):
  store, _ = prepare(lines, messages_key="messages")
  told = store.manifest.prepared["chats"]
  turns = sum(1 + i % 3 for i in range(40))
  assert told["turns"] == {"EOS of rows": 40, "ordinary token": turns - 40}
  assert told["needs_eos"] == 40
  run_of(store, add_eos=True)
  both = stores.as_one([store, store])
  for chosen in (store, both):
    assert chosen.opened.chats["needs_eos"] == 40 * (1 + (chosen is both))
  for rows in ({}, {"kind": "sequential"}):
    with pytest.raises(
      errors.ConfigError, match=r"rows\.add_eos` must be True"
    ):
      run_of(store, **rows)
  with pytest.raises(errors.ConfigError, match=r"rows\.kind` must be one with"):
    run_of(store, kind="windows")
  allowed, _ = prepare(
    lines,
    messages_key="messages",
    output="open",
    chat=chats.ChatOptions(allow_open_turns=True),
  )
  run_of(allowed)
  assert allowed.hash == store.hash
  for command in (
    ["merge", store.path, store.path, f"--output={tmp_path / 'two'}"],
    ["convert", store.path, "--to=zstd", f"--output={tmp_path / 'two'}",
     "--overwrite"],
    ["split", store.path, "--fraction=0.5", f"--held_out={tmp_path / 'held'}",
     f"--output={tmp_path / 'two'}", "--overwrite"],
  ):  # fmt: skip
    in_process.run_tool("stores", *command, check=True)
    with pytest.raises(
      errors.ConfigError, match=r"rows\.add_eos` must be True"
    ):
      run_of(stores.open_store(tmp_path / "two"))


def test_a_chat_never_ends_with_two_eos(lines, prepare):
  pytest.importorskip("jinja2")
  template = CHATML.replace("<|im_end|>", "{{ eos_token }}")
  store, _ = prepare(
    lines,
    messages_key="messages",
    chat=chats.ChatOptions(template),
    train=run_tokenizer.TrainOptions("bpe", 300),
  )
  assert store.opened.chats["has_eos"] == 40
  assert store.opened.chats["needs_eos"] == 0
  with pytest.raises(
    errors.ConfigError, match=r"add_eos` must be False.*EOS at the end of 40"
  ):
    run_of(store, add_eos=True)
  run_of(store, add_eos=True, eos_token_id=5)
  run_of(store)


def test_stores_of_earlier_rules_stay_and_are_not_mixed(
  lines, prepare, monkeypatch
):
  identity = run.options_lib.identity

  def without_rules(*arguments):
    values = identity(*arguments)
    del values["chat_rules"]
    return values

  with monkeypatch.context() as before:
    before.setattr(run.options_lib, "identity", without_rules)
    before.setattr(chats, "summary", lambda *_: {})
    store, _ = prepare(lines, messages_key="messages")
  run_of(store)
  with pytest.raises(
    errors.StoreError, match="chat_rules: None there, 2 asked"
  ):
    prepare(lines, messages_key="messages")
  # Nor is a part of other rules taken over.
  task = parts.PartTask((), parts.PartOptions(None, "", read_options(2)), "")
  other = parts.PartTask((), parts.PartOptions(None, "", read_options(1)), "")
  assert task.key != other.key


def read_options(version):
  return records.ReadOptions(raw=False, chat=chats.ChatOptions(version=version))


def test_each_answer_is_a_document_of_its_own(lines, prepare):
  each = chats.ChatOptions(turns="each")
  store, _ = prepare(lines, messages_key="messages", chat=each)
  number = 0
  for i in range(40):
    for turn, answer in enumerate(said(chat(i))):
      assert store.document_ids([number])[0] == f"chat {i}#{2 * turn + 1}"
      assert trained_text(store, number) == answer
      number += 1
  assert store.num_documents == number
  lines.write_text('{"messages": [{"role": "assistant", "content": "x"}]}')
  store, _ = prepare(lines, messages_key="messages", chat=each, output="two")
  assert store.document_ids([0])[0] == "chats.jsonl:1#0"
  assert store.manifest.prepared["without_id"] == 1


TOOLS = [{"type": "function", "function": {"name": "look", "strict": True}}]
CALLS = [
  {"role": "user", "content": "Sun?"},
  {
    "role": "assistant",
    "tool_calls": [{"function": {"name": "look", "arguments": {"at": "sky"}}}],
  },
  {"role": "tool", "content": "yes"},
  {"role": "assistant", "content": "It shines.", "weight": 1},
]
SHOWN = (
  "{{ tools | tojson }}{{ messages | tojson }}"
  "{% generation %}.{% endgeneration %}"
)


@pytest.mark.parametrize("kind", ["jsonl", "parquet", "arrow"])
def test_tables_add_no_nulls_to_messages_and_tools(kind, tmp_path, prepare):
  pytest.importorskip("jinja2")
  others = [
    {"role": "user", "content": "x", "name": "Ann"},
    {
      "role": "assistant",
      "content": "y",
      "tool_calls": [
        {"id": "1", "function": {"name": "go", "arguments": {"to": "x"}}}
      ],
    },
  ]
  rows = [
    {"id": "0", "messages": CALLS, "tools": TOOLS},
    {"id": "1", "messages": others, "tools": [{"type": "other"}]},
    {"id": "2", "messages": others, "tools": None},
  ]
  path = tmp_path / f"chats.{kind}"
  if kind == "jsonl":
    path.write_text("\n".join(map(json.dumps, rows)))
  else:
    arrow = pytest.importorskip("pyarrow")
    table = arrow.Table.from_pylist(rows)
    if kind == "parquet":
      importlib.import_module("pyarrow.parquet").write_table(table, path)
    else:
      with arrow.ipc.new_file(path, table.schema) as writer:
        writer.write_table(table)
  store, _ = prepare(
    path, messages_key="messages", chat=chats.ChatOptions(SHOWN)
  )
  decode = tokenizers.load_tokenizer(store).decode
  for i, row in enumerate(rows):
    text = decode(stores.read_document(store, i)).removesuffix(".")
    if kind == "jsonl":
      assert text == f"{json.dumps(row['tools'])}{json.dumps(row['messages'])}"
    found, end = json.JSONDecoder().raw_decode(text)
    assert found == row["tools"]
    assert json.loads(text[end:]) == row["messages"]


def test_a_store_of_chats_says_how_turns_end(tmp_path):
  pytest.importorskip("jinja2")
  path, template = tmp_path / "calls.jsonl", tmp_path / "chat.jinja"
  empty = [CALLS[0], {"role": "assistant", "content": ""}]
  records = [
    {"messages": CALLS[:1] + CALLS[3:], "tools": TOOLS},
    {"messages": empty, "settings": {"mode": 1}},
  ]
  path.write_text("\n".join(map(json.dumps, records)))
  template.write_text("{{ mode }}{{ other }}" + CHATML)
  flags = (
    f"--input={path}", "--messages_key=messages", f"--chat_template={template}",
    "--template_kwargs_key=settings",
  )  # fmt: skip
  output = tmp_path / "out"
  done = in_process.run_tool(
    "prepare", *flags, f"--output={output}", check=True
  )
  for line in (
    r"trained on +[\d,]+ tokens \([\d.]+%\)",
    "turns ended by ordinary token +2",
    "empty answers +1",
    "unread tools +1 records: the template reads no tools",
    "undefined variables +other: read by the template",
  ):
    assert re.search(f"^{line}", done.stdout, re.MULTILINE), line
  assert "needs eos" not in done.stdout


def test_a_preview_writes_nothing_and_marks_what_is_trained_on(tmp_path):
  path = tmp_path / "share.jsonl"
  messages = [
    {"from": "human", "value": "Né?"},
    {"from": "gpt", "value": "No\nyes", "weight": 0.5},
    {"from": "human", "value": "Hm\x1b[1m"},
    {"from": "gpt", "value": "ok"},
  ]
  record = {"id": "[7]", "conversations": messages}
  path.write_text(f"{json.dumps(record)}\n" * 9)
  done = in_process.run_tool(
    "prepare",
    f"--input={path}",
    "--messages_key=conversations",
    "--message_keys=role=from,content=value",
    "--preview=2",
    check=True,
  )
  assert sorted(own.name for own in tmp_path.iterdir()) == ["share.jsonl"]
  first = (
    "[7]: 58 tokens, 10 of them trained on\n"
    "  u│s│e│r│:│\\n\n"
    "  N│é│?│\\n\n"
    "  \\n\n"
    "  a│s│s│i│s│t│a│n│t│:│\\n\n"
    "+ 0.5 N│o│\\n\n"
    "+ 0.5 y│e│s│\\n\n"
    "+ 0.5 \\n\n"
    "  u│s│e│r│:│\\n\n"
    "  H│m│\ufffd│[│1│m│\\n\n"
    "  \\n\n"
    "  a│s│s│i│s│t│a│n│t│:│\\n\n"
    "+ o│k\n"
  )
  end = "turns ended by ordinary token: 2\nturns ended by EOS of rows: 2\n"
  assert done.stdout == first + first + end
