# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chats token by token as transformers makes them: `make test-chats`.

The reference is `apply_chat_template`, with the masks of its `{% generation %}`
blocks, on the templates that TRL ships and on those of `chat_templates`. It
needs transformers, and TRL's files without TRL's own packages.
"""

import datetime
import functools
import importlib.util
import json
import pathlib
import random

import numpy as np
import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import chats
from chomp_data.prepare import labelled
from chomp_data.prepare import records
from chomp_data.prepare import run
from chomp_data.prepare import templates
from chomp_data.prepare import tokenizers
from tests.prepare import chat_templates

transformers = pytest.importorskip(
  "transformers", reason="`make test-chats` runs this"
)

_TRL = importlib.util.find_spec("trl")
_FOLDERS = (_TRL and _TRL.submodule_search_locations) or []
SHIPPED = {
  path.stem: path.read_text("utf-8")
  for folder in _FOLDERS
  for path in sorted(pathlib.Path(folder, "chat_templates").glob("*.jinja"))
}
TRAINING = [name for name in SHIPPED if name.endswith("_training")]
DATE = "2026-01-31"

# Template and chat that `--turns=all` rejects although transformers renders
# it: 'open turn' is a turn that nothing ends which the template's blocks hold.
REJECTED = {
  ("diffusion_gemma_training", "tools"): "open turn",
  ("diffusion_gemma_training", "parallel calls"): "open turn",
}


@pytest.fixture(autouse=True)
def clock(monkeypatch):
  """A date for both sides."""

  class Date(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
      return cls.fromisoformat(DATE)

  module = transformers.utils.chat_template_utils
  monkeypatch.setattr(module, "datetime", Date)


class Both:
  """A template by both: ours and transformers'."""

  def __init__(self, template, folder):
    path = folder / "tokenizer.json"
    chat_templates.tokenizer_for(template).save(str(path))
    self.path, self.template = path, template
    self.own = tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(path)))
    self.reference = transformers.PreTrainedTokenizerFast(
      tokenizer_file=str(path),
      bos_token="<s>",
      eos_token="</s>",
      pad_token="<pad>",
    )

  def documents(self, messages, tools, **changes):
    """(tokens, mask, number of the answer) of each document."""
    options = chats.ChatOptions(
      self.template,
      template_kwargs=json.dumps({"strftime_now": DATE}),
      tokens=tokenizers.special_texts(self.own),
      special=tokenizers.all_special_texts(self.own),
      **changes,
    )
    read = records.ReadOptions(text_key="t", raw=False, messages_key="m")
    for chat in chats.documents(messages, options, "a:1", str, tools):
      document = records.Document("", "", "", chat.pieces)
      found = labelled.encode(self.own, [document], read)
      starts, weights = found.labels
      runs = np.diff(np.append(starts, len(found.tokens)))
      mask = np.repeat(weights, runs) > 0
      yield found.tokens.tolist(), mask.tolist(), chat.answer

  def expected(self, messages, tools, **changes):
    """(tokens, mask)."""
    found = self.reference.apply_chat_template(
      messages,
      tools=tools,
      chat_template=self.template,
      return_dict=True,
      return_assistant_tokens_mask=True,
      **changes,
    )
    return found["input_ids"], [bool(own) for own in found["assistant_masks"]]


def chat_of(template, name):
  """A chat in the form that a template takes, and tools."""
  messages, tools = chat_templates.CHATS[name]
  if "content'][0]" in template or "in message['content']" in template:
    # Templates with pictures take content as a list of parts.
    messages = [
      {**own, "content": [{"type": "text", "text": own["content"]}]}
      for own in messages
    ]
  return messages, tools


def outcome(call, kinds=Exception):
  """Returns what a call returns, else None, and what it raises."""
  try:
    return call(), None
  except kinds as error:  # Templates may raise anything.
    return None, error


@pytest.mark.skipif(not SHIPPED, reason="TRL is not installed")
def test_trl_ships_templates_for_training():
  assert len(TRAINING) >= 20
  assert all(templates.has_generation(SHIPPED[name]) for name in TRAINING)


@pytest.mark.parametrize("chat", chat_templates.CHATS)
@pytest.mark.parametrize("name", TRAINING)
def test_training_templates_of_trl_give_the_same_tokens_and_masks(
  name, chat, tmp_path
):
  both = Both(SHIPPED[name], tmp_path)
  messages, tools = chat_of(SHIPPED[name], chat)
  found, error = outcome(
    lambda: list(both.documents(messages, tools)), errors.BadInput
  )
  expected, refused = outcome(lambda: both.expected(messages, tools))
  if expected is None:
    assert error.reason == "not rendered"
    assert str(refused) in str(error)
    return
  if (name, chat) in REJECTED:
    assert error.reason == REJECTED[name, chat]
    open_turns = {"allow_open_turns": True}
    found = list(both.documents(messages, tools, **open_turns))
  assert found, error
  assert found == [(*expected, None)]


@pytest.mark.parametrize("chat", chat_templates.CHATS)
@pytest.mark.parametrize("name", [*chat_templates.TEMPLATES, *SHIPPED])
def test_documents_of_each_answer_continue_their_prompts(name, chat, tmp_path):
  template = {**chat_templates.TEMPLATES, **SHIPPED}[name]
  both = Both(template, tmp_path)
  messages, tools = chat_of(template, chat)
  options = {"turns": "each", "allow_open_turns": True}
  found, error = outcome(
    lambda: list(both.documents(messages, tools, **options)), errors.BadInput
  )
  answers = [i for i, own in enumerate(messages) if own["role"] == "assistant"]
  if found is None:
    # Because the reference refuses it, or its answers do not continue prompts.
    assert error.reason == "not rendered"
    if "adds to what is before it" in str(error):
      assert not all(continues(both, messages[: k + 1], tools) for k in answers)
    else:
      parts = [(k + more, more == 0) for k in answers for more in (0, 1)]
      reasons = []
      for k, prompt in parts:
        _, refused = outcome(
          functools.partial(
            both.expected, messages[:k], tools, add_generation_prompt=prompt
          )
        )
        reasons.append(str(refused))
      assert any(reason in str(error) for reason in reasons)
    return
  assert [answer for _, _, answer in found] == answers
  for tokens, mask, k in found:
    expected, blocks = both.expected(messages[: k + 1], tools)
    prompt, _ = both.expected(messages[:k], tools, add_generation_prompt=True)
    assert tokens == expected
    assert any(mask)
    if not templates.has_generation(template):
      # Up to a token that holds the end of the prompt and the begin of the
      # answer, nothing of the prompt is trained on.
      assert not any(mask[: len(prompt) - 1])
    elif k == answers[0]:
      assert mask == blocks


def continues(both, messages, tools):
  """Whether the reference renders an answer after its prompt."""

  def text(messages, **changes):
    return both.reference.apply_chat_template(
      messages,
      tools=tools,
      chat_template=both.template,
      tokenize=False,
      **changes,
    )

  prompt = text(messages[:-1], add_generation_prompt=True)
  whole = text(messages)
  return whole.startswith(prompt) and len(whole) > len(prompt)


@pytest.mark.parametrize("chat", chat_templates.CHATS)
@pytest.mark.parametrize("name", [*chat_templates.TEMPLATES, *SHIPPED])
def test_whole_chats_have_the_same_tokens(name, chat, tmp_path):
  template = {**chat_templates.TEMPLATES, **SHIPPED}[name]
  both = Both(template, tmp_path)
  messages, tools = chat_of(template, chat)
  # Nothing is trained on, so that no template is rejected for its prompts.
  messages = [
    {**own, "weight": 0} if own["role"] == "assistant" else own
    for own in messages
  ]
  found, error = outcome(
    lambda: list(both.documents(messages, tools)), errors.BadInput
  )
  expected, refused = outcome(lambda: both.expected(messages, tools))
  if expected is None:
    assert str(refused) in str(error)
  else:
    assert [own[0] for own in found] == [expected[0]]


@pytest.mark.parametrize("suffix", ["jsonl", "parquet"])
@pytest.mark.parametrize("name", ["llama3", "glm", "qwen2.5"])
def test_a_hundred_chats_with_tools_count_as_transformers_does(
  name, suffix, tmp_path
):
  both = Both(chat_templates.TEMPLATES[name], tmp_path)
  chance = random.Random(0)
  rows = []
  for i in range(100):
    messages, tools = chat_templates.CHATS["tools"]
    messages = json.loads(json.dumps(messages))
    messages[0]["content"] = "Sun? " * chance.randint(1, 20)
    # Arrow gives each object the keys of all of them.
    arguments = {"at": "sky"} if i % 2 else {"in": f"{i}"}
    messages[1]["tool_calls"][0]["function"]["arguments"] = arguments
    rows.append({"id": f"{i}", "messages": messages, "tools": tools})
  path = tmp_path / f"chats.{suffix}"
  if suffix == "jsonl":
    path.write_text("\n".join(map(json.dumps, rows)))
  else:
    arrow = pytest.importorskip("pyarrow")
    parquet = importlib.import_module("pyarrow.parquet")
    parquet.write_table(arrow.Table.from_pylist(rows), path)
  store, _ = run.prepare(
    run.Options(
      inputs=(str(path),),
      output=str(tmp_path / "out"),
      tokenizer=tokenizers.TokenizerSpec(str(both.path)),
      messages_key="messages",
      chat=chats.ChatOptions(both.template),
    )
  )
  for i, row in enumerate(rows):
    tokens, _ = both.expected(row["messages"], row["tools"])
    assert stores.read_document(store, i).tolist() == tokens
