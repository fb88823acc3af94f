# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chats: their text, and what of it is trained on."""

import sys

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import errors
from chomp_data.prepare import chats
from chomp_data.prepare import records
from chomp_data.prepare import templates
from tests import laws

CHAT = [
  {"role": "system", "content": "Be brief."},
  {"role": "user", "content": "Hi"},
  {"role": "assistant", "content": "Hello."},
  {"role": "user", "content": "2 + 2?"},
  {"role": "assistant", "content": "4"},
]
CHATML = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
  "{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKED = """\
{%- for m in messages %}
  {%- if m.role == 'assistant' %}
<|im_start|>assistant
{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}

  {%- else %}
<|im_start|>{{ m.role }}
{{ m.content }}<|im_end|>
  {%- endif %}
{%- endfor %}
"""


def clean(text):
  return text.decode() if isinstance(text, bytes) else text


def made(messages, template=None, special=(), tokens=(), record=(), **options):
  """The documents of a chat."""
  if template is not None:
    pytest.importorskip("jinja2")
  options = chats.ChatOptions(
    template, special=special, tokens=tuple(dict(tokens).items()), **options
  )
  return chats.documents(messages, options, "file:1", clean, **dict(record))


def pieces(messages, template=None, **tokens):
  """The parts of a chat as one document; turns may be open."""
  (document,) = made(messages, template, (), tokens, allow_open_turns=True)
  return document.pieces


def text_of(found):
  return "".join(text for text, _ in found)


def trained(found):
  return [text for text, weight in found if weight]


def test_plain_text_has_a_heading_for_each_message():
  found = pieces(CHAT)
  assert text_of(found) == (
    "system:\nBe brief.\n\nuser:\nHi\n\nassistant:\nHello.\n\n"
    "user:\n2 + 2?\n\nassistant:\n4"
  )
  assert trained(found) == ["Hello.", "\n\n", "4"]
  assert {weight for _, weight in found} == {0.0, 1.0}


@laws.examples(50)
@hypothesis.given(
  st.lists(
    st.tuples(
      st.sampled_from(chats.ROLES), st.text("ab\n:é ", min_size=1)
    ).filter(lambda own: own[1].strip()),
    min_size=1,
  )
)
def test_what_is_trained_on_is_what_the_assistant_says(messages):
  own = [{"role": role, "content": text} for role, text in messages]
  said = [text for role, text in messages if role == "assistant"]
  if said:
    ends = [
      [text] if i == len(messages) - 1 else [text, "\n\n"]
      for i, (role, text) in enumerate(messages)
      if role == "assistant"
    ]
    assert trained(pieces(own)) == [part for end in ends for part in end]
    # The line break after the end of a turn is the template's.
    chatml = [f"{text}<|im_end|>" for text in said]
    assert trained(pieces(own, CHATML)) == chatml
    marked = [f"{text}<|im_end|>" for text in said]
    assert trained(pieces(own, MARKED)) == marked
  else:
    with pytest.raises(errors.BadInput, match="message of role 'assistant'"):
      pieces(own)


def test_a_template_renders_as_chat_models_do():
  text = text_of(pieces(CHAT[:3], CHATML))
  assert text == (
    "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
    "<|im_start|>assistant\nHello.<|im_end|>\n"
  )
  found = pieces(CHAT, "{{ bos_token }}" + CHATML, bos_token="<s>")
  assert text_of(found).startswith("<s><|im_start|>system")
  source = "{{ messages | tojson }}{% generation %}x{% endgeneration %}"
  assert '"content": "<é>"' in text_of(
    pieces([{"role": "assistant", "content": "<é>"}], source)
  )


def test_blocks_say_what_is_trained_on():
  found = pieces(CHAT, MARKED)
  assert trained(found) == ["Hello.<|im_end|>", "4<|im_end|>"]
  assert "generation" not in text_of(found)
  plain = MARKED.replace("{% generation %}", "").replace(
    "{% endgeneration %}", ""
  )
  assert text_of(pieces(CHAT, plain)) == text_of(found)


@pytest.mark.parametrize("template", [None, CHATML, MARKED])
def test_a_message_of_the_assistant_may_have_a_weight(template):
  messages = [dict(own) for own in CHAT]
  messages[2]["weight"] = 0
  messages[4]["weight"] = 0.25
  messages[1]["weight"] = 3  # Of the user: nothing of it is trained on.
  found = pieces(messages, template)
  weights = [weight for text, weight in found if "4" in text or "Hello" in text]
  assert weights == [0.0, 0.25]
  assert {weight for _, weight in found} == {0.0, 0.25}
  assert text_of(found) == text_of(pieces(CHAT, template))


@pytest.mark.parametrize(
  ("messages", "template", "match"),
  [
    ("Hi", None, "list of messages, got a str"),
    (None, None, "got a NoneType"),
    ([], None, "got an empty list"),
    (["Hi"], None, "got a str as message 1"),
    ([{"content": "Hi"}], None, r"role.*None in message 1.*\['content'\]"),
    (CHAT[:2], None, r"'assistant', got only \['system', 'user'\]"),
    ([{"role": "bot", "content": "x"}, *CHAT], None, "got 'bot' in message 1"),
    ([{"role": "user", "content": ""}, *CHAT], None, "got '' in message 1"),
    ([{"role": "user", "content": [1]}, *CHAT], None, "got list in message 1"),
    ([{"role": "user"}, *CHAT], None, "got NoneType in message 1"),
    ([{**CHAT[4], "weight": -1}], None, "weight of 0 or more.*got -1"),
    ([{**CHAT[4], "weight": True}], None, "got True"),
    ([{**CHAT[4], "weight": float("nan")}], None, "got nan"),
    ([{**CHAT[4], "content": "\ufdd0"}], None, r"U\+FDD0"),
    (CHAT, "{{ raise_exception('No system.') }}", "TemplateError: No system."),
    (CHAT, "{{ messages.x.y }}", "UndefinedError"),
    # The same input must give the same store.
    (CHAT, "{{ strftime_now('%d') }}", "'strftime_now' is undefined"),
    (CHAT, "{{ ''.__class__.__mro__ }}", "SecurityError"),
    (
      CHAT,
      "{% for m in messages | reverse %}{{ m.content }}{% endfor %}",
      "message 3 adds to what is before it",
    ),
    (
      CHAT,
      "{% for m in messages if m.role == 'user' %}{{ m.content }}{% endfor %}",
      "message 3 adds to what is before it",
    ),
    (
      CHAT,
      "{% if false %}{% generation %}{% endgeneration %}{% endif %}",
      "blocks one after the other, got 0",
    ),
    (
      [*CHAT[:4], {**CHAT[4], "weight": 2}],
      "{% generation %}{{ messages }}{% endgeneration %}",
      "block for each of 2 messages",
    ),
  ],
)
def test_what_is_no_chat_says_so(messages, template, match):
  with pytest.raises(errors.BadInput, match=match) as caught:
    pieces(messages, template)
  assert str(caught.value).startswith("file:1 must ")


def test_a_template_that_is_none_is_refused():
  pytest.importorskip("jinja2")
  with pytest.raises(errors.PrepareError, match=r"chat\.jinja, line 2"):
    templates.check("a\n{% for %}", "chat.jinja")


def test_a_missing_package_is_named_with_its_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, "jinja2", None)
  with pytest.raises(errors.PrepareError, match=r"chomp_data\[jinja2\]"):
    templates.check("never seen", "chat.jinja")


def options(**changes):
  return records.ReadOptions(raw=False, **changes)


def document(record, **changes):
  (found,) = records.documents(record, "a:1", "/a:1", options(**changes))
  return found


def test_records_of_messages_are_documents():
  found = document(
    {"messages": CHAT, "id": 7, "score": 0.5},
    messages_key="messages",
    weight_key="score",
  )
  assert found.name == "7"
  assert found.weight == 0.5
  assert found.text == text_of(found.pieces)
  assert trained(found.pieces) == ["Hello.", "\n\n", "4"]


def test_records_of_prompts_are_documents():
  keys = {"prompt_key": "p", "completion_key": "in.c"}
  found = document({"p": b"Q: ", "in": {"c": "A"}}, **keys)
  assert found.pieces == (("Q: ", 0.0), ("A", 1.0))
  assert found.text == "Q: A"
  assert options(**keys).keys == ("p", "in.c", "id")
  for record, match in (
    ({"p": "Q"}, r"must have the key 'in\.c', got \['p'\].*--completion_key"),
    ({"p": 3, "in": {"c": "A"}}, "string under 'p', got a int.*--prompt_key"),
    ({"p": "Q", "in": {"c": ""}}, "text to train on under 'in.c'"),
  ):
    with pytest.raises(errors.BadInput, match=match):
      document(record, **keys)


def test_text_of_chats_is_valid_unicode():
  messages = [{"role": "assistant", "content": "a\ud800"}]
  with pytest.raises(errors.BadInput, match="valid Unicode"):
    document({"m": messages}, messages_key="m")


@pytest.mark.parametrize("weight", [None, "1", -0.5, float("inf")])
def test_a_weight_is_a_number(weight):
  with pytest.raises(errors.BadInput, match="weight of 0 or more under 'w'"):
    document({"text": "a", "w": weight}, weight_key="w")
  with pytest.raises(errors.BadInput, match="--weight_key"):
    document({"text": "a"}, weight_key="w")


@pytest.mark.parametrize("value", [1e-60, 1e39, 10**400, -1, True, "1"])
def test_weights_that_float32_does_not_hold_are_refused(value):
  with pytest.raises(errors.BadInput, match=r"weight of 0 or more in it that"):
    chats.checked_weight(value, "in it", "file:1")


@pytest.mark.parametrize("value", [0, -0.0, 0.1, 3, 1e-30])
def test_weights_are_those_that_stores_keep(value):
  found = chats.checked_weight(value, "in it", "file:1")
  assert found == np.float32(value)
  assert np.copysign(1, found) == 1
