# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is trained on with templates in the styles of chat models."""

import pytest

from chomp_data import errors
from chomp_data.prepare import chats
from tests.prepare import chat_templates

CALL = '<tool_call>\n{"name": "look", "arguments": {"at": "%s"}}\n</tool_call>'
SKY, SEA = CALL % "sky", CALL % "sea"
IM = "<|im_end|>"
LATER = "adds to what is before it"
# What is trained on with --turns=all, or why not.
EXPECTED = {
  "chatml": {
    "plain": ["No." + IM],
    "system": ["No." + IM],
    "multi-turn": ["No." + IM, "4" + IM],
    "tools": [IM, "It shines." + IM],
    "parallel calls": [IM, "Above." + IM],
    "reasoning": ["4" + IM, "6" + IM],
  },
  "llama3": {
    "plain": ["No.<|eot_id|>"],
    "system": ["No.<|eot_id|>"],
    "multi-turn": ["No.<|eot_id|>", "4<|eot_id|>"],
    "tools": [
      '{"name": "look", "parameters": {"at": "sky"}}<|eot_id|>',
      "It shines.<|eot_id|>",
    ],
    "parallel calls": "One tool call at a time",
    "reasoning": ["4<|eot_id|>", "6<|eot_id|>"],
  },
  "gemma": {
    "plain": ["No.<end_of_turn>"],
    "system": "No system role",
    "multi-turn": ["No.<end_of_turn>", "4<end_of_turn>"],
    "tools": ["<end_of_turn>", "It shines.<end_of_turn>"],
    "parallel calls": ["<end_of_turn>", "Above.<end_of_turn>"],
    "reasoning": ["4<end_of_turn>", "6<end_of_turn>"],
  },
  "mistral": {
    "plain": [" No.</s>"],
    "system": [" No.</s>"],
    "multi-turn": [" No.</s>", " 4</s>"],
    "tools": [
      '[TOOL_CALLS] [{"name": "look", "arguments": {"at": "sky"}}]</s>',
      " It shines.</s>",
    ],
    "parallel calls": [
      '[TOOL_CALLS] [{"name": "look", "arguments": {"at": "sky"}},'
      ' {"name": "look", "arguments": {"at": "sea"}}]</s>',
      " Above.</s>",
    ],
    "reasoning": [" 4</s>", " 6</s>"],
  },
  "glm": {
    "plain": ["No."],
    "system": ["No."],
    "multi-turn": ["No.<|user|>", "4"],
    "tools": [SKY + "<|observation|>", "It shines."],
    "parallel calls": [SKY + SEA + "<|observation|>", "Above."],
    "reasoning": [
      "<think>Two and two.</think>\n4<|user|>",
      "<think>Double.</think>\n6",
    ],
  },
  "qwen2.5": {
    "plain": ["No." + IM],
    "system": ["No." + IM],
    "multi-turn": ["No." + IM, "4" + IM],
    "tools": [SKY + IM, "It shines." + IM],
    "parallel calls": [SKY + SEA + IM, "Above." + IM],
    "reasoning": ["4" + IM, "6" + IM],
  },
  "qwen3": {
    "plain": ["<think>\n\n</think>\n\nNo." + IM],
    "system": ["<think>\n\n</think>\n\nNo." + IM],
    "multi-turn": LATER,
    "tools": LATER,
    "parallel calls": LATER,
    "reasoning": LATER,
  },
}


def documents(name, chat, **changes):
  pytest.importorskip("jinja2")
  template = chat_templates.TEMPLATES[name]
  added = chat_templates.tokenizer_for(template).get_added_tokens_decoder()
  options = chats.ChatOptions(
    template,
    tokens=(("bos_token", "<s>"), ("eos_token", "</s>")),
    special=tuple(token.content for token in added.values()),
    **changes,
  )
  messages, tools = chat_templates.CHATS[chat]
  return chats.documents(messages, options, "a:1", lambda text: text, tools)


def trained(document):
  return [text for text, weight in document.pieces if weight]


@pytest.mark.parametrize("chat", chat_templates.CHATS)
@pytest.mark.parametrize("name", EXPECTED)
def test_what_is_trained_on(name, chat):
  expected = EXPECTED[name][chat]
  if isinstance(expected, str):
    with pytest.raises(errors.BadInput, match=expected):
      documents(name, chat)
  else:
    (document,) = documents(name, chat)
    assert trained(document) == expected
    text = "".join(text for text, _ in document.pieces)
    assert document.counts.get(chats.END_OF_ROWS, 0) == (name == "glm")
    assert document.counts.get(chats.EOS_WRITTEN, 0) == text.endswith("</s>")
