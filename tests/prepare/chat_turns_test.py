# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What ends the turns of chats, what templates get, and what is counted."""

import json
import time

import pytest

from chomp_data import errors
from chomp_data.prepare import chats
from chomp_data.prepare import templates
from tests.prepare import chats_test

CHAT = chats_test.CHAT
made, trained, text_of = chats_test.made, chats_test.trained, chats_test.text_of

CHATML = chats_test.CHATML
IM = ("<|im_start|>", "<|im_end|>")
# Ends no turn by a token of its own, as GLM and others.
GLM = (
  "{% for m in messages %}<|{{ m.role }}|>\n{{ m.content }}"
  "{% for c in m.tool_calls or [] %}<tool_call>{{ c.function.name }}"
  "</tool_call>{% endfor %}{% endfor %}"
  "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
ROLES = ("<|user|>", "<|assistant|>", "<|system|>", "<|tool|>")
# Shows only the reasoning of the last answer, as Qwen 3.
QWEN = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n"
  "{% if loop.last and m.reasoning_content %}<think>{{ m.reasoning_content }}"
  "</think>{% endif %}{{ m.content }}<|im_end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
REASONED = [
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello.", "reasoning_content": "A greeting"},
  {"role": "user", "content": "2 + 2?"},
  {"role": "assistant", "content": "4", "reasoning_content": "A sum"},
]
CALLS = [
  {"role": "user", "content": "Sun?"},
  {
    "role": "assistant",
    "content": "",
    "tool_calls": [
      {"function": {"name": "look", "arguments": '{"at": "sky"}'}}
    ],
  },
  {"role": "tool", "content": "yes"},
  {"role": "assistant", "content": "It shines."},
]


def one(*args, **changes):
  (document,) = made(*args, **changes)
  return document


def test_else_it_ends_with_the_token_that_opens_the_next_message():
  found = one(CALLS, GLM, ROLES)
  assert trained(found.pieces) == [
    "<tool_call>look</tool_call><|tool|>",
    "It shines.",
  ]
  assert found.counts == {"special token <|tool|>": 1, "EOS of rows": 1}
  found = one([*CALLS, CALLS[0]], GLM, ROLES)
  assert trained(found.pieces)[1] == "It shines.<|user|>"
  assert found.counts == {
    "special token <|tool|>": 1,
    "special token <|user|>": 1,
  }


def test_the_token_that_ends_a_turn_weighs_what_the_answer_weighs():
  messages = [dict(own) for own in CALLS]
  messages[1]["weight"] = 0.5
  messages[3]["weight"] = 0
  found = one(messages, GLM, ROLES)
  assert [own for own in found.pieces if own[1]] == [
    ("<tool_call>look</tool_call><|tool|>", 0.5)
  ]
  # The last answer is not trained on, and so no EOS is asked for.
  assert found.counts == {"special token <|tool|>": 1}


@pytest.mark.parametrize(
  "closing", ["</think>", "</tool_call>", "<|call_tool|>"]
)
def test_what_closes_a_part_of_a_message_ends_no_turn(closing):
  template = GLM.replace("{{ m.content }}", "{{ m.content }}" + closing)
  found = one(CHAT, template, (*ROLES, closing))
  assert trained(found.pieces) == [f"Hello.{closing}<|user|>", f"4{closing}"]


def test_the_token_that_opens_a_tools_answer_may_end_a_call():
  template = GLM.replace(
    "</tool_call>", "</tool_call><|tool_response>"
  ).replace(
    "{{ m.content }}",
    "{{ m.content }}{% if not m.tool_calls %}<turn|>{% endif %}",
  )
  special = (*ROLES, "</tool_call>", "<|tool_response>", "<turn|>")
  found = one(CALLS, template, special)
  assert trained(found.pieces) == [
    "<tool_call>look</tool_call><|tool_response>",
    "It shines.<turn|>",
  ]


def test_an_eos_that_only_some_answers_have_ends_them():
  template = GLM.replace(
    "{{ m.content }}",
    "{{ m.content }}{% if m.content == '4' %}{{ eos_token }}{% endif %}",
  )
  found = one(CHAT, template, ROLES, {"eos_token": "</s>"})
  assert trained(found.pieces) == ["Hello.<|user|>", "4</s>"]
  assert found.counts == {
    "special token <|user|>": 1,
    "special token </s>": 1,
    "documents that end with EOS": 1,
  }


def test_templates_whose_messages_end_with_several_tokens():
  template = (
    "{% for m in messages %}<|start|>{{ m.role }}<|message|>"
    "{% if m.tool_calls %}call<|call|>{% else %}{{ m.content }}"
    "{{ '<|return|>' if m.role == 'assistant' else '<|end|>' }}{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start|>assistant{% endif %}"
  )
  special = ("<|start|>", "<|message|>", "<|call|>", "<|return|>", "<|end|>")
  found = one(CALLS, template, special)
  assert trained(found.pieces) == [
    "<|message|>call<|call|>",
    "<|message|>It shines.<|return|>",
  ]


def test_ordinary_text_may_end_turns():
  found = one(CHAT, CHATML)  # Of the byte tokenizer: no special tokens.
  assert trained(found.pieces) == ["Hello.<|im_end|>", "4<|im_end|>"]
  assert found.counts == {"ordinary token": 2}
  lines = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
  prompt = "{% if add_generation_prompt %}assistant: {% endif %}"
  found = one(CHAT, lines + prompt)
  assert trained(found.pieces) == ["Hello.\n", "4\n"]
  # A line break does not end a chat: EOS of rows does, and is trained on.
  assert found.counts == {"ordinary token": 1, "EOS of rows": 1}


def test_turns_that_nothing_ends_are_rejected_unless_allowed():
  template = (
    "{% for m in messages %}"
    "{% if m.role == 'assistant' %}<|assistant|>"
    "{% generation %}{{ m.content }}{% endgeneration %}<|im_end|>"
    "{% else %}<|user|>{{ m.content }}{% endif %}{% endfor %}"
  )
  with pytest.raises(
    errors.BadInput, match="got 2 whose end no token"
  ) as error:
    made(CHAT, template, IM)
  assert error.value.reason == "open turn"
  found = one(CHAT, template, IM, allow_open_turns=True)
  assert found.counts == {"nothing": 2}
  assert trained(found.pieces) == ["Hello.", "4"]


def test_one_answer_may_have_several_blocks():
  part = "{% generation %}{{ m.content }}{% endgeneration %}"
  end = "{% generation %}<|im_end|>{% endgeneration %}"
  template = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n"
    "{% if m.role == 'assistant' %}" + part + end + "{% else %}"
    "{{ m.content }}<|im_end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
  )
  messages = [dict(own) for own in CHAT]
  messages[2]["weight"] = 2
  found = one(messages, template, IM)
  assert [own for own in found.pieces if own[1]] == [
    ("Hello.", 2.0), ("<|im_end|>", 2.0), ("4", 1.0), ("<|im_end|>", 1.0),
  ]  # fmt: skip
  assert found.counts == {"special token <|im_end|>": 2}
  found = one(CHAT, template, IM, turns="last")
  assert trained(found.pieces) == ["4", "<|im_end|>"]


@pytest.mark.parametrize("template", [None, CHATML, chats_test.MARKED])
def test_turns_last_trains_on_the_last_answer_only(template):
  found = one(CHAT, template, IM, turns="last")
  assert text_of(found.pieces) == text_of(one(CHAT, template, IM).pieces)
  assert "".join(trained(found.pieces)).startswith("4")
  assert sum(found.counts.values()) == 1


@pytest.mark.parametrize("template", [None, CHATML, QWEN])
def test_turns_each_makes_a_document_of_each_answer(template):
  first, second = made(REASONED if template else CHAT[1:], template, IM,
                       turns="each")  # fmt: skip
  assert (first.answer, second.answer) == (1, 3)
  if template == QWEN:
    prompt = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    assert text_of(first.pieces) == (
      f"{prompt}<think>A greeting</think>Hello.<|im_end|>\n"
    )
    assert trained(first.pieces) == [
      "<think>A greeting</think>Hello.<|im_end|>"
    ]
    assert text_of(second.pieces) == (
      f"{prompt}Hello.<|im_end|>\n<|im_start|>user\n2 + 2?<|im_end|>\n"
      "<|im_start|>assistant\n<think>A sum</think>4<|im_end|>\n"
    )
    assert trained(second.pieces) == ["<think>A sum</think>4<|im_end|>"]


def test_templates_that_drop_earlier_reasoning_need_a_document_each():
  with pytest.raises(
    errors.BadInput, match=r"message 2 adds.*--turns=each or --turns=last"
  ):
    made(REASONED, QWEN, IM)
  assert trained(one(REASONED, QWEN, IM, turns="last").pieces) == [
    "<think>A sum</think>4<|im_end|>"
  ]


def test_an_answer_must_continue_its_prompt():
  template = QWEN.replace("assistant\n{% endif %}", "assistant\n<t>{% endif %}")
  for turns in ("all", "last", "each"):
    with pytest.raises(errors.BadInput, match=r"message \d adds"):
      made(REASONED, template, IM, turns=turns)


def test_templates_get_tools_and_all_keys_of_messages():
  template = "{{ tools | tojson }}{{ messages | tojson }}" + CHATML
  tools = [{"type": "function", "function": {"name": "look"}}]
  found = one(CHAT, "{{ tools is none }}" + CHATML, IM)
  assert text_of(found.pieces).startswith("True<|im_start|>")
  for given in (tools, json.dumps(tools)):
    text = templates.render(template, {"messages": CALLS, "tools": tools}, "x")
    document = one(CALLS, template + "{% generation %}x{% endgeneration %}",
                   record={"tools": given})  # fmt: skip
    assert text_of(document.pieces) == text + "x"


def test_arguments_stay_unless_they_are_to_be_parsed():
  template = "{{ messages[1].tool_calls[0].function.arguments | tojson }}" + (
    "{% generation %}.{% endgeneration %}"
  )
  kept = '"{\\"at\\": \\"sky\\"}".'
  assert text_of(one(CALLS, template).pieces) == kept
  found = one(CALLS, template, parse_arguments=True)
  assert text_of(found.pieces) == '{"at": "sky"}.'
  broken = json.loads(json.dumps(CALLS))
  broken[1]["tool_calls"][0]["function"]["arguments"] = "{"
  with pytest.raises(errors.BadInput, match="JSON as arguments in message 2"):
    made(broken, template, parse_arguments=True)


def test_variables_of_templates_come_from_flags_and_records():
  template = "{{ mode }}{{ more }}" + CHATML
  changes = {"template_kwargs": '{"mode": "a", "more": 1}', "special": IM}
  found = one(CHAT, template, **changes)
  assert text_of(found.pieces).startswith("a1<|im_start|>")
  found = one(CHAT, template, record={"kwargs": {"mode": "b"}}, **changes)
  assert text_of(found.pieces).startswith("b1<|im_start|>")
  with pytest.raises(errors.BadInput, match="'tools'"):
    made(CHAT, template, record={"kwargs": {"tools": []}}, **changes)


def test_a_date_takes_the_place_of_the_clock():
  template = "{{ strftime_now('%d %b %Y') }}" + CHATML
  kwargs = '{"strftime_now": "2026-01-31"}'
  found = one(CHAT, template, IM, template_kwargs=kwargs)
  assert text_of(found.pieces).startswith("31 Jan 2026<|im_start|>")
  with pytest.raises(errors.BadInput, match="a date as strftime_now, got 'x'"):
    made(CHAT, template, IM, template_kwargs='{"strftime_now": "x"}')


def test_variables_that_nothing_defines_are_named():
  template = "{{ bos_token }}{{ mode }}{{ b }}{% set c = a %}{{ c }}" + CHATML
  options = chats.ChatOptions(
    template, template_kwargs='{"mode": 1}', tokens=(("bos_token", "<s>"),)
  )
  found = one(CHAT, template, IM, record={"kwargs": {"b": 2}})
  assert chats.summary(options, {})["undefined_variables"] == ["a", "b"]
  assert chats.summary(options, found.counts)["undefined_variables"] == ["a"]


def test_empty_answers_are_counted():
  messages = [*CHAT[:2], {"role": "assistant", "content": "  "}, *CHAT[3:]]
  found = one(messages, CHATML, IM)
  assert found.counts == {"special token <|im_end|>": 2, "empty answers": 1}
  messages[2]["weight"] = 0
  assert "empty answers" not in one(messages, CHATML, IM).counts
  assert "empty answers" not in one(CALLS, CHATML, IM).counts
  # Nothing of its own, and still an end.
  found = one([*CHAT[:2], {"role": "assistant"}, *CHAT[3:]], GLM, ROLES)
  assert trained(found.pieces)[0] == "<|user|>"


def test_sharegpt_is_read_by_other_names():
  messages = [
    {"from": "human", "value": "Hi"},
    {"from": "gpt", "value": "Hello.", "weight": 0.5},
  ]
  names = {
    "message_keys": (("role", "from"), ("content", "value")),
    "message_roles": chats.SHAREGPT_ROLES,
  }
  found = one(messages, **names)
  assert found.pieces == (
    ("user:\n", 0.0), ("Hi", 0.0), ("\n\n", 0.0), ("assistant:\n", 0.0),
    ("Hello.", 0.5),
  )  # fmt: skip
  with pytest.raises(errors.BadInput, match="--message_keys=role=from,content"):
    made(messages)


@pytest.mark.parametrize(
  ("message", "record", "match"),
  [
    ({}, {"tools": [{}]}, "no tools in plain text, got 1"),
    ({"tool_calls": [{}]}, {}, "text only, got 'tool_calls' in message 5"),
    ({"reasoning": "x"}, {}, "text only, got 'reasoning_content'"),
    ({}, {"tools": 3}, "a list as tools, got a int"),
    ({}, {"tools": "["}, "JSON as tools"),
    ({}, {"kwargs": [1]}, "an object as template variables, got a list"),
  ],
)
def test_plain_text_drops_nothing_silently(message, record, match):
  with pytest.raises(errors.BadInput, match=match):
    made([*CHAT[:4], {**CHAT[4], **message}], record=record)


def test_reasoning_has_the_names_that_templates_read():
  template = (
    "{{ messages[0].thinking }}{{ messages[0].reasoning_content }}"
    "{% generation %}.{% endgeneration %}"
  )
  for name in ("reasoning", "thinking", "reasoning_content"):
    message = {"role": "assistant", "content": "x", name: "Hm"}
    assert text_of(one([message], template).pieces) == "HmHm."
  # As transformers does: a null is no value.
  message = {"role": "assistant", "content": None, "reasoning": None}
  source = "{{ messages | tojson }}{% generation %}.{% endgeneration %}"
  assert text_of(one([message], source).pieces) == '[{"role": "assistant"}].'


LOOP = "{% for i in range(99999) %}"


@pytest.mark.parametrize(
  ("source", "match"),
  [
    (LOOP * 3 + "{% endfor %}" * 3, "steps of loops and calls"),
    (
      "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}"
      "{% endmacro %}{{ m(60) }}",
      "steps of loops and calls",
    ),
    (
      "{% for i in [1] recursive %}{{ loop(range(99999)) }}{% endfor %}",
      "recursion|steps of loops",
    ),
    ("{{ 'a' * 10 ** 9 }}", "characters or items"),
    ("{{ 2 ** (10 ** 9) }}", "characters or items"),
    (LOOP + "{{ 'a' * 9999 }}{% endfor %}", "characters or items"),
    (
      "{% set ns = namespace(s='aaaa') %}{% for i in range(99) %}"
      "{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
      "characters or items",
    ),
    (
      "{% set ns = namespace(s='aaaa') %}{% for i in range(99) %}"
      "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}"
      "{% endfor %}",
      "characters or items",
    ),
  ],
)
def test_the_work_of_a_template_is_bounded(source, match, monkeypatch):
  pytest.importorskip("jinja2")
  monkeypatch.setattr(templates, "MAX_SIZE", 2**20)
  begin = time.process_time()
  with pytest.raises(
    errors.BadInput, match=rf"file:1 .*template of --chat_template.*({match})"
  ):
    templates.render(source, {}, "file:1")
  assert time.process_time() - begin < 60


@pytest.mark.parametrize(
  "source",
  [
    "{% break %}",
    "{% if 1 %}" * 3_000 + "{% endif %}" * 3_000,
    "{{ " + "(" * 3_000 + "1" + ")" * 3_000 + " }}",
    "{% for i in [1] %}" * 30 + "{% endfor %}" * 30,
  ],
)
def test_templates_that_python_cannot_compile_are_one_error(source):
  pytest.importorskip("jinja2")
  with pytest.raises(
    errors.PrepareError, match=r"--chat_template.*chat\.jinja"
  ):
    templates.check(source, "chat.jinja")


def test_bounded_loops_are_those_of_jinja():
  pytest.importorskip("jinja2")
  source = (
    "{% for x in [1, 2, 3] %}{{ loop.index }}/{{ loop.length }}"
    "{{ loop.nextitem }}{{ ',' if not loop.last }}{% endfor %} "
    "{% for k, v in {'a': 1}.items() if v %}{{ k ~ v }}{% endfor %} "
    "{% set y | upper %}b{{ 1 + 1 }}{% endset %}{{ y }} "
    "{% for q in nothing %}{% else %}none{% endfor %} "
    "{% for x in [1, [2, [3]]] recursive %}"
    "{{ loop(x) if x is iterable else x }}{% endfor %}"
  )
  text = templates.render(source, {}, "x")
  assert text == "1/32,2/33,3/3 a1 B2 none 123"


def test_messages_nested_too_deeply_are_named():
  value = "x"
  for _ in range(2_000):
    value = [value]
  with pytest.raises(errors.BadInput, match="file:1 must not be nested deeply"):
    made([{"role": "assistant", "content": value}])
