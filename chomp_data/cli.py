# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Flags, configs and one-line errors that the command-line tools share.

Modules that read configs import JAX, so they are imported where needed.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import errno
import os
import pathlib
import re
import select
import sys
import traceback
from typing import Any
from typing import NoReturn
from typing import TYPE_CHECKING

from absl import app
from absl import flags
from absl import logging

import chomp_data
from chomp_data import errors
from chomp_data import schema

if TYPE_CHECKING:
  import rich.console
  import rich.table

# Error numbers of a full disk.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)

# Errors that a user can correct; their messages say how.
FAILURES = (
  errors.ConfigError,
  errors.StoreError,
  errors.StateError,
  errors.PrepareError,
  errors.InputError,
  errors.DivergedError,
  ModuleNotFoundError,
  OSError,
)

# The config that --dataset_mix uses without --config.
_MIXED = "packed"

# --help lists flags defined here under the tool that defines them.
flags.disclaim_key_flags()

# An option on the command line; groups: negation, path, value.
_OPTION = re.compile(r"--?(no)?config\.([^=]+)(?:=(.*))?", re.DOTALL)
_SET = "config_set"

_UNSET_FLAG = re.compile(r"flag --(\w+)=None: Flag --\1 must have .* None\.")


def run(main: Callable[[Sequence[str]], Any]) -> None:
  """Runs an absl main, and reports errors and interrupts in one line.

  Args:
    main: Takes the arguments that are not flags; returns the exit status.
  """

  def checked(argv: Sequence[str]) -> Any:
    try:
      with failures_in_one_line():
        return main(argv)
    except app.UsageError as error:
      # absl would print the whole --help with it.
      _refuse(str(error))

  command = sys.modules[main.__module__]
  if command.__name__ != "__main__":
    # absl takes --help from `__main__`: use the command's.
    sys.modules["__main__"].__doc__ = command.__doc__
    for flag in flags.FLAGS.get_key_flags_for_module(command):
      flags.FLAGS.register_key_flag_for_module(sys.argv[0], flag)
  try:
    app.run(checked, flags_parser=_parse)
  except KeyboardInterrupt:
    sys.exit("interrupted; run the same command again to continue")


@contextlib.contextmanager
def failures_in_one_line() -> Iterator[None]:
  """Replaces errors in `FAILURES` by an exit with a one-line message.

  Exits without a message if the reader of stdout has closed it, as `| head`.

  Raises:
    SystemExit: In place of such an error.
  """
  try:
    yield
    sys.stdout.flush()
  except FAILURES as error:
    if isinstance(error, BrokenPipeError) and _nobody_reads(sys.stdout):
      # At exit Python flushes what is still buffered.
      os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
      sys.exit(1)
    if isinstance(error, OSError) and error.errno in _FULL and error.filename:
      sys.exit(
        f"error: {error.filename} could not be written: {error.strerror}. Make"
        " room there, and run the same command again."
      )
    if isinstance(error, OSError) and error.strerror and error.filename:
      sys.exit(
        f"error: {error.filename} must be there and open to this user, got:"
        f" {error.strerror}. Correct the path, or who may use it."
      )
    sys.exit(f"error: {getattr(error, 'in_command', error)}")


def _nobody_reads(stream: Any) -> bool:
  """Returns whether a stream is a pipe that its reader has closed."""
  try:
    poll = select.poll()
    poll.register(stream, select.POLLOUT)
    (_, events), *_ = poll.poll(0) or [(0, 0)]
  except (OSError, ValueError):
    return False  # It has no file descriptor.
  return bool(events & (select.POLLERR | select.POLLHUP))


def output_file(holder: flags.FlagHolder) -> pathlib.Path | None:
  """Returns the file that a flag names, or None.

  Args:
    holder: The flag.

  Raises:
    ConfigError: If no file can be written there.
  """
  if not holder.value:
    return None
  path = pathlib.Path(holder.value)
  if path.is_dir() or not path.absolute().parent.is_dir():
    fix = "Name a file in it."
    if not path.is_dir():
      fix = f"Make the directory {path.parent}, or correct the path."
    raise schema.ConfigError(
      [
        f"`--{holder.name}` must be a file in a directory that exists, got"
        f" {path}. {fix}"
      ]
    )
  return path


def define_text(name: str, default: str | None, text: str) -> flags.FlagHolder:
  """Defines a flag whose value is text that is not empty.

  Args:
    name: Of the flag.
    default: Its value where it is left out.
    text: Its help.
  """
  holder = flags.DEFINE_string(name, default, text)
  flags.register_validator(
    holder,
    lambda value: value != "",
    "must not be empty. Give it a value, or leave it out",
  )
  return holder


def define_config(default: str | None = None) -> flags.FlagHolder:
  """Defines the flag --config; `config` reads it.

  Args:
    default: A config's path.
  """
  from chomp_data.config import files

  define_options()
  return define_text(
    "config",
    default,
    "The experiment: a config file, or the name of an installed one"
    f" ({', '.join(files.SHIPPED)}), with an optional argument, as in"
    " packed:runlocal, which takes seconds.",
  )


def define_options() -> flags.FlagHolder:
  """Defines --config.<path>=<value>: its value is a list of path=value."""
  return flags.DEFINE_multi_string(
    _SET,
    [],
    "An option of the experiment and its value, path=value; written"
    " --config.<path>=<value>. docs/options.md lists all of them, and a wrong"
    " path is an error that lists the known ones.",
  )


def define_dataset_mix() -> flags.FlagHolder:
  """Defines the flag --dataset_mix; `config` takes it."""
  return define_text(
    "dataset_mix",
    None,
    "Sources in one line, 'pathA:0.9 alias=pathB:0.1', in place of the"
    " config's weights and stages; sets --config.data.dataset_mix. Without"
    f" --config, other options are those of configs/{_MIXED}.py.",
  )


def define_checkpoint(also: str = "") -> flags.FlagHolder:
  """Defines the flag --checkpoint: what `audit.job.continued` takes.

  Args:
    also: Text that is added to the help.
  """
  return define_text(
    "checkpoint",
    None,
    "A job's work directory, or one of its checkpoints: the run as it"
    f" continues from there{also}.",
  )


def define_format(what: str = "it is") -> flags.FlagHolder:
  """Defines the flag --format.

  Args:
    what: What is printed, with its verb.
  """
  return flags.DEFINE_enum(
    "format", "terminal", ["terminal", "json"], f"How {what} printed."
  )


def define_step(also: str = "") -> flags.FlagHolder:
  """Defines the flag --step: a step, or several.

  Args:
    also: Text that is added to the help.
  """
  return define_text(
    "step", None, f"A step, or steps A:B, from A to B - 1{also}."
  )


def define_workdir(text: str) -> flags.FlagHolder:
  """Defines the flag --workdir.

  Args:
    text: What is in the directory.
  """
  return define_text("workdir", None, text)


def refuse_arguments(arguments: Sequence[str]) -> None:
  """Raises UsageError if there are arguments that are not flags."""
  if arguments:
    raise app.UsageError(f"Unexpected arguments: {' '.join(arguments)}")


def log_project_messages(tool: str) -> None:
  """Shows log messages of this project, and only warnings of libraries.

  Args:
    tool: The tool's `__file__`; messages from its directory are shown too.
  """
  logging.set_verbosity(logging.INFO)
  directories = [
    pathlib.Path(file).resolve().parent for file in (chomp_data.__file__, tool)
  ]

  def shown(entry) -> bool:
    path = pathlib.Path(entry.pathname).resolve()
    return entry.levelno >= 30 or any(
      path.is_relative_to(p) for p in directories
    )

  logging.get_absl_handler().addFilter(shown)


def config(
  holder: flags.FlagHolder,
  dataset_mix: flags.FlagHolder | None = None,
  sections: Mapping[str, type] | None = None,
) -> Any:
  """Returns the config that a flag names, with options of other flags set.

  Args:
    holder: From `define_config`.
    dataset_mix: From `define_dataset_mix`; set, it is `data.dataset_mix` of
      the config.
    sections: Dataclasses of the tool's sections beside `data`, by name.

  Raises:
    UsageError: If the flag is missing.
    ConfigError: If the file does not load.
    SystemExit: If an option is wrong.
  """
  if holder.value is None:
    raise app.UsageError(f"--{holder.name} must name a config file.")
  value = load(holder.value)
  settings = flags.FLAGS[_SET].value
  mix = None if dataset_mix is None else dataset_mix.value
  if settings:
    from chomp_data.config import flags as config_options

    try:
      config_options.apply(value, settings, sections or {})
    except schema.ConfigError as error:
      advice = ""
      if mix is not None and "config.data.sources" in str(error):
        advice = (
          "\nSources of --dataset_mix take the options of the config's own:"
          f" set those of {', '.join(_sources(value))}."
        )
      sys.exit(f"error: {error}{advice}")
  return _mixed(value, mix)


def load(
  name: str, settings: Sequence[str] = (), dataset_mix: str | None = None
) -> Any:
  """Returns a config by the value of --config.

  Args:
    name: As in `config.files.load_config`.
    settings: Options, as `data.seed=3`.
    dataset_mix: The value for `data.dataset_mix`, or None.

  Raises:
    ConfigError: If its file raises any error, or an option is wrong.
  """
  from chomp_data.config import files

  try:
    return _mixed(files.load_config(name, settings), dataset_mix)
  except schema.ConfigError:
    raise
  except Exception as error:
    path = os.fspath(files.path_of(name.partition(":")[0]))
    lines = [
      frame.lineno
      for frame in traceback.extract_tb(error.__traceback__)
      if frame.filename == path
    ]
    at = f" (line {lines[-1]})" if lines else ""
    raise schema.ConfigError(
      [
        f"`--config` must name a config file that loads, got {name}: its file"
        f" {path} raises{at} {type(error).__name__}: {error}. Correct it."
      ]
    ) from error


def console() -> "rich.console.Console":
  """Returns a console for tables, 200 columns wide if stdout is no terminal."""
  import rich.console

  shown = rich.console.Console()
  return shown if shown.is_terminal else rich.console.Console(width=200)


def table(
  columns: Mapping[str, bool],
  rows: Iterable[Sequence[str | int | None]],
  title: str | None = None,
  **style: Any,
) -> "rich.table.Table":
  """Returns a table whose cells are shown as plain text, without markup.

  Args:
    columns: By name, whether a column holds numbers and is right-aligned.
    rows: The cells of each row: text, numbers, or None for '-'.
    title: Its title, or None.
    **style: Other arguments of `rich.table.Table`.
  """
  import rich.table
  import rich.text

  out = rich.table.Table(title=title, title_justify="left", **style)
  for name, holds_numbers in columns.items():
    justify = "right" if holds_numbers else "left"
    out.add_column(name, overflow="fold", justify=justify)
  for row in rows:
    cells = (f"{cell:,}" if isinstance(cell, int) else cell for cell in row)
    out.add_row(*(rich.text.Text("-" if c is None else c) for c in cells))
  return out


def _mixed(config: Any, dataset_mix: str | None) -> Any:
  """Returns a config with `data.dataset_mix` set, unless it is None."""
  # A config without data is an error where it is read.
  if dataset_mix is not None and config.get("data") is not None:
    with config.unlocked():
      config.data.dataset_mix = dataset_mix
  return config


def _sources(config: Any) -> list[str]:
  return [
    f"`config.data.sources.{name}`"
    for name in (config.get("data") or {}).get("sources") or {}
  ]


def _refuse(problem: str) -> NoReturn:
  sys.exit(f"error: {problem.rstrip('.? ')}. See --help.")


def _parse(argv: Sequence[str]) -> list[str]:
  with failures_in_one_line():  # For `--help | head`.
    return _parsed(argv)


def _option_of(name: str) -> str:
  """Returns advice if an unknown flag has the name of a `config.data` field."""
  if "config" not in flags.FLAGS:
    return ""
  from chomp_data.config import options

  if name not in schema.options_of(options.RowFields):
    return ""
  return f". It is an option of the config: write --config.data.{name}=VALUE"


def _parsed(argv: Sequence[str]) -> list[str]:
  try:
    arguments = flags.FLAGS.read_flags_from_files(
      list(argv[1:]), force_gnu=False
    )
    arguments = _with_config(_with_options(arguments))
    try:
      return flags.FLAGS([argv[0], *arguments])
    except SystemExit as ended:
      sys.stdout.flush()
      # absl exits with 1 after --help.
      raise SystemExit(0 if ended.code == 1 else ended.code) from None
  except flags.UnrecognizedFlagError as error:
    # `--config_set` is not for users.
    message = str(error).replace(f". Did you mean: {_SET} ?", "")
    _refuse(f"{message}{_option_of(error.flagname)}")
  except flags.Error as error:
    _refuse(_UNSET_FLAG.sub(r"`--\1` must be given.", str(error)))


def steps_of(text: str | None) -> range:
  """Returns the steps that --step names: 7 is 7, 7:9 is 7 and 8.

  Raises:
    UsageError: If it is neither.
  """
  match = re.fullmatch("([0-9]+)(?::([0-9]+))?", text or "")
  if match is None:
    raise app.UsageError(
      f"--step must be a step or A:B, got {text!r}. Give --step=1200:1210."
    )
  first = int(match[1])
  steps = range(first, first + 1 if match[2] is None else int(match[2]))
  if not steps:
    raise app.UsageError(
      f"--step must be A:B with A below B, got {text!r}. The step B is left"
      " out."
    )
  return steps


def _with_config(arguments: Sequence[str]) -> list[str]:
  """Adds the default --config to arguments with --dataset_mix only."""
  names = {argument.partition("=")[0].lstrip("-") for argument in arguments}
  takes_both = "config" in flags.FLAGS and "dataset_mix" in flags.FLAGS
  if not takes_both or "dataset_mix" not in names or "config" in names:
    return list(arguments)
  print(
    f"--dataset_mix without --config: other options are those of"
    f" configs/{_MIXED}.py",
    file=sys.stderr,
  )
  return [f"--config={_MIXED}", *arguments]


def _with_options(arguments: Sequence[str]) -> list[str]:
  """Rewrites arguments --config.<path>=<value> as values of one flag."""
  if _SET not in flags.FLAGS:
    return list(arguments)
  left, parsed = list(arguments), []
  while left:
    argument = left.pop(0)
    if argument == "--":
      return [*parsed, argument, *left]
    option = _OPTION.fullmatch(argument)
    if option is None:
      parsed.append(argument)
      continue
    off, path, value = option.groups()
    if value is None and not off and left and _is_value(left[0]):
      value = left.pop(0)
    elif value is None:
      value = str(not off)
    parsed.append(f"--{_SET}={path}={value}")
  return parsed


def _is_value(argument: str) -> bool:
  """Returns whether an argument is a value, such as a negative number."""
  return not re.match(r"-(?![\d.])", argument)
