"""Says what a run will consume, before it runs: nothing is read.

    %s --config=pretrain_mix --steps=300
    %s --config=... --steps=1000000 --format=json

Rows, tokens, trained tokens, padding and epochs by source are what the trainer
will log at that step, exactly. Also told: when a source begins again or has
ended, and where stages begin.
"""

from collections.abc import Sequence
import json
import sys

from absl import app
from absl import flags
import rich.console
import rich.table

from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data import stores
from chomp_data.audit import forecast as forecast_lib

_CONFIG = cli.define_config()
_STEPS = flags.DEFINE_integer(
  "steps", None, "How many steps, from the first on; by default all.", 1
)
_FORMAT = flags.DEFINE_enum(
  "format", "terminal", ["terminal", "json"], "How it is printed."
)
_DATASET_MIX = cli.define_dataset_mix()


def table(found: forecast_lib.Forecast) -> rich.table.Table:
  """Returns what is taken of each source, and of all."""
  out = rich.table.Table(title=f"{found.steps:,} steps", title_justify="left")
  out.add_column("source", overflow="fold")
  for name in ("rows", "tokens", "trained tokens", "epochs"):
    out.add_column(name, justify="right")
  for name, own in found.sources.items():
    out.add_row(
      name,
      f"{own.rows:,}",
      _count(own.tokens),
      _count(own.loss_tokens),
      f"{own.epochs:.4g}",
    )
  out.add_section()
  out.add_row(
    "these steps",
    f"{found.rows:,}",
    _count(found.tokens),
    _count(found.loss_tokens),
    "",
  )
  return out


def lines(found: forecast_lib.Forecast) -> list[str]:
  """Returns what happens when, a line each."""
  out = []
  if found.padding is not None and found.positions:
    share = found.padding / found.positions
    out.append(f"padding {found.padding:,} positions ({share:.2%})")
  if found.filler_rows:
    out.append(f"rows of filler {found.filler_rows:,}")
  out += [f"step {own.step:,}: {own.kind} {own.text}" for own in found.marks]
  for name, own in found.sources.items():
    if own.begins:
      steps = ", ".join(f"{step:,}" for step in own.begins)
      more = ", ..." if own.epochs > len(own.begins) + 1 else ""
      out.append(f"{name} begins again at steps {steps}{more}")
    if own.ends is not None:
      out.append(f"{name} has ended before step {own.ends:,}")
  return out


def _count(value: int | None) -> str:
  return "-" if value is None else f"{value:,}"


def main(argv: Sequence[str]) -> None:
  """Prints the forecast."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  try:
    pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
    steps = forecast_lib.num_steps(pipe, _STEPS.value)
    found = forecast_lib.forecast(pipe, steps)
  except (
    schema.ConfigError,
    stores.StoreError,
    ModuleNotFoundError,
    OSError,
  ) as error:
    sys.exit(f"error: {error}")
  if _FORMAT.value == "json":
    print(json.dumps(found.record()))
    return
  console = rich.console.Console()
  console.print(table(found))
  for line in lines(found):
    console.print(line, highlight=False, markup=False, soft_wrap=True)
