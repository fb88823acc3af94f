"""From the messages of a chat to text, and what of it is trained on.

What the assistant says is trained on, and nothing else. Without a template a
chat is plain text:

    user:
    What is 2 + 2?

    assistant:
    4

A template is Jinja as chat models bring it. Its blocks `{% generation %}` ..
`{% endgeneration %}` say what the assistant's part is; in one without them it
is what the rendering grows by with a message of the assistant, after the
prompt for it.
"""

from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
import functools
import json
import math
import re
from typing import Any
from typing import NamedTuple

from chomp_data import errors
from chomp_data.stores import labels

ASSISTANT = "assistant"
# Of the plain text; a template knows its own.
ROLES = ("system", "developer", "user", ASSISTANT, "tool")

# Unicode keeps these for uses within a program.
_BEGIN, _END = "\ufdd0", "\ufdd1"
_MARKS = re.compile(f"[{_BEGIN}{_END}]")
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")

# (text, the weight of its tokens), which joined are a document's text.
Pieces = tuple[tuple[str, float], ...]


class Template(NamedTuple):
  """A template of chats, small enough to send to workers.

  Attributes:
    source: What it says, in Jinja.
    tokens: Names and texts of special tokens that it may spell, as
      ('bos_token', '<s>').
  """

  source: str
  tokens: tuple[tuple[str, str], ...] = ()


def pieces(
  messages: Any,
  template: Template | None,
  where: str,
  clean: Callable[[str | bytes], str],
) -> Pieces:
  """Returns the text of a chat, piece by piece.

  Args:
    messages: Of a record: a list of {'role', 'content'}; one of the assistant
      may have a 'weight' of 0 or more.
    template: How they are rendered; None is plain text.
    where: What the record is called in errors.
    clean: Returns a text of a record as valid Unicode.

  Raises:
    BadInput: If they are no chat to train on.
    PrepareError: If jinja2 is not installed.
  """
  checked = _checked(messages, where, clean)
  weights = [_weight(own, i, where) for i, own in enumerate(checked)]
  if not any(own["role"] == ASSISTANT for own in checked):
    roles = sorted({own["role"] for own in checked})
    raise errors.BadInput(
      where,
      f"must have a message of role {ASSISTANT!r}, got only {roles}.",
      "Leave such chats out, or skip them with --on_error=skip.",
      "no assistant",
    )
  if template is None:
    found = _plain(checked, weights, where)
  elif _GENERATION.search(template.source):
    found = _marked(checked, weights, template, where)
  else:
    found = _grown(checked, weights, template, where)
  return tuple(piece for piece in found if piece[0])


def check_template(template: Template, name: str) -> None:
  """Raises PrepareError unless a template can be read.

  Args:
    template: Which.
    name: Where it came from.
  """
  _compiled(template.source, name)


def _checked(
  messages: Any, where: str, clean: Callable[[str | bytes], str]
) -> list[dict[str, Any]]:
  """Returns messages that have a role, all of their text clean."""
  if not isinstance(messages, Sequence) or isinstance(messages, str | bytes):
    raise errors.BadInput(
      where,
      f"must have a list of messages, got a {type(messages).__name__}.",
      "Correct it, or --messages_key.",
      "no messages",
    )
  if not messages:
    raise errors.BadInput(
      where,
      "must have a message, got an empty list.",
      "Give one or more.",
      "no messages",
    )
  checked = []
  for i, message in enumerate(messages):
    if not isinstance(message, Mapping):
      raise errors.BadInput(
        where,
        f"must have messages of 'role' and 'content', got a"
        f" {type(message).__name__} as message {i + 1}.",
        "Correct it, or --messages_key.",
        "no messages",
      )
    own = _cleaned(message, where, clean)
    role = own.get("role")
    if not isinstance(role, str) or not role:
      raise errors.BadInput(
        where,
        f"must have a role in each message, got {role!r} in message {i + 1},"
        f" which has {sorted(map(str, own))}.",
        "Correct it.",
        "no messages",
      )
    checked.append(own)
  return checked


def _cleaned(
  value: Any, where: str, clean: Callable[[str | bytes], str]
) -> Any:
  """Returns values of a record as Jinja takes them."""
  if isinstance(value, str | bytes):
    text = clean(value)
    if _MARKS.search(text):
      raise errors.BadInput(
        where,
        "must be without U+FDD0 and U+FDD1, which are no characters, got one.",
        "Leave them out.",
      )
    return text
  if isinstance(value, Mapping):
    return {key: _cleaned(own, where, clean) for key, own in value.items()}
  if isinstance(value, Sequence):
    return [_cleaned(own, where, clean) for own in value]
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
  number = isinstance(value, int | float) and not isinstance(value, bool)
  # Of float32: some are too large there, and some are 0 that were not.
  kept = labels.weight(value) if number else math.nan
  if not (0 < kept < math.inf or kept == value == 0):
    raise errors.BadInput(
      where,
      f"must have a weight of 0 or more {what} that float32 holds, got"
      f" {value!r}.",
      "Correct it.",
      "no weight",
    )
  return kept


def _plain(
  messages: list[dict[str, Any]], weights: list[float], where: str
) -> list[tuple[str, float]]:
  found = []
  for i, (message, weight) in enumerate(zip(messages, weights, strict=True)):
    role, content = message["role"], message.get("content")
    if role not in ROLES:
      raise errors.BadInput(
        where,
        f"must have roles of {', '.join(ROLES)}, got {role!r} in message"
        f" {i + 1}.",
        "Correct it, or give a template that knows it with --chat_template.",
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
    found += [("\n\n" * (i > 0) + f"{role}:\n", 0.0), (content, weight)]
  return found


def _marked(
  messages: list[dict[str, Any]],
  weights: list[float],
  template: Template,
  where: str,
) -> list[tuple[str, float]]:
  """Returns a rendering, whose trained parts the template says."""
  text = _render(messages, template, where)
  # Before, in, between ... and after the blocks, in turn.
  found = _MARKS.split(text)
  marks = "".join(_MARKS.findall(text))
  own = [w for m, w in zip(messages, weights, strict=True) if _speaks(m)]
  if marks != (_BEGIN + _END) * (len(marks) // 2) or not marks:
    raise errors.BadInput(
      where,
      "must be rendered with {% generation %} blocks one after the other, got"
      f" {len(marks) // 2}.",
      "Correct --chat_template.",
      "not rendered",
    )
  if len(set(own)) > 1 and len(own) != len(marks) // 2:
    raise errors.BadInput(
      where,
      f"must be rendered with a block for each of {len(own)} messages that"
      f" weigh differently, got {len(marks) // 2}.",
      "Correct --chat_template.",
      "not rendered",
    )
  own = own if len(own) == len(marks) // 2 else own[:1] * (len(marks) // 2)
  return [(part, own[i // 2] if i % 2 else 0.0) for i, part in enumerate(found)]


def _grown(
  messages: list[dict[str, Any]],
  weights: list[float],
  template: Template,
  where: str,
) -> list[tuple[str, float]]:
  """Returns a rendering, trained where messages of the assistant added to it.

  begin            <user>Hi</><assistant>
  one message on   <user>Hi</><assistant>Hello.</>
  trained                                 ^^^^^^^^^
  """
  text = _render(messages, template, where)
  found: list[tuple[str, float]] = []
  at = 0
  for i, message in enumerate(messages):
    if not _speaks(message):
      continue
    before = _render(messages[:i], template, where, prompt=True)
    after = _render(messages[: i + 1], template, where)
    if not (
      text.startswith(after)
      and after.startswith(before)
      and at <= len(before) < len(after)
    ):
      raise errors.BadInput(
        where,
        f"must be rendered so that message {i + 1} adds to what is before it,"
        " got a rendering that does not.",
        "Mark the assistant's part in --chat_template with {% generation %} and"
        " {% endgeneration %}.",
        "not rendered",
      )
    found += [(text[at : len(before)], 0.0), (after[len(before) :], weights[i])]
    at = len(after)
  return [*found, (text[at:], 0.0)]


def _speaks(message: Mapping[str, Any]) -> bool:
  return message["role"] == ASSISTANT


def _render(
  messages: list[dict[str, Any]],
  template: Template,
  where: str,
  *,
  prompt: bool = False,
) -> str:
  compiled = _compiled(template.source, "--chat_template")
  try:
    return compiled.render(
      messages=messages, add_generation_prompt=prompt, **dict(template.tokens)
    )
  except Exception as error:  # A template may raise anything.
    raise errors.BadInput(
      where,
      f"must be rendered by the template, got {type(error).__name__}: {error}.",
      "Correct it, or --chat_template.",
      "not rendered",
    ) from None


@functools.lru_cache(maxsize=8)
def _compiled(source: str, name: str) -> Any:
  """Returns a template, rendered in a sandbox as chat models expect."""
  try:
    import jinja2
    from jinja2 import ext
    from jinja2 import nodes
    from jinja2 import sandbox
  except ImportError as error:
    raise errors.PrepareError(
      f"jinja2 must be installed for --chat_template, got {error}. Install"
      " chomp_data[jinja2]."
    ) from None

  class Generation(ext.Extension):
    """Marks what is between `generation` and `endgeneration`."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser):
      line = next(parser.stream).lineno
      body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
      call = self.call_method("_marked")
      return nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _marked(self, caller):
      return _BEGIN + caller() + _END

  def fail(message):
    raise jinja2.TemplateError(message)

  def to_json(value, indent=None):
    return json.dumps(value, ensure_ascii=False, indent=indent)

  environment = sandbox.ImmutableSandboxedEnvironment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[Generation, ext.loopcontrols],
  )
  environment.globals["raise_exception"] = fail
  environment.filters["tojson"] = to_json
  try:
    return environment.from_string(source)
  except jinja2.TemplateError as error:
    line = getattr(error, "lineno", None)
    raise errors.PrepareError(
      f"`--chat_template` must be a Jinja template, got {name}, line {line}:"
      f" {error}. Correct it."
    ) from None
