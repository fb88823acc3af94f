"""What the command-line tools share: flags and configs with clear errors."""

from collections.abc import Callable
from collections.abc import Sequence
import os
import sys
from typing import Any

from absl import app
from absl import flags


def run(main: Callable[[Sequence[str]], Any]) -> None:
  """Runs an absl main; a bad flag or an interrupt is one line.

  Args:
    main: Takes the arguments that are no flags; returns the exit status.
  """
  try:
    app.run(main, flags_parser=_parse)
  except KeyboardInterrupt:
    sys.exit("interrupted; the same command goes on where it was")


def config(holder: flags.FlagHolder) -> Any:
  """Returns the config that a flag names.

  Args:
    holder: From `config_flags.DEFINE_config_file`.

  Raises:
    UsageError: If the flag is missing.
    SystemExit: If the file does not load.
  """
  try:
    value = holder.value
  except Exception as error:
    name = flags.FLAGS[holder.name]
    sys.exit(
      f"error: `--{holder.name}` must name a config file that loads, got"
      f" {getattr(name, 'config_filename', None) or error}. Correct the path"
      " (its own error, if it has one, stands above)."
    )
  if value is None:
    raise app.UsageError(f"--{holder.name} must name a config file.")
  return value


def _parse(argv: Sequence[str]) -> list[str]:
  for argument in argv[1:]:
    name, _, value = argument.partition("=")
    path = value.partition(":")[0]
    if name.lstrip("-") == "config" and value and not os.path.isfile(path):
      sys.exit(
        f"error: `--config` must name a config file, got {path}, which is none."
        " Correct the path."
      )
  try:
    return app.parse_flags_with_usage(list(argv))
  except (AttributeError, KeyError, TypeError, ValueError, OSError) as error:
    given = [a for a in argv[1:] if a.startswith("--config")]
    sys.exit(
      "error: `--config` must name a config file that loads, and each"
      " `--config.<path>=<value>` a field that the file lists, with a value of"
      f" its type, got {' '.join(given)} ({type(error).__name__}: {error})."
      " Correct it: the file shows every field."
    )
