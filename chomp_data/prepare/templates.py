# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Chat templates: Jinja, rendered in a sandbox with bounded work.

The environment is that of `apply_chat_template` in Hugging Face transformers,
except that there is no clock: the same input gives the same text. A variable
`strftime_now` that is a date, as '2026-01-31', takes the clock's place. Text
inside `{% generation %}` .. `{% endgeneration %}` is rendered between the
characters `BEGIN` and `END`.

A template that never ends, or that grows a text without end, is an error: each
rendering may take `MAX_STEPS` steps (one for an item of a loop, `CALL_STEPS`
for a call), and no text or list that loops and operators make may exceed
`MAX_SIZE`.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import contextvars
import datetime
import functools
import json
import re
from typing import Any

from chomp_data import errors

MAX_STEPS = 2**22  # A second or two.
CALL_STEPS = 8  # Of a macro, ten times the time of an item.
MAX_SIZE = 2**28

# Unicode reserves these for uses within a program.
BEGIN, END = "\ufdd0", "\ufdd1"
MARKS = re.compile(f"[{BEGIN}{END}]")
_GENERATION = re.compile(r"\{%[-+]?\s*generation\s*[-+]?%\}")

# Steps left in the rendering that is under way.
_steps: contextvars.ContextVar[list[int]] = contextvars.ContextVar("steps")


class _TooMuchWorkError(RuntimeError):
  """A rendering exceeds its bounds."""


def has_generation(source: str) -> bool:
  """Returns whether a template marks what the assistant generates."""
  return bool(_GENERATION.search(source))


def check(source: str, name: str) -> None:
  """Raises PrepareError unless a template can be compiled."""
  _compiled(source, name)


@functools.lru_cache(maxsize=8)
def variables(source: str) -> frozenset[str]:
  """Returns the names that a template reads from its caller."""
  from jinja2 import meta

  environment = _compiled(source, "--chat_template").environment
  return frozenset(meta.find_undeclared_variables(environment.parse(source)))


def render(source: str, values: Mapping[str, Any], where: str) -> str:
  """Returns the text of a template.

  Raises:
    BadInput: If it fails, or exceeds the bounds.
  """
  compiled = _compiled(source, "--chat_template")
  if isinstance(date := values.get("strftime_now"), str):
    values = {**values, "strftime_now": _clock(date, where)}
  reset = _steps.set([MAX_STEPS])
  try:
    text, size = [], 0
    for piece in compiled.generate(values):
      size += len(piece)
      _check_size(size)
      text.append(piece)
    return "".join(text)
  except Exception as error:  # A template may raise anything.
    problem = str(error)
    if not isinstance(error, _TooMuchWorkError):
      problem = f"{type(error).__name__}: {problem}"
    raise errors.BadInput(
      where,
      f"must be rendered by the template of --chat_template, got {problem}.",
      "Correct the record, or the template.",
      "not rendered",
    ) from None
  finally:
    _steps.reset(reset)


def _clock(date: str, where: str) -> Callable[[str], str]:
  """Returns the function that templates ask for the date."""
  try:
    return datetime.datetime.fromisoformat(date).strftime
  except ValueError as error:
    raise errors.BadInput(
      where,
      f"must have a date as strftime_now, got {date!r}: {error}.",
      "Give one, as 2026-01-31.",
      "not rendered",
    ) from None


def _count(steps: int) -> None:
  left = _steps.get()
  left[0] -= steps
  if left[0] < 0:
    raise _TooMuchWorkError(
      f"more than {MAX_STEPS:,} steps of loops and calls in one rendering"
    )


def _check_size(size: int) -> None:
  if size > MAX_SIZE:
    raise _TooMuchWorkError(f"more than {MAX_SIZE:,} characters or items")


def _counted(_: Any, items: Iterable[Any]) -> Iterator[Any]:
  """Yields items, each of which is a step."""
  for item in items:
    _count(1)
    yield item


def _limited(_: Any, value: Any) -> Any:
  """Returns a value whose size is within the bounds."""
  _check_size(len(value))
  return value


def _check_operands(operator: str, left: Any, right: Any) -> None:
  """Raises where the result of an operator would be too large."""
  if operator == "+" and hasattr(left, "__len__") and hasattr(right, "__len__"):
    _check_size(len(left) + len(right))
  elif operator == "*":
    for one, other in ((left, right), (right, left)):
      if hasattr(one, "__len__") and isinstance(other, int):
        _check_size(len(one) * other)
    if isinstance(left, int) and isinstance(right, int):
      _check_size(left.bit_length() + right.bit_length())
  elif operator == "**" and isinstance(left, int) and isinstance(right, int):
    _check_size(left.bit_length() * max(right, 0))


@functools.lru_cache(maxsize=8)
def _compiled(source: str, name: str) -> Any:
  """Returns a template, rendered in a sandbox as chat models expect."""
  try:
    import jinja2
    from jinja2 import ext
    from jinja2 import nodes
    from jinja2 import runtime
    from jinja2 import sandbox
    from jinja2 import visitor
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
      return BEGIN + caller() + END

  class Bounds(visitor.NodeTransformer):
    """Puts filters that count and limit around loops and texts."""

    def _filtered(self, node, name, line):
      return nodes.Filter(node, name, [], [], None, None, lineno=line)

    def visit_For(self, node):
      self.generic_visit(node)
      node.iter = self._filtered(node.iter, "counted items", node.lineno)
      return node

    def visit_Concat(self, node):
      self.generic_visit(node)
      return self._filtered(node, "limited text", node.lineno)

    def visit_AssignBlock(self, node):
      self.generic_visit(node)
      node.filter = self._filtered(node.filter, "limited text", node.lineno)
      return node

  class Environment(sandbox.ImmutableSandboxedEnvironment):
    """Counts calls, and limits what operators make."""

    intercepted_binops = frozenset(("+", "*", "**"))

    def call(__self, __context, __obj, *args, **kwargs):
      _count(CALL_STEPS)
      if isinstance(__obj, runtime.LoopContext) and args:
        args = (_counted(None, args[0]), *args[1:])
      return super().call(__context, __obj, *args, **kwargs)

    def call_binop(self, context, operator, left, right):
      _check_operands(operator, left, right)
      return super().call_binop(context, operator, left, right)

  def fail(message):
    raise jinja2.TemplateError(message)

  def to_json(
    value, ensure_ascii=False, indent=None, separators=None, sort_keys=False
  ):
    return json.dumps(
      value,
      ensure_ascii=ensure_ascii,
      indent=indent,
      separators=separators,
      sort_keys=sort_keys,
    )

  environment = Environment(
    trim_blocks=True,
    lstrip_blocks=True,
    extensions=[Generation, ext.loopcontrols],
  )
  environment.globals["raise_exception"] = fail
  environment.filters["tojson"] = to_json
  # `pass_context` keeps the compiler from calling them. No template can name
  # them.
  environment.filters["counted items"] = jinja2.pass_context(_counted)
  environment.filters["limited text"] = jinja2.pass_context(_limited)
  try:
    parsed = Bounds().visit(environment.parse(source))
    return environment.from_string(parsed)
  except RecursionError:
    problem, line = "statements or brackets nested too deeply", None
  except (jinja2.TemplateError, SyntaxError, MemoryError, ValueError) as error:
    # Python compiles what Jinja makes: `break` must be in a loop, for instance.
    problem, line = str(error), getattr(error, "lineno", None)
    if isinstance(error, SyntaxError):
      problem, line = f"a statement out of place ({error.msg})", None
  raise errors.PrepareError(
    f"`--chat_template` must be a Jinja template, got {name}"
    f"{'' if line is None else f', line {line}'}: {problem}. Correct it."
  )
