# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The engine `beam`: the same functions, called by Apache Beam's workers.

    OUTPUT.partial/engine/RUN/00000.tasks     some tasks, written here
    OUTPUT.partial/engine/RUN/00000.results   what a worker made of them

A pipeline holds only numbers of these files, so that a graph of any corpus is
small, and what a runner repeats is written again with the same bytes. Where the
output is a URL the files are in that bucket; otherwise workers must see the
same files under the same paths as this process. Workers have the same version
of chomp_data. The files are JSON, read as the types that the called function is
annotated with: who can write to them can make workers read and write other
files, but not run code.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import itertools
import os
import secrets
import threading
from typing import Any
from typing import get_type_hints
from typing import TypeVar

from chomp_data import errors
from chomp_data.prepare import progress
from chomp_data.prepare import scratch
from chomp_data.storage import paths
from chomp_data.stores import json_values

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# Numbers of files in a pipeline: runners take graphs of some MB.
_MOST_FILES = 10_000
_PROGRESS_SECONDS = 5.0  # A listing each.
_FAILED = "failed"

# Errors that are for the user, by the names that they have in files.
_ERRORS: dict[str, type[Exception]] = {
  kind.__name__: kind
  for kind in (
    errors.BadInput,
    errors.PrepareError,
    errors.StoreError,
    OSError,
  )
}


class Beam:
  """Calls functions in pipelines of Beam, one after the other."""

  def __init__(
    self,
    flags: Sequence[str],
    workers: int,
    directory: str,
  ):
    """Reads the flags.

    Args:
      flags: Beam's own, such as --runner.
      workers: Processes of the runner on this machine that is taken where no
        flag names a runner; 0 and 1 are one.
      directory: Where tasks and results are kept, seen by all workers.

    Raises:
      PrepareError: If Beam is not installed, or does not know a flag.
    """
    try:
      from apache_beam.options import pipeline_options  # pyright: ignore
    except ImportError:
      raise errors.PrepareError(
        "apache-beam must be installed for --engine=beam. Install chomp_data"
        " with the extra `beam`, in an environment of its own."
      ) from None
    flags = list(flags)
    if not any(flag.startswith("--runner") for flag in flags):
      flags.append("--runner=DirectRunner")
      if workers > 1:
        flags.append("--direct_running_mode=multi_processing")
        flags.append(f"--direct_num_workers={workers}")
    options = pipeline_options.PipelineOptions(flags)
    known = options.get_all_options(drop_default=True)
    parsed = options.get_all_options(
      drop_default=True, retain_unknown_options=True
    )
    unknown = sorted(set(parsed) - set(known))
    if unknown:
      raise errors.PrepareError(
        f"flags after -- must be those of Beam, got --{unknown[0]}. Correct it;"
        " flags of this command stand before --."
      )
    self._options = options
    self._directory = directory

  def run(
    self,
    function: Callable[[_Task], _Result],
    tasks: Sequence[_Task],
    on_progress: progress.Callback = lambda done, documents: None,
  ) -> Iterator[tuple[int, _Result]]:
    """Calls a function for each task; see `engines.Engine`."""
    if not tasks:
      return
    import apache_beam as beam  # pyright: ignore

    _, result_type = types_of(function)
    root = paths.join(self._directory, secrets.token_hex(8))
    each = -(-len(tasks) // _MOST_FILES)
    count = -(-len(tasks) // each)
    try:

      def write_tasks(number: int) -> None:
        numbers = range(len(tasks))[number * each : (number + 1) * each]
        _write(root, _name(number, "tasks"), [tasks[i] for i in numbers])

      for _ in scratch.mapped(write_tasks, range(count)):
        pass
      with _reporting(root, tasks, each, on_progress):
        pipeline = beam.Pipeline(options=self._options)
        _ = (
          pipeline
          | "Numbers" >> beam.Create(range(count))
          | "Spread" >> beam.Reshuffle()
          | "Call" >> beam.Map(call, function, root)
        )
        pipeline.run().wait_until_finish()
      if scratch.storage_at(root).head(_FAILED) is not None:
        raise read_error(root)

      def read_results(number: int) -> list[_Result]:
        name = _name(number, "results")
        try:
          results = _read(root, name, list[result_type])
        except FileNotFoundError:
          raise errors.PrepareError(
            f"{paths.join(root, name)} must have been written by a worker of"
            " Beam, got none. Give workers the same directories as this"
            " process, or put inputs and output into buckets."
          ) from None
        expected = min(each, len(tasks) - number * each)
        if len(results) != expected:
          raise errors.PrepareError(
            f"{paths.join(root, name)} must hold {expected} results, got"
            f" {len(results)}. Run again."
          )
        return results

      results = scratch.mapped(read_results, range(count))
      yield from enumerate(itertools.chain.from_iterable(results))
    finally:
      # What cannot be removed now is, once the store is published.
      with contextlib.suppress(OSError, errors.StoreError):
        scratch.storage_at(root).clear()

  def close(self) -> None:
    """Does nothing: there are no resources to release."""


def call(number: int, function: Callable[[Any], Any], root: str) -> None:
  """Calls a function for each task of a file: what workers of Beam do.

  Errors for the user are written to a file for the process that waits: a runner
  would try again, and wrap them.
  """
  # A worker uses one core: the tokenizer must not start threads.
  os.environ["TOKENIZERS_PARALLELISM"] = "false"
  results = _name(number, "results")
  files = scratch.storage_at(root)
  if files.head(results) is not None or files.head(_FAILED) is not None:
    return
  try:
    task_type, _ = types_of(function)
    tasks = _read(root, _name(number, "tasks"), list[task_type])
    done = [function(task) for task in tasks]
  except (errors.PrepareError, errors.StoreError, OSError) as error:
    write_error(root, error)
  else:
    _write(root, results, done)


@contextlib.contextmanager
def _reporting(
  root: str,
  tasks: Sequence[Any],
  each: int,
  on_progress: progress.Callback,
) -> Iterator[None]:
  """Reports now and then what is done, from what workers have written."""
  sizes = [getattr(task, "size", 0) for task in tasks]
  stop = threading.Event()

  def watch() -> None:
    while not stop.wait(_PROGRESS_SECONDS):
      done = 0
      with contextlib.suppress(errors.StoreError):  # The run will say so.
        for name in scratch.storage_at(root).names():
          number, _, kind = name.partition(".")
          if kind == "results" and number.isdecimal():
            done += sum(sizes[int(number) * each : (int(number) + 1) * each])
        on_progress(done, 0)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    stop.set()
    thread.join()


def _name(number: int, kind: str) -> str:
  return f"{number:05}.{kind}"


def types_of(function: Callable[..., Any]) -> tuple[Any, Any]:
  """Returns the types of a function's task and result."""
  hints = get_type_hints(function)
  result = hints.pop("return")
  (task,) = hints.values()
  return task, result


def _write(root: str, name: str, value: Any) -> None:
  scratch.storage_at(root).put(name, json_values.encode(value))


def _read(root: str, name: str, kind: Any) -> Any:
  data = scratch.storage_at(root).get(name)
  try:
    return json_values.parse(kind, data, name)
  except ValueError as error:
    raise errors.PrepareError(
      f"{paths.join(root, name)} must be as this run wrote it, got a file"
      f" where {error}. Run again; if it happens again, see who else writes"
      " there."
    ) from None


def write_error(root: str, error: Exception) -> None:
  name = next(name for name, kind in _ERRORS.items() if isinstance(error, kind))
  arguments = error.args
  if isinstance(error, OSError):
    # Its other arguments are in no order of their own.
    arguments = (error.errno, error.strerror, error.filename)
  _write(root, _FAILED, [name, [_plain(argument) for argument in arguments]])


def _plain(value: Any) -> int | str | None:
  return value if isinstance(value, int | str | None) else str(value)


def read_error(root: str) -> Exception:
  name, arguments = _read(root, _FAILED, tuple[str, list[int | str | None]])
  try:
    return _ERRORS[name](*arguments)
  except (KeyError, TypeError) as error:
    return errors.PrepareError(
      f"{paths.join(root, _FAILED)} must be an error of a worker, got"
      f" {name!r} ({error!r}). Run again."
    )
