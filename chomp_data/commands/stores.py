# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Inspects, verifies, merges, converts and splits stores.

%(prog)s info data/web data/code
%(prog)s head data/web --count=3
%(prog)s verify data/web
%(prog)s merge data/a data/b --output=data/both
%(prog)s convert data/web --to=zstd --output=data/web_zstd
%(prog)s adopt /corpora/records
%(prog)s split data/web --output=data/train --held_out=data/eval
"""

import argparse
from collections.abc import Sequence
import re
import sys
import textwrap
import types
from typing import NoReturn

from chomp_data import cli
from chomp_data import schema
from chomp_data.commands.store_commands import adopt
from chomp_data.commands.store_commands import convert
from chomp_data.commands.store_commands import head
from chomp_data.commands.store_commands import info
from chomp_data.commands.store_commands import merge
from chomp_data.commands.store_commands import split
from chomp_data.commands.store_commands import verify

# Of argparse: a value, and those that there are.
_INVALID = re.compile(r"invalid choice: '(.*)' \(choose from (.*)\)")

# By name: a module that has `add`, of arguments, and `run`.
COMMANDS: dict[str, types.ModuleType] = {
  "info": info,
  "head": head,
  "verify": verify,
  "merge": merge,
  "convert": convert,
  "adopt": adopt,
  "split": split,
}


class _Parser(argparse.ArgumentParser):
  """A parser that guesses which of some choices was meant."""

  def error(self, message: str) -> NoReturn:
    """Ends the process with a message; see `ArgumentParser`."""
    if match := _INVALID.search(message):
      known = re.findall(r"[\w-]+", match[2])
      message += f".{schema.did_you_mean(match[1], known)}"
    super().error(message)


def parser() -> argparse.ArgumentParser:
  """Returns the parser of all subcommands."""
  out = _Parser(
    description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
  )
  commands = out.add_subparsers(
    dest="command", required=True, metavar="COMMAND"
  )
  for name, module in COMMANDS.items():
    text = module.__doc__ or ""
    subparser = commands.add_parser(
      name,
      help=text.partition("\n")[0],
      description=textwrap.dedent(text),
      formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    module.add(subparser)
    subparser.set_defaults(run=module.run)
  return out


def main(argv: Sequence[str] | None = None) -> None:
  """Runs a subcommand and exits with its status.

  Args:
    argv: Arguments, or None for those of the process.
  """
  commands = parser()
  args = commands.parse_args(argv)
  for name, value in vars(args).items():
    if value == []:  # argparse removes a value `--`, and checks none.
      commands.error(f"argument --{name}: must be a value, got '--'")
  try:
    with cli.failures_in_one_line():
      status = args.run(args)
  except KeyboardInterrupt:
    sys.exit("interrupted; nothing was published")
  sys.exit(status)
