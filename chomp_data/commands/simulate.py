# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Predicts what a run will consume, without reading data.

    %s --config=pretrain_mix --steps=300
    %s --config=... --steps=1000000 --format=json

Rows, tokens, trained tokens, padding and epochs per source are exactly what the
trainer will log at that step. The output also lists when each source starts a
new epoch or ends, where stages begin, and what one reader fetches from each
store; --price_per_request and --price_per_gb add the cost. --plot draws the
shares of sources (matplotlib: the extra `plots`).
"""

from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import json
import math
import os
import pathlib
import sys
from typing import Any

from absl import flags
import rich.console
import rich.table

from chomp_data import cli
from chomp_data import pipeline
from chomp_data import schema
from chomp_data.audit import forecast as forecast_lib
from chomp_data.audit import job
from chomp_data.audit import reading
from chomp_data.audit import steps as steps_lib
from chomp_data.commands import forecast_plot

_CONFIG = cli.define_config()
_STEPS = flags.DEFINE_integer(
  "steps", None, "How many steps, from the first on; by default all.", 1
)
_FORMAT = cli.define_format()
_READS = flags.DEFINE_bool(
  "reads", True, "Also list what is fetched from stores."
)
_PRICE_PER_REQUEST = flags.DEFINE_float(
  "price_per_request",
  None,
  "Price of one request to a store, in any currency.",
  0.0,
)
_PRICE_PER_GB = flags.DEFINE_float(
  "price_per_gb", None, "Price of 10**9 bytes read from a store.", 0.0
)
for _PRICE in (_PRICE_PER_REQUEST, _PRICE_PER_GB):
  flags.register_validator(
    _PRICE,
    lambda price: price is None or math.isfinite(price),
    "must be a finite number",
  )
_PLOT = cli.define_text(
  "plot", None, "A PNG or SVG file for a plot of the shares of sources."
)
_CHECKPOINT = cli.define_checkpoint(", and --steps defaults to its step")
_DATASET_MIX = cli.define_dataset_mix()


def table(forecast: forecast_lib.Forecast) -> rich.table.Table:
  """Returns what is taken of each source, and of all."""
  numbers = ("rows", "tokens", "trained tokens", "epochs")
  rows: list[list[Any]] = [
    [name, taken.rows, taken.tokens, taken.loss_tokens, f"{taken.epochs:.4g}"]
    for name, taken in forecast.sources.items()
  ]
  whole = [forecast.rows, forecast.tokens, forecast.loss_tokens, ""]
  out = cli.table(
    {"source": False} | dict.fromkeys(numbers, True),
    [*rows, ["these steps", *whole]],
    f"{forecast.steps:,} steps",
  )
  if rows:
    out.rows[len(rows) - 1].end_section = True
  return out


def reads_table(reads: Mapping[str, reading.Fetched]) -> rich.table.Table:
  """Returns what one reader fetches of each store."""
  rows: list[list[Any]] = []
  for name, store_reads in reads.items():
    how = "all rows"
    if store_reads.how != "counted":
      how = f"a sample of {store_reads.looked_at:.2%}"
    counts = [store_reads.chunks, store_reads.requests, store_reads.bytes]
    rows.append([name, *counts, how])
  columns = {"source": False, "chunks": True, "requests": True, "bytes": True}
  return cli.table(
    {**columns, "known from": False}, rows, "fetched by one reader, cold"
  )


def price(reads: Mapping[str, reading.Fetched]) -> dict[str, float] | None:
  """Returns what that costs, at the prices that were given."""
  if _PRICE_PER_REQUEST.value is None and _PRICE_PER_GB.value is None:
    return None
  requests = sum(store_reads.requests for store_reads in reads.values())
  size = sum(store_reads.bytes for store_reads in reads.values())
  costs = {
    "requests": requests * (_PRICE_PER_REQUEST.value or 0.0),
    "bytes": size / 1e9 * (_PRICE_PER_GB.value or 0.0),
  }
  return {**costs, "total": sum(costs.values())}


def lines(forecast: forecast_lib.Forecast) -> list[str]:
  """Returns one line an event."""
  out = []
  if forecast.padding is not None and forecast.positions:
    share = forecast.padding / forecast.positions
    out.append(f"padding {forecast.padding:,} positions ({share:.2%})")
  if forecast.filler_rows:
    out.append(f"rows of filler {forecast.filler_rows:,}")
  out += [
    f"step {mark.step:,}: {mark.kind} {mark.text}" for mark in forecast.marks
  ]
  for name, source in forecast.sources.items():
    if source.begins:
      steps = ", ".join(f"{step:,}" for step in source.begins)
      more = ", ..." if source.epochs > len(source.begins) + 1 else ""
      out.append(f"{name} begins again at steps {steps}{more}")
    if source.ends is not None:
      out.append(f"{name} has ended before step {source.ends:,}")
  return out


def _plot_file() -> pathlib.Path | None:
  """Returns the file that is drawn to, or None.

  Raises:
    ConfigError: If nothing can be drawn there.
  """
  path = cli.output_file(_PLOT)
  if path is not None and path.suffix not in (".png", ".svg"):
    raise schema.ConfigError(
      [f"`--plot` must end in .png or .svg, got {path}. Name it so."]
    )
  return path


def main(argv: Sequence[str]) -> None:
  """Prints the forecast."""
  cli.refuse_arguments(argv[1:])
  try:
    plot = _plot_file()
    pipe = pipeline.build(cli.config(_CONFIG, _DATASET_MIX).get("data"))
    asked = _STEPS.value
    if _CHECKPOINT.value:
      pipe, at = job.continued(pipe, _CHECKPOINT.value)
      # All of the run of a job that is at its first step.
      asked = asked or at or None
    steps = steps_lib.num_steps(pipe, steps=asked)
    forecast = forecast_lib.forecast(pipe, steps)
    reads = reading.fetched(pipe, steps) if _READS.value else {}
    history = None
    if plot is not None or (
      _FORMAT.value == "terminal" and len(forecast.sources) > 1
    ):
      history = forecast_lib.history(pipe, steps)
    if plot is not None and history is not None:
      forecast_plot.write(os.fspath(plot), forecast, history)
  except ModuleNotFoundError as error:
    if error.name != "matplotlib":
      raise
    sys.exit(
      "error: matplotlib must be installed for --plot, got none. Install"
      " chomp_data with the extra `plots`."
    )
  if _FORMAT.value == "json":
    record = forecast.record()
    record["reads"] = {
      n: dataclasses.asdict(reading) for n, reading in reads.items()
    }
    record["price"] = price(reads)
    print(json.dumps(record))
    return
  console = rich.console.Console()
  console.print(table(forecast))
  if reads:
    console.print(reads_table(reads))
  cost = price(reads)
  if cost is not None:
    console.print(
      f"price {cost['total']:,.2f}: requests {cost['requests']:,.2f}, bytes"
      f" {cost['bytes']:,.2f}",
      highlight=False,
    )
  shown = [] if history is None else forecast_plot.sketch(history)
  for line in [*lines(forecast), *shown]:
    console.print(line, highlight=False, markup=False, soft_wrap=True)
