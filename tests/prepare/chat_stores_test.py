"""From chats to batches: what the assistant says, and nothing else."""

import json
import re

import ml_collections
import numpy as np
import pytest

from chomp_data import errors
from chomp_data import pipeline
from chomp_data import stores
from chomp_data.prepare import own_tokenizer
from chomp_data.prepare import tokenizers
from tests import in_process

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
  begin, length = store.bounds(np.asarray([document]))
  tokens = store.read_document(document)
  trained = np.zeros(len(tokens), bool)
  _, low, high, level = store.label_runs(begin, length)
  for first, last, own in zip(low, high, level, strict=True):
    trained[first:last] = store.levels[own] > 0
  return tokens[trained].astype(np.uint8).tobytes().decode()


def test_bytes_trained_on_are_those_of_the_assistant(lines, prepare):
  store, _ = prepare(lines, messages_key="messages", shard_bytes=500)
  assert store.has_labels
  for i in range(store.num_documents):
    assert trained_text(store, i) == "".join(said(chat(i)))
    assert store.document_id(i) == f"chat {i}"
  total = sum(len("".join(said(chat(i))).encode()) for i in range(40))
  assert store.trained_before(np.asarray([store.num_tokens])) == [total]


def test_stores_of_text_say_nothing_of_labels(corpus, prepare):
  store, _ = prepare(corpus)
  assert not store.has_labels
  assert not store.has_weights


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
  assert store.levels.tolist() == [0.0, 1.0, 0.5, 2.25]
  assert store.document_weights(np.arange(6)).tolist() == [
    record["score"] for record in records
  ]
  assert trained_text(store, 4) == "".join(said(records[4])[1:])
  begin, length = store.bounds(np.asarray([1]))
  assert set(store.label_runs(begin, length)[3].tolist()) == {0, 1, 2}


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
    chat_template=template,
    train=own_tokenizer.TrainOptions("bpe", 300),
  )
  info = store.tokenizer_info
  tokens = store.read_document(1)
  assert tokens[0] == info.bos_id
  assert tokens[-1] == info.eos_id
  assert (tokens == info.eos_id).sum() == 4
  text = tokenizers.load_tokenizer(store).decode(tokens)
  assert text.startswith("<|bos|>user:ask 1 ")
  begin, length = store.bounds(np.asarray([1]))
  _, low, high, level = store.label_runs(begin, length)
  spoken = [
    tokenizers.load_tokenizer(store).decode(tokens[a:b])
    for a, b, own in zip(low, high, level, strict=True)
    if own
  ]
  expected = [f"assistant:{text}<|eos|>" for text in said(chat(1))]
  assert spoken == expected


def test_batches_train_on_what_the_assistant_says(lines, prepare):
  store, _ = prepare(lines, messages_key="messages")
  config = ml_collections.ConfigDict(
    {
      "data": {
        "global_batch_size": 4,
        "seq_len": 256,
        "epochs": 1,
        "remainder": "pad",
        "sources": {
          "chats": {
            "store": store.path,
            "rows": {"kind": "bin", "add_eos": True},
          }
        },
      }
    }
  )
  pipe = pipeline.build(config.data)
  found = []
  for step in range(pipe.num_steps):
    batch = pipe.batch(step)
    for tokens, mask, segments in zip(
      batch["tokens"], batch["loss_mask"], batch["segment_ids"], strict=True
    ):
      for number in range(1, segments.max() + 1):
        own = np.flatnonzero(segments == number)
        targets = tokens[own[mask[own]] + 1]
        text = targets[targets < 256].astype(np.uint8).tobytes().decode()
        found.append(text)
        # The end of an answer is learnt, too.
        assert targets[-1] == store.tokenizer_info.eos_id
  assert sorted(found) == sorted("".join(said(chat(i))) for i in range(40))


@pytest.mark.parametrize(
  ("line", "match"),
  [
    ('{"messages": []}', "a message, got an empty list"),
    ('{"messages": [{"role": "user", "content": "x"}]}', "'assistant'"),
    ('{"messages": [{"role": "x", "content": "x"}]}', "assistant"),
    ('{"text": "x"}', "must have the key 'messages'"),
  ],
)
def test_what_is_no_chat_is_named_or_counted(tmp_path, prepare, line, match):
  path = tmp_path / "chats.jsonl"
  path.write_text(f"{json.dumps(chat(0))}\n{line}\n{json.dumps(chat(1))}\n")
  with pytest.raises(errors.BadInput, match=rf"chats\.jsonl:2 .*{match}"):
    prepare(path, messages_key="messages")
  store, _ = prepare(path, messages_key="messages", on_error="skip")
  assert store.num_documents == 2
  assert store.manifest.prepared["skipped"]["lines"] == 1


@pytest.mark.parametrize(
  ("flags", "match"),
  [
    (["--prompt_key=q"], "--completion_key` must be given together"),
    (
      ["--messages_key=m", "--prompt_key=q", "--completion_key=a"],
      "must not be given with --messages_key",
    ),
    (["--chat_template=nowhere.jinja"], "nowhere.jinja"),
    (["--messages_key="], "`--messages_key` must not be empty"),
    (
      ["--weight_key=w", "--format=array_record"],
      "`--weight_key` must not be given with --format=array_record",
    ),
  ],
)
def test_flags_that_do_not_fit_are_one_line(lines, tmp_path, flags, match):
  done = in_process.run_tool(
    "prepare", f"--input={lines}", f"--output={tmp_path / 'out'}", *flags
  )
  assert done.returncode == 1
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: ")
  assert match in line


def test_the_tool_prepares_chats_by_a_template(lines, tmp_path):
  pytest.importorskip("jinja2")
  template = tmp_path / "chat.jinja"
  template.write_text(
    "{% for m in messages %}{{ m.content }}\n{% endfor %}", "utf-8"
  )
  flags = (
    f"--input={lines}", f"--output={tmp_path / 'out'}",
    "--messages_key=messages", f"--chat_template={template}",
    "--weight_key=score",
  )  # fmt: skip
  done = in_process.run_tool("prepare", *flags, check=True)
  assert re.search(r"trained on +[\d,]+ tokens \([\d.]+%\)", done.stdout)
  store = stores.open_store(tmp_path / "out")
  assert trained_text(store, 1) == "".join(f"{own}\n" for own in said(chat(1)))
  again = in_process.run_tool("prepare", *flags, check=True)
  assert "nothing to do" in again.stdout
  template.write_text(template.read_text() + "{# other #}")
  other = in_process.run_tool("prepare", *flags)
  assert "chat_template" in other.stderr
