"""The engine `beam`: the same functions, called by Apache Beam's workers.

    OUTPUT.partial/engine/RUN/00000.tasks     some tasks, written here
    OUTPUT.partial/engine/RUN/00000.results   what a worker made of them

A pipeline holds only numbers of these files, so that a graph of any corpus is
small, and what a runner repeats is written again with the same bytes. Where the
output is a URL they lie there, too; else workers see the same files under the
same paths as this process. They have the same chomp_data installed. The files
are pickles, made and read by one run.
"""

from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import contextlib
import os
import pickle
import secrets
import threading
from typing import Any
from typing import TypeVar

from chomp_data import errors
from chomp_data.prepare import work_files
from chomp_data.stores import places

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

# Numbers of files in a pipeline: runners take graphs of some MB.
_MOST_FILES = 10_000
_TELL_SECONDS = 1.0
_TELL_SECONDS_URL = 10.0  # A listing each.
_FAILED = "failed"


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
    given = options.get_all_options(
      drop_default=True, retain_unknown_options=True
    )
    unknown = sorted(set(given) - set(known))
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
    tell: Callable[[int], None] = lambda _: None,
  ) -> Iterator[tuple[int, _Result]]:
    """Calls a function for each task; see `engines.Engine`."""
    if not tasks:
      return
    import apache_beam as beam  # pyright: ignore

    root = places.join(self._directory, secrets.token_hex(8))
    each = -(-len(tasks) // _MOST_FILES)
    count = -(-len(tasks) // each)
    try:
      for number in range(count):
        own = list(tasks[number * each : (number + 1) * each])
        _write(root, _name(number, "tasks"), own)
      with _telling(root, tasks, each, tell):
        pipeline = beam.Pipeline(options=self._options)
        _ = (
          pipeline
          | "Numbers" >> beam.Create(range(count))
          | "Spread" >> beam.Reshuffle()
          | "Call" >> beam.Map(call, function, root)
        )
        pipeline.run().wait_until_finish()
      if work_files.exists(root, _FAILED):
        raise _read(root, _FAILED)
      for number in range(count):
        name = _name(number, "results")
        try:
          found = _read(root, name)
        except FileNotFoundError:
          raise errors.PrepareError(
            f"{places.join(root, name)} must have been written by a worker of"
            " Beam, got none. Give workers the same directories as this"
            " process, or put inputs and output into buckets."
          ) from None
        yield from enumerate(found, number * each)
    finally:
      # What cannot be removed now is, once the store is published.
      with contextlib.suppress(OSError, errors.StoreError):
        work_files.remove(root)

  def close(self) -> None:
    """Ends nothing: a pipeline ends by itself."""


def call(number: int, function: Callable[[Any], Any], root: str) -> None:
  """Calls a function for each task of a file: what workers of Beam do.

  Errors that are for the user are kept for the process that waits: a runner
  would try again, and wrap them.
  """
  # A worker is one core: the tokenizer must not start threads of its own.
  os.environ["TOKENIZERS_PARALLELISM"] = "false"
  results = _name(number, "results")
  if work_files.exists(root, results) or work_files.exists(root, _FAILED):
    return
  try:
    found = [function(task) for task in _read(root, _name(number, "tasks"))]
  except (errors.PrepareError, errors.StoreError, OSError) as error:
    _write(root, _FAILED, error)
  else:
    _write(root, results, found)


@contextlib.contextmanager
def _telling(
  root: str,
  tasks: Sequence[Any],
  each: int,
  tell: Callable[[int], None],
) -> Iterator[None]:
  """Tells now and then what is done, from what workers have written."""
  sizes = [getattr(task, "size", 0) for task in tasks]
  stop = threading.Event()

  def watch() -> None:
    seconds = _TELL_SECONDS_URL if places.is_url(root) else _TELL_SECONDS
    while not stop.wait(seconds):
      done = 0
      with contextlib.suppress(errors.StoreError):  # The run will say so.
        for name in work_files.names(root):
          number, _, kind = name.partition(".")
          if kind == "results":
            done += sum(sizes[int(number) * each : (int(number) + 1) * each])
        tell(done)

  thread = threading.Thread(target=watch, daemon=True)
  thread.start()
  try:
    yield
  finally:
    stop.set()
    thread.join()


def _name(number: int, kind: str) -> str:
  return f"{number:05}.{kind}"


def _write(root: str, name: str, value: Any) -> None:
  work_files.write(root, name, pickle.dumps(value))


def _read(root: str, name: str) -> Any:
  return pickle.loads(work_files.read(root, name))
