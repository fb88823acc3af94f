# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Templates in the styles of chat models, chats, and a small tokenizer.

The templates follow the formats that the models' documentation describes; none
is a model's own file.
"""

import re

import tokenizers as hf

from tests.prepare import corpora

_SPECIAL = re.compile(
  r"<\|[\w▁]+\|>|<\|[\w▁]+>|<[\w▁]+\|>|<\uff5c[^\uff5c<>]+\uff5c>"
  r"|</?(?:think|tool_call|tool_response|start_of_turn|end_of_turn|s|sop"
  r"|end_of_utterance)>|\[/?[A-Z_]{3,}\]|\[gMASK\]"
)
# Not called special in the tokenizers of models either.
_ORDINARY = re.compile(r"think|tool_call|tool_response")
TEXTS = [
  "user assistant The answer is blue, look at the sky. Paris tool name\n\n",
  '{"name": "look", "arguments": {"at": "sky"}} It shines. Two and two.\n',
]

TOOL_CALL = (
  '{% for c in m.tool_calls %}<tool_call>\n{"name": "{{ c.function.name }}",'
  ' "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>'
  "{% endfor %}"
)

CHATML = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
  "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3 = (
  "{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n"
  "{% for t in tools %}{{ t | tojson(indent=2) }}\n{% endfor %}<|eot_id|>"
  "{% endif %}{% for m in messages %}"
  "<|start_header_id|>{{ 'ipython' if m.role == 'tool' else m.role }}"
  "<|end_header_id|>\n\n{% if m.tool_calls %}"
  "{% if m.tool_calls | length != 1 %}"
  "{{ raise_exception('One tool call at a time.') }}{% endif %}"
  '{"name": "{{ m.tool_calls[0].function.name }}", "parameters":'
  " {{ m.tool_calls[0].function.arguments | tojson }}}"
  "{% else %}{{ m.content | trim }}{% endif %}<|eot_id|>{% endfor %}"
  "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>"
  "\n\n{% endif %}"
)
GEMMA = (
  "{{ bos_token }}{% if messages[0].role == 'system' %}"
  "{{ raise_exception('No system role.') }}{% endif %}"
  "{% for m in messages %}<start_of_turn>"
  "{{ 'model' if m.role == 'assistant' else m.role }}\n"
  "{{ m.content | trim }}<end_of_turn>\n{% endfor %}"
  "{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
# Tools stand before the last message of the user.
MISTRAL = (
  "{{ bos_token }}{% for m in messages %}"
  "{% if m.role == 'user' %}"
  "{% if tools and not messages[loop.index:] | selectattr('role', 'eq', 'user')"
  " | list %}[AVAILABLE_TOOLS] {{ tools | tojson }}[/AVAILABLE_TOOLS]"
  "{% endif %}"
  "[INST] {{ m.content }}[/INST]"
  "{% elif m.role == 'system' %}[SYSTEM_PROMPT]{{ m.content }}[/SYSTEM_PROMPT]"
  "{% elif m.role == 'tool' %}[TOOL_RESULTS] {{ m.content }}[/TOOL_RESULTS]"
  "{% elif m.tool_calls %}[TOOL_CALLS] [{% for c in m.tool_calls %}"
  "{{ c.function | tojson }}{{ ', ' if not loop.last }}{% endfor %}]"
  "{{ eos_token }}{% else %} {{ m.content }}{{ eos_token }}{% endif %}"
  "{% endfor %}"
)
GLM = (
  "[gMASK]<sop>{% if tools %}<|system|>\n{% for t in tools %}{{ t | tojson }}\n"
  "{% endfor %}{% endif %}{% for m in messages %}"
  "{% if m.role == 'tool' %}<|observation|>\n<tool_response>{{ m.content }}"
  "</tool_response>{% else %}<|{{ m.role }}|>\n{% if m.reasoning_content %}"
  "<think>{{ m.reasoning_content }}</think>\n{% endif %}{{ m.content }}"
  "{% if m.tool_calls %}" + TOOL_CALL + "{% endif %}{% endif %}{% endfor %}"
  "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
QWEN25 = (
  "{% if tools %}<|im_start|>system\n{% if messages[0].role == 'system' %}"
  "{{ messages[0].content }}{% endif %}<tools>{% for t in tools %}\n"
  "{{ t | tojson }}{% endfor %}\n</tools><|im_end|>\n"
  "{% elif messages[0].role == 'system' %}<|im_start|>system\n"
  "{{ messages[0].content }}<|im_end|>\n{% endif %}"
  "{% for m in messages if m.role != 'system' %}{% if m.role == 'tool' %}"
  "{% if loop.previtem.role != 'tool' %}<|im_start|>user{% endif %}\n"
  "<tool_response>\n{{ m.content }}\n</tool_response>"
  "{% if loop.last or loop.nextitem.role != 'tool' %}<|im_end|>\n{% endif %}"
  "{% else %}<|im_start|>{{ m.role }}\n{{ m.content }}"
  "{% if m.tool_calls %}" + TOOL_CALL + "{% endif %}<|im_end|>\n{% endif %}"
  "{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Reasoning is shown after the last question only.
QWEN3 = (
  "{% set ns = namespace(last=-1) %}{% for m in messages %}"
  "{% if m.role == 'user' %}{% set ns.last = loop.index0 %}{% endif %}"
  "{% endfor %}{% for m in messages %}<|im_start|>{{ m.role }}\n"
  "{% if m.role == 'assistant' and loop.index0 > ns.last"
  " and (loop.last or m.reasoning_content) %}<think>\n"
  "{{ m.reasoning_content or '' }}\n</think>\n\n{% endif %}{{ m.content }}"
  "{% if m.tool_calls %}" + TOOL_CALL + "{% endif %}<|im_end|>\n{% endfor %}"
  "{% if add_generation_prompt %}<|im_start|>assistant\n"
  "{% if enable_thinking is defined and enable_thinking is false %}"
  "<think>\n\n</think>\n\n{% endif %}{% endif %}"
)
TEMPLATES = {
  "chatml": CHATML,
  "llama3": LLAMA3,
  "gemma": GEMMA,
  "mistral": MISTRAL,
  "glm": GLM,
  "qwen2.5": QWEN25,
  "qwen3": QWEN3,
}


def _user(text):
  return {"role": "user", "content": text}


def _said(text, **more):
  return {"role": "assistant", "content": text, **more}


def _call(number, at):
  function = {"name": "look", "arguments": {"at": at}}
  return {"id": f"call0000{number}", "type": "function", "function": function}


def _answered(number, text):
  name = f"call0000{number}"
  return {
    "role": "tool", "name": "look", "tool_call_id": name, "content": text,
  }  # fmt: skip


TOOL = {
  "type": "function",
  "function": {
    "name": "look",
    "description": "Looks.",
    "parameters": {
      "type": "object",
      "properties": {"at": {"type": "string", "description": "Where to."}},
      "required": ["at"],
    },
  },
}
# Messages and tools.
CHATS = {
  "plain": ([_user("Né?"), _said("No.")], None),
  "system": (
    [{"role": "system", "content": "Be brief."}, _user("Né?"), _said("No.")],
    None,
  ),
  "multi-turn": (
    [_user("Né?"), _said("No."), _user("2 + 2?"), _said("4")],
    None,
  ),
  "tools": (
    [
      _user("Sun?"),
      _said("", tool_calls=[_call(1, "sky")]),
      _answered(1, "yes"),
      _said("It shines."),
    ],
    [TOOL],
  ),
  "parallel calls": (
    [
      _user("Sun?"),
      _said("", tool_calls=[_call(1, "sky"), _call(2, "sea")]),
      _answered(1, "yes"),
      _answered(2, "no"),
      _said("Above."),
    ],
    [TOOL],
  ),
  "reasoning": (
    [
      _user("2 + 2?"),
      _said("4", reasoning_content="Two and two."),
      _user("3?"),
      _said("6", reasoning_content="Double."),
    ],
    None,
  ),
}


def tokenizer_for(template):
  """A small BPE that knows the special tokens which a template spells."""
  names = ["<pad>", "</s>", "<s>"]
  tokenizer = corpora.bpe(TEXTS, names, 400)
  built = {"<|user|>", "<|assistant|>", "<|system|>", "<|observation|>"}
  more = {*_SPECIAL.findall(template)} | (
    built if "<|{{" in template else set()
  )
  for name in sorted(more - {*names}):
    added = hf.AddedToken(name, special=not _ORDINARY.search(name))
    tokenizer.add_tokens([added])
  return tokenizer
