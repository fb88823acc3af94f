# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How an input is doing, for Prometheus: each process on a port of its own.

    metrics = prometheus.Metrics(iterator)
    port = metrics.serve(9_000)

Numbers are read from the iterator when they are asked for: nothing is counted
twice, and a step costs nothing. Needs the extra `metrics`.
"""

from collections.abc import Iterator
from collections.abc import Mapping
import functools
from typing import Any

import jax

from chomp_data import errors
from chomp_data import iterators
from chomp_data import schema

_PREFIX = "chomp_data"

# By source, of `SourceReads`: the name here, and what it says.
_READS = {
  "examples": ("rows_read", "Rows read by this process."),
  "chunks_fetched": ("chunks_fetched", "Chunks read, or first touched."),
  "bytes_fetched": ("fetched_bytes", "Bytes of these chunks, decoded."),
  "cache_hits": ("cache_hits", "Requests for chunks that were in memory."),
  "requests": ("requests", "Requests to an object store, all tries."),
  "retries": ("retries", "Of these, tries after one that failed."),
  "corrupt": (
    "corrupt_answers",
    "Answers that were too short, too long, or not what was written.",
  ),
  "bytes_transferred": ("transferred_bytes", "Bytes that came from there."),
}

# What a trainer tells by source; see `Metrics.tell`.
_SOURCE_METRICS = {
  "rows": "Rows handed out since the run's start, by all processes.",
  "tokens": "Tokens of them.",
  "loss_tokens": "Tokens of them that are trained on.",
  "epochs": "Epochs of them.",
  "loss": "Mean loss of the last window, in nats a token.",
}


def _numbers(value: Any) -> dict[str, float]:
  """Returns numbers by name, infinite ones and NaN too."""
  return {
    name: float(number)
    for name, number in schema.mapping().convert(value).items()
  }


_VALUES = schema.Rule("a mapping of names to numbers", _numbers)


class Metrics:
  """A collector of prometheus_client over an iterator.

  Metrics begin with `chomp_data_` and have the label `process`, the index of
  the JAX process; those by source have the label `source` too.
  """

  @schema.arguments(
    iterator=schema.having(
      "an iterator, as `chomp_data.make_iterator` returns it",
      "step",
      "waits",
      "reads",
    )
  )
  def __init__(self, iterator: iterators.InputIterator):
    """Binds an iterator.

    Args:
      iterator: What is told of.
    """
    self._iterator = iterator
    self._by_source: dict[str, dict[str, float]] = {}
    self._values: dict[str, float] = {}
    self._server: Any = None

  @schema.arguments(values=_VALUES, by_source=schema.mapping())
  def tell(
    self,
    values: Mapping[str, float],
    by_source: Mapping[str, Mapping[str, Any]],
  ) -> None:
    """Tells what only a trainer knows, until it is told again.

    Args:
      values: By name, as `train/loss`: gauges.
      by_source: By source, what there is of `rows`, `tokens`, `loss_tokens`,
        `epochs` and `loss`; others and None are left out.
    """
    # Replaced as a whole: the server's thread may look at it.
    self._values = {
      "".join(c if c.isalnum() else "_" for c in name): float(value)
      for name, value in values.items()
    }
    self._by_source = {
      source: {
        name: float(record[name])
        for name in _SOURCE_METRICS
        if record.get(name) is not None
      }
      for source, record in by_source.items()
    }

  def collect(self) -> Iterator[Any]:
    """Yields the metrics, as prometheus_client asks for them."""
    from prometheus_client import core

    process = str(jax.process_index())
    waits = self._iterator.waits

    def alone(kind: type, name: str, text: str, value: float) -> Any:
      out = kind(f"{_PREFIX}_{name}", text, labels=["process"])
      out.add_metric([process], value)
      return out

    gauge = functools.partial(alone, core.GaugeMetricFamily)
    counter = functools.partial(alone, core.CounterMetricFamily)
    yield gauge("step", "Step of the next batch.", self._iterator.step)
    yield counter("batches", "Batches handed out.", waits.batches)
    yield counter(
      "wait_seconds", "Seconds that `next` took for them.", waits.seconds
    )
    yield counter(
      "stalls", "Batches that took more than 50 ms to come.", waits.stalls
    )
    yield counter("failures", "How often `next` failed.", waits.failures)
    labels = ["process", "source"]
    reads = self._iterator.reads
    for field, (name, text) in _READS.items():
      out = core.CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
      for source, values in reads.items():
        out.add_metric([process, source], getattr(values, field))
      yield out
    for name, text in _SOURCE_METRICS.items():
      out = core.GaugeMetricFamily(
        f"{_PREFIX}_source_{name}", text, labels=labels
      )
      for source, values in self._by_source.items():
        if name in values:
          out.add_metric([process, source], values[name])
      yield out
    for name, value in self._values.items():
      yield gauge(name, "Told by the trainer.", value)

  @schema.arguments(
    port=schema.integer(0, 65_535), address=schema.text(empty=True)
  )
  def serve(self, port: int, address: str = "0.0.0.0") -> int:
    """Serves them over HTTP, in a thread, until `close`.

    Args:
      port: Of process 0; process i takes `port + i`. 0 is any that is free.
      address: Where it listens; all interfaces unless told.

    Returns:
      The port of this process.

    Raises:
      InputError: If it cannot listen there.
      ModuleNotFoundError: If prometheus_client is not installed.
    """
    try:
      import prometheus_client
    except ModuleNotFoundError as error:
      raise ModuleNotFoundError(
        "metrics for Prometheus need prometheus_client, which is not installed."
        " Install it with: pip install 'chomp_data[metrics]'"
      ) from error
    registry = prometheus_client.CollectorRegistry()
    registry.register(self)  # pyright: ignore[reportArgumentType]
    bound = port and port + jax.process_index()
    try:
      server, _ = prometheus_client.start_http_server(bound, address, registry)
    except (OSError, OverflowError) as error:
      raise errors.InputError(
        f"the port for metrics must be free on {address}, got {bound} (of"
        f" process {jax.process_index()}): {error}. Give another one; process i"
        " takes the port + i."
      ) from error
    self._server = server
    return server.server_port

  def close(self) -> None:
    """Ends serving; without a server it does nothing."""
    if self._server is not None:
      self._server.shutdown()
      self._server.server_close()
      self._server = None
