# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Config files, loaded as the tools load them but without their flags.

config = load_config("experiment.py:runlocal", ["data.seed=3"])
batches = chomp_data.make_iterator(config.data, sharding)
"""

from collections.abc import Sequence
import importlib.machinery
import importlib.util
import os
import pathlib
import sys
from typing import Any

from chomp_data import schema
from chomp_data.config import flags

# The configs that are installed with the package, by name.
SHIPPED = {
  path.stem: path
  for path in sorted(
    pathlib.Path(__file__).parents[1].joinpath("configs").glob("*.py")
  )
}


def path_of(name: str) -> pathlib.Path:
  """Returns the file of a config.

  Args:
    name: A path, or one of `SHIPPED`; an existing file takes precedence.

  Raises:
    ConfigError: If it is neither.
  """
  if os.path.isfile(name):
    return pathlib.Path(name)
  if name not in SHIPPED:
    raise schema.ConfigError(
      [
        f"`--config` must name a config file, got {name}, which is none."
        f" Correct the path, or take one of {', '.join(SHIPPED)}."
        + schema.did_you_mean(name, SHIPPED)
      ]
    )
  return SHIPPED[name]


@schema.arguments(name=schema.path(), overrides=schema.sequence(schema.text()))
def load_config(name: str, overrides: Sequence[str] = ()) -> Any:
  """Returns the config of a file, with options set as on a command line.

  Args:
    name: `FILE.py` or `FILE.py:arg`, whose `get_config(arg)` returns it; or a
      config that comes along, as `packed:runlocal`.
    overrides: `path=value`, as in `--config.<path>=<value>` of the tools:
      `data.seed=3`.

  Returns:
    A ConfigDict; `data` of it is what `build` and `make_iterator` take.

  Raises:
    ConfigError: If there is no such file, it makes no config, or an option is
      wrong. What goes wrong in the file itself is raised as it is.
  """
  file, colon, arg = name.partition(":")
  path = path_of(file)
  if path.suffix not in ("", ".py"):
    raise schema.ConfigError(
      [f"`--config` must name a Python file, got {path}. Name it *.py."]
    )
  loader = importlib.machinery.SourceFileLoader(
    f"{path.stem}_config", os.fspath(path)
  )
  spec = importlib.util.spec_from_loader(loader.name, loader)
  assert spec is not None
  module = importlib.util.module_from_spec(spec)
  sys.modules[loader.name] = module  # As dataclasses in it need.
  loader.exec_module(module)
  get_config = getattr(module, "get_config", None)
  config = None if get_config is None else get_config(*[arg] * bool(colon))
  if config is None:
    raise schema.ConfigError(
      [
        "`get_config` of a config file must return a ConfigDict, got"
        f" {'none' if get_config is None else 'None'} in {path}. Define it, and"
        " return the config."
      ]
    )
  flags.apply(config, list(overrides), {})
  return config
