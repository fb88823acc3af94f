# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""From the messages of a chat to text, and which parts of it are trained on.

Answers of the assistant are trained on, with what ends them, so that a model
learns to stop. Without a template a chat is plain text:

    user:
    What is 2 + 2?

    assistant:
    4

A template is Jinja (`templates`). Its `{% generation %}` blocks say what is
trained on. Without blocks, that is what the rendering grows by with a message
of the assistant, after the prompt for it, up to the end of the turn: the
template's own end token, else the special token that opens the next message.
"""

import collections
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import functools
import hashlib
import itertools
import json
import math
import pathlib
import re
from typing import Any
from typing import NamedTuple

from chomp_data import errors
from chomp_data import schema
from chomp_data.prepare import option_fields
from chomp_data.prepare import templates

# Part of the identity of prepared chats: increased when the rules change.
RULES_VERSION = 2

ASSISTANT = "assistant"
# Of plain text; a template has others.
ROLES = ("system", "developer", "user", ASSISTANT, "tool")
SHAREGPT_ROLES = (("human", "user"), ("gpt", ASSISTANT))
TURNS = ("all", "last", "each")
# Variables that templates get from the messages and from this package.
RESERVED = ("messages", "tools", "documents", "add_generation_prompt")

# What is counted of documents. What ends a turn that is trained on:
END_TOKEN = "special token "  # Followed by its text.
END_TEXT = "ordinary token"
END_OF_ROWS = "EOS of rows"
END_NONE = "nothing"
TURN_ENDS = (END_TOKEN, END_TEXT, END_OF_ROWS, END_NONE)
# Other counts:
EMPTY = "empty answers"
EOS_WRITTEN = "documents that end with EOS"
UNREAD_TOOLS = "records with tools that the template does not read"
VARIABLE = "variable "  # Followed by the name of one that a record defines.

# Only what a template would drop without a word is rejected in plain text.
_NOT_PLAIN = ("tool_calls", "function_call", "reasoning_content", "thinking")
_REASONING = ("reasoning_content", "thinking", "reasoning")
# Special tokens that close a part of a message, as </think> and </tool_call>.
# Those that open a tool's answer, as <|tool_response>, do end a message.
_CLOSES_PART = re.compile(
  "think|reason|tool(?!.*(response|result|output))", re.IGNORECASE
)

# (text, the weight of its tokens), which joined are a document's text.
Pieces = tuple[tuple[str, float], ...]


def _content(path: str) -> str:
  """Returns the text of --chat_template; a run does not depend on its path."""
  try:
    return pathlib.Path(path).read_text("utf-8")
  except (OSError, UnicodeDecodeError) as error:
    raise errors.PrepareError(
      f"`--chat_template` must be the path of a readable file, got {path!r}:"
      f" {error}. Correct it."
    ) from None


def _pairs(flag: str, text: str) -> tuple[tuple[str, str], ...]:
  """Returns the pairs of a flag NAME=NAME,..."""
  pairs = [tuple(pair.split("=")) for pair in text.split(",")] if text else []
  if not all(len(pair) == 2 and all(pair) for pair in pairs):
    raise errors.PrepareError(
      f"`--{flag}` must be NAME=NAME, or several with commas, got {text!r}."
      " Correct it."
    )
  return tuple((left, right) for left, right in pairs)


_option = functools.partial(
  option_fields.option, identity=option_fields.CHANGED
)


@dataclasses.dataclass(frozen=True)
class ChatOptions:
  """How the messages of a record become documents.

  Attributes:
    template: A file of Jinja that makes text of a chat, as chat models bring
      one; by default messages stand below the names of their roles.
    tools_key: The key of a record's tools, which are passed to the template;
      empty for none.
    template_kwargs: Variables of the template, a JSON object.
    template_kwargs_key: The key of a record's own variables of the template,
      an object.
    message_keys: Keys of messages that have other names, as
      role=from,content=value for ShareGPT, with --messages_key=conversations.
    message_roles: Roles to rename, as human=user,gpt=assistant, which is the
      default with --message_keys.
    turns: How a chat becomes documents: one document ('all'), one that trains
      on its last answer only ('last'), or one document per answer with the
      messages before it as prompt ('each').
    parse_arguments: Parse arguments of tool calls that are JSON strings, for
      templates that expect objects.
    allow_open_turns: Accept answers that do not end in a trained token.
    tokens: Names and texts of special tokens that a template may spell, as
      ('bos_token', '<s>').
    special: The texts of all special tokens.
    version: Of these rules.
  """

  template: str | None = _option(
    None,
    flag="chat_template",
    parse=_content,
    key="chat_template",
    digest=lambda template: hashlib.sha256(template.encode()).hexdigest(),
  )
  tools_key: str = _option("tools")
  template_kwargs: str = _option("{}")
  template_kwargs_key: str | None = _option(None)
  message_keys: tuple[tuple[str, str], ...] = _option(
    (), parse=lambda text: _pairs("message_keys", text)
  )
  message_roles: tuple[tuple[str, str], ...] = _option(
    (), parse=lambda text: _pairs("message_roles", text)
  )
  turns: str = _option("all", schema.choice(TURNS), fix="Choose one.")
  parse_arguments: bool = _option(False)
  allow_open_turns: bool = _option(False)
  tokens: tuple[tuple[str, str], ...] = _option((), flag=None)
  special: tuple[str, ...] = _option((), flag=None)
  version: int = option_fields.option(
    RULES_VERSION, flag=None, identity=option_fields.ALWAYS, key="chat_rules"
  )

  @property
  def keys(self) -> tuple[str, ...]:
    """The keys of records in addition to that of messages; none is required."""
    keys = (self.tools_key, self.template_kwargs_key)
    return tuple(key for key in keys if key)


class Chat(NamedTuple):
  """One document of a chat.

  Attributes:
    pieces: Its text, and the weights of its parts.
    answer: The number of the message that it ends with, or None for a chat as
      a whole.
    counts: How its turns end, and what else is counted.
  """

  pieces: Pieces
  answer: int | None
  counts: dict[str, int]


class _Ends(NamedTuple):
  """How a template ends what the assistant says.

  Attributes:
    by_token: Whether every message of the assistant ends with a special token.
    eos: The text of EOS, or None.
    text: What follows each answer if that is ordinary text, else ''.
    token: Matches a special token that ends a text, and white space after it.
    opener: Matches a special token that a text begins with.
  """

  by_token: bool
  eos: str | None
  text: str
  token: re.Pattern[str]
  opener: re.Pattern[str]


class _Renderer:
  """Renders the messages of one record, with marks where there are blocks."""

  def __init__(
    self,
    options: ChatOptions,
    tools: Any,
    kwargs: Mapping[str, Any],
    where: str,
  ):
    assert options.template is not None
    self.where = where
    self.marked: bool = templates.has_generation(options.template)
    self._template = options.template
    self._values = {
      **dict(options.tokens),
      "tools": tools,
      "documents": None,
      **kwargs,
    }

  def text(
    self, messages: Sequence[dict[str, Any]], prompt: bool = False
  ) -> str:
    values = {"messages": messages, "add_generation_prompt": prompt}
    return templates.render(
      self._template, {**self._values, **values}, self.where
    )


def documents(
  messages: Any,
  options: ChatOptions,
  where: str,
  clean: Callable[[str | bytes], str],
  tools: Any = None,
  kwargs: Any = None,
  *,
  prompt_messages: int = 0,
) -> list[Chat]:
  """Returns the documents of a chat.

  Args:
    messages: Of a record: a list of {'role', 'content', ...}; one of the
      assistant may have a 'weight' of 0 or more.
    options: How they are rendered.
    where: What the record is called in errors.
    clean: Returns a text of a record as valid Unicode.
    tools: Of the record, a list or JSON of one, or None.
    kwargs: Variables of the template, an object or JSON of one, or None.
    prompt_messages: How many messages from the first on are not trained on.

  Raises:
    BadInput: If they are no chat to train on.
    PrepareError: If jinja2 is not installed.
  """
  try:
    chat = _checked(messages, options, where, clean)
    tools = _json(tools, list, "tools", where)
    tools = _cleaned(tools, where, clean)
    kwargs = _json(kwargs, Mapping, "template variables", where) or {}
    variables = json.loads(options.template_kwargs)
    variables |= _cleaned(kwargs, where, clean)
  except RecursionError:
    raise errors.BadInput(
      where, "must not be nested deeply, got too many levels.", "Correct it."
    ) from None
  if wrong := sorted(set(variables) & set(RESERVED)):
    raise errors.BadInput(
      where,
      f"must not define the template variable {wrong[0]!r}.",
      "Rename it.",
      "no messages",
    )
  weights = [
    _weight(message, i, where) * (i >= prompt_messages)
    for i, message in enumerate(chat)
  ]
  answers = [
    i
    for i, one in enumerate(chat)
    if i >= prompt_messages and one["role"] == ASSISTANT
  ]
  if not answers:
    roles = sorted({message["role"] for message in chat[prompt_messages:]})
    raise errors.BadInput(
      where,
      f"must have a message of role {ASSISTANT!r}"
      f"{' after the prompt' if prompt_messages else ''}, got only {roles}.",
      "Leave such chats out, or skip them with --on_error=skip.",
      "no assistant",
    )
  render = ends = None
  if options.template is not None:
    render = _Renderer(options, tools, variables, where)
    ends = _ends_of(options, json.dumps(variables, default=str))
  elif tools:
    raise errors.BadInput(
      where,
      f"must have no tools in plain text, got {len(tools)}.",
      "Give a template with --chat_template, or leave them out with"
      " --tools_key=.",
      "not plain text",
    )
  chats = []
  for last in answers if options.turns == "each" else answers[-1:]:
    shown, trained = chat, weights
    if options.turns != "all":
      trained = [weight * (i == last) for i, weight in enumerate(weights)]
    if options.turns == "each":
      shown, trained = chat[: last + 1], trained[: last + 1]
    counts: collections.Counter[str] = collections.Counter()
    if render is None or ends is None:
      pieces = _plain(shown, trained, where, counts)
    elif render.marked:
      pieces = _marked(shown, trained, render, ends, counts, options)
    else:
      pieces = _grown(shown, trained, render, ends, counts, options)
    for name in (f"{VARIABLE}{key}" for key in kwargs):
      counts[name] = 1
    if tools and "tools" not in templates.variables(options.template or ""):
      counts[UNREAD_TOOLS] = 1
    if empty := sum(
      1
      for message, weight in zip(shown, trained, strict=True)
      if weight and _is_empty(message)
    ):
      counts[EMPTY] = empty
    if END_NONE in counts and not options.allow_open_turns:
      raise errors.BadInput(
        where,
        "must have answers that something ends which is trained on, got"
        f" {counts[END_NONE]} whose end no token marks.",
        "Correct --chat_template so that answers end with a special token, or"
        " with text inside of {% generation %}, or set --allow_open_turns.",
        "open turn",
      )
    eos = dict(options.tokens).get("eos_token")
    text = "".join(part for part, _ in pieces)
    if eos and text.rstrip().endswith(eos):
      counts[EOS_WRITTEN] = 1
    answer = last if options.turns == "each" else None
    trained_pieces = tuple(piece for piece in pieces if piece[0])
    chats.append(Chat(trained_pieces, answer, counts))
  return chats


def problems(options: ChatOptions, has_chats: bool) -> list[str]:
  """Returns what is wrong with options."""
  wrong: list[str] = []
  changed = {
    flag.name
    for flag in option_fields.flags_of(ChatOptions)
    if getattr(options, flag.option.name) != flag.option.default
  }
  if changed and not has_chats:
    wrong.append(
      f"`--{min(changed)}` must be given with --messages_key only. Name the key"
      " of the messages."
    )
  changed &= {"template_kwargs", "template_kwargs_key", "parse_arguments"}
  if changed and options.template is None:
    wrong.append(
      f"`--{min(changed)}` must be given with --chat_template only. Give a"
      " template, or leave it out."
    )
  wrong += option_fields.problems(options)
  try:
    kwargs = json.loads(options.template_kwargs)
  except ValueError:
    kwargs = None
  if not isinstance(kwargs, dict) or set(kwargs) & set(RESERVED):
    wrong.append(
      "`--template_kwargs` must be a JSON object without"
      f" {', '.join(RESERVED)}, got {options.template_kwargs!r}. Give, say,"
      " '{\"enable_thinking\": false}'."
    )
  if options.template is not None:
    try:
      templates.check(options.template, "the file")
    except errors.PrepareError as error:
      wrong.append(str(error))
  return wrong


def summary(options: ChatOptions, counts: Mapping[str, int]) -> dict[str, Any]:
  """Returns what a manifest says of chats."""
  unknown: frozenset[str] = frozenset()
  if options.template is not None:
    unknown = templates.variables(options.template)
    unknown -= {*RESERVED, *dict(options.tokens)}
    unknown -= {*json.loads(options.template_kwargs)}
  needs_eos = 0 if options.allow_open_turns else counts.get(END_OF_ROWS, 0)
  return {
    "turns": {
      name: count
      for name, count in sorted(counts.items())
      if name.startswith(TURN_ENDS)
    },
    "empty_answers": counts.get(EMPTY, 0),
    "needs_eos": needs_eos,
    "has_eos": counts.get(EOS_WRITTEN, 0),
    "unread_tools": counts.get(UNREAD_TOOLS, 0),
    "undefined_variables": [
      name for name in sorted(unknown) if VARIABLE + name not in counts
    ],
  }


def _checked(
  messages: Any,
  options: ChatOptions,
  where: str,
  clean: Callable[[str | bytes], str],
) -> list[dict[str, Any]]:
  """Returns messages that have a role, all of their text clean."""

  def bad(problem: str, fix: str) -> errors.BadInput:
    return errors.BadInput(where, problem, fix, "no messages")

  correct = "Correct it, or --messages_key."
  if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
    got = type(messages).__name__
    raise bad(f"must have a list of messages, got a {got}.", correct)
  if not messages:
    raise bad("must have a message, got an empty list.", "Give one or more.")
  roles = dict(options.message_roles)
  checked = []
  for i, message in enumerate(messages):
    if not isinstance(message, Mapping):
      raise bad(
        f"must have messages of 'role' and 'content', got a"
        f" {type(message).__name__} as message {i + 1}.",
        correct,
      )
    cleaned = _cleaned(message, where, clean)
    for name, key in options.message_keys:
      if key in cleaned:
        cleaned[name] = cleaned.pop(key)
    # As transformers does: templates test whether a key is there.
    cleaned = {
      key: value for key, value in cleaned.items() if value is not None
    }
    role = cleaned.get("role")
    if not isinstance(role, str) or not role:
      raise bad(
        f"must have a role in each message, got {role!r} in message {i + 1},"
        f" which has {sorted(map(str, cleaned))}.",
        "Correct it, or name the keys, as with"
        " --message_keys=role=from,content=value.",
      )
    cleaned["role"] = roles.get(role, role)
    thought = [cleaned[key] for key in _REASONING if key in cleaned]
    if thought:
      cleaned = {
        "thinking": thought[0],
        **cleaned,
        "reasoning_content": thought[0],
      }
    if options.parse_arguments:
      _parse_arguments(cleaned, i, where)
    checked.append(cleaned)
  return checked


def _parse_arguments(message: dict[str, Any], number: int, where: str) -> None:
  """Replaces arguments of tool calls that are JSON by their values."""
  calls = message.get("tool_calls") or []
  calls = [*(calls if isinstance(calls, list) else []), message]
  for call in calls:
    for key in ("function", "function_call"):
      inner = call.get(key) if isinstance(call, dict) else None
      if isinstance(inner, dict) and isinstance(inner.get("arguments"), str):
        what = f"arguments in message {number + 1}"
        inner["arguments"] = _json(inner["arguments"], object, what, where)


def _json(value: Any, kind: Any, what: str, where: str) -> Any:
  """Returns a value of a record, which may be written as JSON."""
  if isinstance(value, str | bytes):
    try:
      value = json.loads(value)
    except ValueError as error:
      raise errors.BadInput(
        where,
        f"must have JSON as {what}, got {error}.",
        "Correct it.",
        "not JSON",
      ) from None
  if value is not None and not isinstance(value, kind):
    raise errors.BadInput(
      where,
      f"must have {'a list' if kind is list else 'an object'} as {what}, got a"
      f" {type(value).__name__}.",
      "Correct it.",
      "no messages",
    )
  return value


def _cleaned(
  value: Any, where: str, clean: Callable[[str | bytes], str]
) -> Any:
  """Returns values of a record as Jinja takes them."""
  if isinstance(value, str | bytes):
    text = clean(value)
    if templates.MARKS.search(text):
      raise errors.BadInput(
        where,
        "must be without U+FDD0 and U+FDD1, which are no characters, got one.",
        "Leave them out.",
      )
    return text
  if isinstance(value, Mapping):
    return {key: _cleaned(inner, where, clean) for key, inner in value.items()}
  if isinstance(value, Sequence):
    return [_cleaned(inner, where, clean) for inner in value]
  return value


def _weight(message: Mapping[str, Any], number: int, where: str) -> float:
  """Returns what tokens of a message weigh."""
  if message["role"] != ASSISTANT:
    return 0.0
  value = message.get("weight")
  if value is None:
    return 1.0
  return checked_weight(value, f"in message {number + 1}", where)


def checked_weight(value: Any, what: str, where: str) -> float:
  """Returns a weight of a record; raises BadInput if it is none."""
  # Not at import: reading stores needs what workers do not.
  from chomp_data.stores import labels

  number = isinstance(value, int | float) and not isinstance(value, bool)
  # Of float32: some are too large there, and some are 0 that were not.
  weight = labels.weight(value) if number else math.nan
  if not (0 < weight < math.inf or weight == value == 0):
    raise errors.BadInput(
      where,
      f"must have a weight of 0 or more {what} that float32 holds, got"
      f" {value!r}.",
      "Correct it.",
      "no weight",
    )
  return weight


def _is_empty(message: Mapping[str, Any]) -> bool:
  """Returns whether a message has no content, no calls and no reasoning."""

  def has_text(value: Any) -> bool:
    if isinstance(value, str):
      return bool(value.strip())
    if isinstance(value, Mapping):
      return any(
        has_text(inner) for key, inner in value.items() if key != "type"
      )
    return isinstance(value, Sequence) and any(map(has_text, value))

  names = ("role", "name", "id", "weight")
  return not any(
    has_text(value) for key, value in message.items() if key not in names
  )


def _plain(
  messages: list[dict[str, Any]],
  weights: list[float],
  where: str,
  counts: collections.Counter[str],
) -> list[tuple[str, float]]:
  """Returns plain text; the blank line after an answer ends it."""
  pieces = []
  before = 0.0  # The weight of the message before.
  for i, (message, weight) in enumerate(zip(messages, weights, strict=True)):
    role, content = message["role"], message.get("content")
    if role not in ROLES:
      raise errors.BadInput(
        where,
        f"must have roles of {', '.join(ROLES)}, got {role!r} in message"
        f" {i + 1}.",
        "Correct it, rename it with --message_roles, or give a template that"
        " knows it with --chat_template.",
        "unknown role",
      )
    if not isinstance(content, str) or not content.strip():
      what = (
        repr(content) if isinstance(content, str) else type(content).__name__
      )
      raise errors.BadInput(
        where,
        f"must have text in each message, got {what} in message {i + 1}.",
        "Correct it, or give a template that takes it with --chat_template.",
        "empty message",
      )
    if dropped := [key for key in _NOT_PLAIN if message.get(key)]:
      raise errors.BadInput(
        where,
        f"must have messages of text only, got {dropped[0]!r} in message"
        f" {i + 1}.",
        "Give a template that renders it with --chat_template.",
        "not plain text",
      )
    if i:
      pieces.append(("\n\n", before))
    pieces += [(f"{role}:\n", 0.0), (content, weight)]
    before = weight
    if weight:
      counts[END_OF_ROWS if message is messages[-1] else END_TEXT] += 1
  return pieces


def _marked(
  messages: list[dict[str, Any]],
  weights: list[float],
  render: _Renderer,
  ends: _Ends,
  counts: collections.Counter[str],
  options: ChatOptions,
) -> list[tuple[str, float]]:
  """Returns a rendering, whose trained parts are the template's blocks."""
  text = render.text(messages)
  # Before, in, between ... and after the blocks, in turn.
  parts = templates.MARKS.split(text)
  marks = "".join(templates.MARKS.findall(text))
  num_blocks = len(marks) // 2
  if marks != (templates.BEGIN + templates.END) * num_blocks or not marks:
    raise errors.BadInput(
      render.where,
      "must be rendered with {% generation %} blocks one after the other, got"
      f" {num_blocks}.",
      "Correct --chat_template.",
      "not rendered",
    )
  whole = "".join(parts)

  def prompt_before(i: int) -> str:
    return templates.MARKS.sub("", render.text(messages[:i], prompt=True))

  last = len(messages) - 1
  if options.turns == "each" and not whole.startswith(prompt_before(last)):
    raise _not_grown(render.where, len(messages), options)
  answers = [i for i, one in enumerate(messages) if one["role"] == ASSISTANT]
  owners: list[int] | None = answers
  if num_blocks != len(answers):
    owners = _owners(parts, answers, prompt_before)
  if owners is None:
    if len({weights[i] for i in answers}) > 1:
      raise errors.BadInput(
        render.where,
        f"must be rendered with a block for each of {len(answers)} messages"
        f" that weigh differently, got {num_blocks}.",
        "Correct --chat_template.",
        "not rendered",
      )
    owners = answers[:1] * num_blocks
  for number, owner in enumerate(owners):
    if weights[owner] and owner not in owners[number + 1 :]:
      block, rest = parts[2 * number + 1], "".join(parts[2 * number + 2 :])
      _, end = _turn_end(block, rest, ends, marked=True)
      counts[end] += 1
  return [
    (part, weights[owners[i // 2]] if i % 2 else 0.0)
    for i, part in enumerate(parts)
  ]


def _owners(
  parts: Sequence[str],
  answers: Sequence[int],
  prompt_before: Callable[[int], str],
) -> list[int] | None:
  """Returns the message of each block, or None if that is not known."""
  ends = list(itertools.accumulate(map(len, parts)))[1::2]
  try:
    prompts = [prompt_before(i) for i in answers]
  except errors.BadInput:
    return None
  if not all("".join(parts).startswith(prompt) for prompt in prompts):
    return None
  # Of the last answer whose prompt is complete where the block ends.
  number = [sum(len(prompt) <= end for prompt in prompts) for end in ends]
  return [answers[n - 1] for n in number] if all(number) else None


def _grown(
  messages: list[dict[str, Any]],
  weights: list[float],
  render: _Renderer,
  ends: _Ends,
  counts: collections.Counter[str],
  options: ChatOptions,
) -> list[tuple[str, float]]:
  """Returns a rendering, trained where messages of the assistant added to it.

  prompt           <user>Hi</><assistant>
  with the answer  <user>Hi</><assistant>Hello.</>
  trained                                ^^^^^^^^^
  """
  text = render.text(messages)
  pieces: list[tuple[str, float]] = []
  at = 0
  for i, (message, weight) in enumerate(zip(messages, weights, strict=True)):
    if not weight:
      continue
    before = render.text(messages[:i], prompt=True)
    after = render.text(messages[: i + 1])
    grows = len(after) > len(before) or _is_empty(message)
    if not (
      text.startswith(after)
      and after.startswith(before)
      and at <= len(before)
      and grows
    ):
      raise _not_grown(render.where, i + 1, options)
    length, end = _turn_end(after[len(before) :], text[len(after) :], ends)
    counts[end] += 1
    pieces.append((text[at : len(before)], 0.0))
    at = len(before) + length
    pieces.append((text[len(before) : at], weight))
  return [*pieces, (text[at:], 0.0)]


def _not_grown(
  where: str, number: int, options: ChatOptions
) -> errors.BadInput:
  advice = (
    "Mark the assistant's part in --chat_template with {% generation %} and"
    " {% endgeneration %}"
  )
  if options.turns == "all":
    advice += (
      ". Or use --turns=each or --turns=last: the template may render earlier"
      " messages differently later in the chat, as some do with reasoning"
    )
  elif options.turns == "each":
    advice = (
      "Correct the template, so that an answer continues its prompt, or use"
      " --turns=last"
    )
  return errors.BadInput(
    where,
    f"must be rendered so that message {number} adds to what is before it and"
    " to the prompt for it, got a rendering that does not.",
    f"{advice}.",
    "not rendered",
  )


def _turn_end(
  written: str, rest: str, ends: _Ends, *, marked: bool = False
) -> tuple[int, str]:
  """Returns where a turn ends, and what ends it.

  Args:
    written: What the rendering grew by with the message.
    rest: What follows in the chat.
    ends: How the template ends messages.
    marked: Whether `written` is a block, beyond which nothing is trained on.

  Returns:
    (how many characters of `written` and `rest` are trained on, the end).
  """
  token = ends.token.search(written)
  if token and (ends.by_token or token[1] == ends.eos):
    return token.end(1), END_TOKEN + token[1]
  ends_with_text = bool(ends.text) and written.endswith(ends.text)
  if ends_with_text and ends.text.strip():
    return len(written.rstrip()), END_TEXT
  if not marked and (opener := ends.opener.match(rest)):
    return len(written) + opener.end(), END_TOKEN + opener[1]
  if not rest or (not marked and not rest.strip()):
    return len(written) + len(rest), END_OF_ROWS
  return len(written), END_TEXT if ends_with_text else END_NONE


@functools.lru_cache(maxsize=64)
def _ends_of(options: ChatOptions, kwargs: str) -> _Ends:
  """Determines how a template ends messages, by rendering three short chats."""
  eos = dict(options.tokens).get("eos_token")
  texts = {text for text in (*options.special, eos or "") if text.strip()}
  closing = _any_of(text for text in texts if not _CLOSES_PART.search(text))
  token = re.compile(rf"({closing})\s*\Z")
  opener = re.compile(rf"\s*({_any_of(texts)})")
  rendered = [
    text for forms in _PROBES if (text := _probe(forms, options, kwargs))
  ]
  by_token = all(token.search(text) for text in rendered)
  _, answer, tail = (
    rendered[0].rpartition(_ANSWER) if rendered else ("", "", "")
  )
  common = answer and all(text.endswith(tail) for text in rendered)
  common = common and not any(text in tail for text in texts)
  return _Ends(by_token, eos, tail if common else "", token, opener)


def _any_of(texts: Any) -> str:
  ordered = sorted(texts, key=lambda text: (-len(text), text))
  return "|".join(map(re.escape, ordered)) or r"(?!)"


_ANSWER = "The answer is blue."
_USER = {"role": "user", "content": "Which colour?"}
_TOOL = {
  "type": "function",
  "function": {
    "name": "look",
    "description": "Looks.",
    "parameters": {
      "type": "object",
      "properties": {"at": {"type": "string", "description": "What."}},
      "required": ["at"],
    },
  },
}


def _calling(arguments: Any) -> dict[str, Any]:
  function = {"name": "look", "arguments": arguments}
  call = {"id": "call00001", "type": "function", "function": function}
  return {"role": ASSISTANT, "content": "", "tool_calls": [call]}


# Messages of the assistant; of several forms the first that renders counts.
_PROBES: tuple[tuple[dict[str, Any], ...], ...] = (
  ({"role": ASSISTANT, "content": _ANSWER},),
  (_calling({"at": "sky"}), _calling('{"at": "sky"}')),
  (
    {
      "role": ASSISTANT,
      "content": _ANSWER,
      "reasoning_content": "I look up.",
      "thinking": "I look up.",
    },
  ),
)


def _probe(
  forms: tuple[dict[str, Any], ...], options: ChatOptions, kwargs: str
) -> str | None:
  """Returns how a message is rendered, its last block if there are blocks."""
  for form in forms:
    tools = [_TOOL] if "tool_calls" in form else None
    try:
      render = _Renderer(options, tools, json.loads(kwargs), "")
      text = render.text([_USER, form])
    except errors.BadInput:
      continue
    block = text.rpartition(templates.END)[0].rpartition(templates.BEGIN)[2]
    return block or (None if render.marked else text)
  return None
