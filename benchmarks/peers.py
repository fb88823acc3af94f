# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What we and others take to hand out the same tokens, in one run.

    python benchmarks/peers.py --rows=8,64
    make bench-peers

One corpus of lognormal lengths (see corpora.py) in three sources of 70, 20 and
10% of the documents, mixed 0.5 / 0.3 / 0.2 by each loader's own means; uint16
tokens, batches [rows, 2048] of int32 on the host, no workers, page cache warm.
Each loader is a file of benchmarks/peer_loaders/ and runs in a process of its
own, of this environment or of `--peers_python`; one that neither has, that does
not start, or that fails is told in the tables, and the others are compared.
Three parts (`--parts` runs some):

- speed: million tokens per CPU second (of the process, its threads and
  children), and tokens a second over a raw gather timed in the same process
  right before, `big[idx].astype(np.int32)`, big the page-cached uint16 tokens
  as rows, idx random. Medians over repeats that go round all loaders of a kind;
  a process that waits for its turn is stopped, so that no thread of it runs
  ahead. "Ours over it" divides our median tokens per CPU second by the other
  loader's, from the slowest to the fastest of our orders. It says as much about
  what makes the other's batches, which `how` names: TRL is timed with a NumPy
  collator, too.
- starts: the time to the first batch after imports, and from a saved state to
  its batch, in fresh processes; whether that batch is the one that was to come;
  positions without a token, and tokens that an epoch leaves out, counted.
- ranks: whether two processes hold, step by step, the rows that one would.

Filler is no token. What loaders write once (shards, indexes, packed rows) is
not timed.
"""

from collections.abc import Iterator
from collections.abc import Mapping
from collections.abc import Sequence
import contextlib
import dataclasses
import datetime
import functools
import json
import os
import pathlib
import platform
import re
import select
import signal
import socket
import statistics
import subprocess
import sys
from typing import Any

from absl import app
from absl import flags
from absl import logging
import corpora
import harness
import numpy as np
from peer_loaders import base

_LOADERS = flags.DEFINE_list("loaders", None, "Only these; all by default.")
_DOCUMENTS = flags.DEFINE_integer(
  "documents", 25_000, "Of the corpus. One source has 70% of them.", 100
)
_ROWS = flags.DEFINE_list(
  "rows", ["8"], "Rows of batches whose speed is timed."
)
_REPEATS = flags.DEFINE_integer("repeats", 9, "Of each timing.", 1)
_STEP = flags.DEFINE_integer("resume_step", 1_000, "Where runs resume.", 1)
_PEERS_PYTHON = flags.DEFINE_string(
  "peers_python",
  ".venv-peers/bin/python",
  "The interpreter of loaders that this environment has not.",
)
_FAST = flags.DEFINE_bool(
  "fast", True, "Ours uses its compiled loops, or NumPy alone."
)
_PLOT = flags.DEFINE_string("plot", None, "Picture of the speeds to draw.")

_WORKER = pathlib.Path(__file__).parent / "peer_loaders" / "worker.py"
_SHARES = {"web": 0.7, "code": 0.2, "wiki": 0.1}  # of the documents
_PATIENCE = 600  # seconds for one answer
_RANK_STEPS = 20

# By file of peer_loaders/: the name, and the module that it needs.
LOADERS = {
  "gather": ("raw gather", "numpy"),
  "chomp": ("chomp_data", "chomp_data"),
  "lit": ("LitData", "litdata"),
  "mosaic": ("MosaicML Streaming", "streaming"),
  "trl_packing": ("datasets + TRL", "trl"),
  "trl_numpy": ("datasets + TRL, NumPy collator", "trl"),
  "megatron": ("Megatron-Core", "megatron"),
  "olmo": ("OLMo-core", "olmo_core"),
  "grain_stock": ("Grain", "grain"),
}


@dataclasses.dataclass(frozen=True)
class Entry:
  """A loader that is installed.

  Attributes:
    module: Of peer_loaders/.
    name: With its version.
    python: The interpreter that has it.
    kinds: What it can do, and how.
  """

  module: str
  name: str
  python: str
  kinds: Mapping[str, str]


class Worker:
  """A process of peer_loaders/worker.py."""

  def __init__(
    self,
    module: str,
    python: str,
    log: pathlib.Path,
    environment: Mapping[str, str] | None = None,
  ):
    """Starts it, and waits until everything is imported."""
    self._log = log
    self._logged = log.stat().st_size if log.exists() else 0
    quiet = {
      "JAX_PLATFORMS": "cpu",
      "HF_HUB_OFFLINE": "1",
      "HF_DATASETS_CACHE": str(log.parent / "hf"),
    }
    with open(log, "a") as errors:
      self._process = subprocess.Popen(
        [python, str(_WORKER), module],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        text=True,
        env={**os.environ, **quiet, **(environment or {})},
      )
    try:
      self.about = self._reply()
    except RuntimeError:
      self._process.kill()
      self._process.communicate()
      raise

  def __enter__(self) -> "Worker":
    return self

  def __exit__(self, *_: object) -> None:
    self.go_on()
    try:  # It ends with its commands, and frees what it shares.
      self._process.communicate(timeout=10)
    except subprocess.TimeoutExpired:
      self._process.kill()
      self._process.communicate()

  def send(self, command: str, **arguments: Any) -> None:
    """Asks without waiting."""
    assert self._process.stdin is not None
    with contextlib.suppress(BrokenPipeError):  # It ended: `receive` tells.
      print(
        json.dumps([command, arguments]), file=self._process.stdin, flush=True
      )

  def receive(self) -> Any:
    """Returns the answer, or raises what the worker raised."""
    reply = self._reply()
    if "error" in reply:
      raise RuntimeError(reply["error"])
    return reply["found"]

  def ask(self, command: str, **arguments: Any) -> Any:
    """Sends and receives."""
    self.send(command, **arguments)
    return self.receive()

  def stop(self) -> None:
    """Lets none of its threads run."""
    self._process.send_signal(signal.SIGSTOP)

  def go_on(self) -> None:
    """Lets them run again."""
    self._process.send_signal(signal.SIGCONT)

  def _reply(self) -> dict[str, Any]:
    assert self._process.stdout is not None
    if not select.select([self._process.stdout], [], [], _PATIENCE)[0]:
      raise RuntimeError(f"no answer in {_PATIENCE} s")
    line = self._process.stdout.readline()
    if not line:
      raise RuntimeError(self._last_words() or "the process ended")
    return json.loads(line)

  def _last_words(self) -> str:
    with open(self._log, errors="replace") as log:
      log.seek(self._logged)
      return log.read().strip().rpartition("\n")[2]


class Run:
  """A corpus, and the loaders that are compared on it."""

  def __init__(self, directory: pathlib.Path, modules: Sequence[str]):
    """Makes the corpus where there is none, and what loaders read of it."""
    self.directory = directory
    self._log = directory / "workers.log"
    make_corpus(directory, _DOCUMENTS.value)
    self.entries: list[Entry] = []
    self.missing: dict[str, str] = {}  # Names, and why they are.
    for module in modules:
      name, needs = LOADERS[module]
      python = python_of(needs)
      if python is None:
        self.missing[name] = "not installed"
        continue
      try:
        with Worker(module, python, self._log) as worker:
          version = worker.about["version"]
          title = name if module == "gather" else f"{name} {version}"
          kinds = {
            kind: how
            for kind, how in worker.about["kinds"].items()
            if not harness.KINDS.value or kind in harness.KINDS.value
          }
          entry = Entry(module, title, python, kinds)
          for kind in entry.kinds:
            worker.ask("prepare", **self.setting(kind, 8))
      except RuntimeError as error:
        # Of versions that do not go together, for instance; the log says more.
        logging.warning("%s does not start: %s (%s)", name, error, self._log)
        self.missing[name] = f"does not start: {error}"
        continue
      self.entries.append(entry)
      logging.info("prepared %s", entry.name)

  def setting(self, kind: str, rows: int, **more: Any) -> dict[str, Any]:
    """Returns a `base.Setting`, as JSON."""
    return {
      "directory": str(self.directory),
      "kind": kind,
      "batch_size": rows,
      **more,
    }

  def start(self, entry: Entry, **environment: str) -> Worker:
    """Starts a worker of a loader."""
    return Worker(entry.module, entry.python, self._log, environment)

  def not_compared(self, column: str) -> list[harness.Line]:
    """Returns lines that say in a column why loaders are missing."""
    return [{"loader": name, column: why} for name, why in self.missing.items()]


def make_corpus(directory: pathlib.Path, documents: int) -> None:
  """Writes the sources; see `base`."""
  directory.mkdir(parents=True, exist_ok=True)
  rng = np.random.default_rng(0)
  for name, share in _SHARES.items():
    if (directory / f"{name}.npy").exists():
      continue
    lengths = corpora.lengths(rng, round(documents * share))
    ends = np.cumsum(lengths)
    tokens = rng.integers(3, base.VOCAB_SIZE, int(ends[-1]), dtype=np.uint16)
    tokens[ends - 1] = base.EOS
    tokens.tofile(directory / f"{name}.uint16")
    np.save(directory / f"{name}.npy", np.concatenate([[0], ends]))


def python_of(needs: str) -> str | None:
  """Returns the first interpreter that has a module."""
  code = (
    f"import importlib.util as u; raise SystemExit(not u.find_spec({needs!r}))"
  )
  for python in (sys.executable, _PEERS_PYTHON.value):
    try:
      if not subprocess.run([python, "-c", code]).returncode:
        return python
    except OSError:
      continue
  return None


def _speed(run: Run, rows: int) -> harness.Table:
  """Times all loaders, one kind after the other."""
  lines: list[harness.Line] = []
  for what in ("one source", "mix", "packed", "splice"):
    lines += _speeds_of(run, what, rows)
  lines += run.not_compared("how")
  fast = "with" if _FAST.value else "without"
  return f"speed {fast} `fast`: [{rows}, {base.SEQ_LEN}]", lines


def _speeds_of(run: Run, what: str, rows: int) -> list[harness.Line]:
  seconds, most = harness.small((0.4, 2.0), (0.02, 0.1))
  tokens = run.directory.joinpath(f"{base.ONE[0]}.uint16").stat().st_size // 2
  taking = [
    (entry, kind)
    for entry in run.entries
    for kind in entry.kinds
    if kind.startswith(what)
  ]
  workers: list[tuple[Entry, str, Worker, float, list]] = []
  lines = []

  def failed(entry: Entry, kind: str, error: RuntimeError) -> None:
    logging.warning("%s, %s: %s", entry.name, kind, error)
    line = {"what": kind, "loader": entry.name, "how": f"failed: {error}"}
    lines.append(line)

  try:
    for entry, kind in taking:
      try:
        # Ours compiles loops beside its first batches otherwise.
        kernels = "now" if _FAST.value else "off"
        worker = run.start(entry, CHOMP_DATA_KERNELS=kernels)
      except RuntimeError as error:
        failed(entry, kind, error)
        continue
      try:
        worker.ask("open", **run.setting(kind, rows))
        full = worker.ask("warm", tokens=tokens, seconds=most, measured=seconds)
      except RuntimeError as error:
        failed(entry, kind, error)
        worker.__exit__()
        continue
      worker.stop()
      logging.info("opened %s, %s", entry.name, kind)
      workers.append((entry, kind, worker, full, []))
    for _ in range(_REPEATS.value):
      for running in list(workers):
        entry, kind, worker, full, speeds = running
        worker.go_on()
        try:
          taken = worker.ask("measure")
        except RuntimeError as error:
          failed(entry, kind, error)
          workers.remove(running)
          worker.__exit__()
          continue
        worker.stop()
        positions = taken["positions"] * full
        ratio = positions / taken["wall"] / taken["gather"]
        speeds.append((positions / taken["cpu"] / 1e6, ratio))
  finally:
    for _, _, worker, _, _ in workers:
      worker.__exit__()
  ours = [
    np.median(np.transpose(speeds)[0])
    for entry, _, _, _, speeds in workers
    if entry.module == "chomp"
  ]
  for entry, kind, _, _, speeds in workers:
    cpu, ratio = np.transpose(speeds)
    line = {
      "what": kind,
      "loader": entry.name,
      "how": entry.kinds[kind],
      "Mtokens / CPU s": _number(float(np.median(cpu))),
      "low .. high": f"{_number(cpu.min())} .. {_number(cpu.max())}",
    }
    if entry.module == "gather":  # Over itself, it is 1.
      line["of the raw gather"] = "1"
    else:
      line["of the raw gather"] = f"{np.median(ratio):.4f}"
      line["its low .. high"] = f"{ratio.min():.4f} .. {ratio.max():.4f}"
      if entry.module != "chomp":
        line["ours over it"] = _over(ours, float(np.median(cpu)))
    lines.append(line)
  return lines


def _over(ours: Sequence[float], other: float) -> str:
  """Returns how many times as fast ours are, the least and the most."""
  ratios = [f"{speed / other:.1f}" for speed in sorted(ours)]
  return " to ".join(dict.fromkeys([*ratios[:1], *ratios[-1:]]))


def _number(value: float) -> str:
  return f"{value:,.0f}" if value >= 100 else f"{value:.1f}"


def _resumable(run: Run) -> list[tuple[Entry, str]]:
  return [
    (entry, kind)
    for entry in run.entries
    for kind in entry.kinds
    if entry.module != "gather" and not kind.startswith("mix")
  ]


def starts(directory: pathlib.Path) -> harness.Table:
  """Starts and resumes in fresh processes, and counts an epoch."""
  run = run_of(directory)
  step = _STEP.value
  lines: list[harness.Line] = []
  file = str(run.directory / "state.pickle")
  total = run.directory.joinpath(f"{base.ONE[0]}.uint16").stat().st_size // 2
  for entry, kind in _resumable(run):
    logging.info("%s, %s", entry.name, kind)
    setting = run.setting(kind, 8, once=True)
    repeats = harness.small(3, 1)
    whole = kind != "splice"  # Its epoch is every row of every start.
    try:
      with run.start(entry) as worker:
        straight = worker.ask(
          "straight", step=step, file=file, whole=whole, **setting
        )
      first, resumed = [straight], []
      for _ in range(repeats):
        with run.start(entry) as worker:
          resumed.append(worker.ask("resume", file=file, **setting))
      for _ in range(repeats - 1):
        with run.start(entry) as worker:
          first.append(worker.ask("open", **setting))
    except RuntimeError as error:
      lines.append({"loader": entry.name, "what": f"{kind} failed: {error}"})
      continue
    same = {start["digest"] for start in resumed}
    positions = straight["steps"] * 8 * base.SEQ_LEN
    lines.append(
      {
        "loader": entry.name,
        "what": kind,
        "first batch, ms (CPU)": _median_ms(first),
        f"resume at {step:,}, ms (CPU)": _median_ms(resumed),
        "the batch that was to come": (
          "yes" if same == {straight["digest"]} else "no"
        ),
        "empty positions": f"{1 - straight['tokens'] / positions:.2%}",
        "left out": f"{1 - straight['tokens'] / total:.2%}" if whole else "",
        "fields": ", ".join(straight["fields"]),
      }
    )
  lines += run.not_compared("what")
  return f"starts: [8, {base.SEQ_LEN}], one source of {total:,} tokens", lines


def _median_ms(starts: Sequence[Mapping[str, float]]) -> str:
  wall, cpu = (
    statistics.median(start[name] for start in starts)
    for name in ("ms", "cpu_ms")
  )
  return f"{wall:.0f} ({cpu:.0f})"


def ranks(directory: pathlib.Path) -> harness.Table:
  """Compares the rows of two processes with those of one."""
  run = run_of(directory)
  lines: list[harness.Line] = []
  for entry, kind in _resumable(run):
    logging.info("%s, %s", entry.name, kind)
    try:
      with run.start(entry) as worker:
        alone = worker.ask("rows", steps=_RANK_STEPS, **run.setting(kind, 8))
      two = _two_ranks(run, entry, kind)
    except RuntimeError as error:
      lines.append({"loader": entry.name, "what": f"{kind} failed: {error}"})
      continue
    same = [
      sorted(one) == sorted(a + b)
      for one, a, b in zip(alone, *two, strict=True)
    ]
    agreement = "yes" if all(same) else f"no ({sum(same)} of {len(same)} steps)"
    lines.append(
      {
        "loader": entry.name,
        "what": kind,
        "two ranks hold the rows of one, step by step": agreement,
      }
    )
  lines += run.not_compared("what")
  return f"ranks: the first {_RANK_STEPS} steps, [8, {base.SEQ_LEN}]", lines


def _two_ranks(run: Run, entry: Entry, kind: str) -> list[list[list[str]]]:
  with socket.create_server(("127.0.0.1", 0)) as server:
    port = str(server.getsockname()[1])
  workers = []
  try:
    for rank in range(2):
      # As launchers of torch set it.
      workers.append(
        run.start(
          entry,
          RANK=str(rank),
          LOCAL_RANK=str(rank),
          WORLD_SIZE="2",
          LOCAL_WORLD_SIZE="2",
          MASTER_ADDR="127.0.0.1",
          MASTER_PORT=port,
        )
      )
    for rank, worker in enumerate(workers):
      setting = run.setting(kind, 8, rank=rank, ranks=2)
      worker.send("rows", steps=_RANK_STEPS, **setting)
    return [worker.receive() for worker in workers]
  finally:
    for worker in workers:
      worker.__exit__()


def machine() -> str:
  """Returns the date, and what is measured on."""
  model = re.search(
    r"model name\s*: (.*)", pathlib.Path("/proc/cpuinfo").read_text()
  )
  day = datetime.datetime.now(datetime.UTC).date()
  name = model[1] if model else platform.machine()
  return (
    f"{day}, {len(os.sched_getaffinity(0))} cores of {name}, Python"
    f" {platform.python_version()}; load {os.getloadavg()[0]:.1f} in the end"
  )


def plot(path: str, by_rows: Mapping[int, list[harness.Line]]) -> None:
  """Draws tokens a CPU second of all loaders, a panel for each kind of rows.

  Args:
    path: The picture.
    by_rows: Lines of `speed`, by the rows of batches.
  """
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  whats = ("one source", "mix", "packed")
  figure, axes = pyplot.subplots(
    1, len(whats), figsize=(13, 4.8), layout="constrained", sharex=True
  )
  for what, axis in zip(whats, axes, strict=True):
    speeds: dict[str, dict[int, float]] = {}
    for rows, lines in by_rows.items():
      for line in lines:
        kind, cpu = line.get("what", ""), line.get("Mtokens / CPU s")
        if kind.startswith(what) and cpu:
          # Of several of one loader, the order is told too.
          order = kind.partition(", ")[2]
          loader = re.sub(
            r" \d[\d.]*$", "", line["loader"]
          )  # Without its version.
          label = "\n".join(filter(None, (*loader.split(", "), order)))
          by_batch_size = speeds.setdefault(label, {})
          by_batch_size[rows] = float(cpu.replace(",", ""))
    names = sorted(speeds, key=lambda name: max(speeds[name].values()))
    height = 0.8 / max(len(by_rows), 1)
    for i, rows in enumerate(by_rows):
      values = [speeds[name].get(rows, 0.0) for name in names]
      at = np.arange(len(names)) + height * i
      bars = axis.barh(at, values, height, label=f"[{rows}, {base.SEQ_LEN}]")
      axis.bar_label(bars, [_number(v) if v else "" for v in values], padding=2)
    axis.set_yticks(np.arange(len(names)) + height * (len(by_rows) - 1) / 2)
    axis.set_yticklabels(names)
    axis.set(title=what, xscale="log", xlabel="million tokens per CPU second")
    axis.margins(x=0.45)
  handles, labels = axes[0].get_legend_handles_labels()
  figure.legend(handles, labels, loc="outside lower center", ncols=len(by_rows))
  figure.savefig(path, dpi=110)
  pyplot.close(figure)


@functools.cache
def run_of(directory: pathlib.Path) -> Run:
  """Returns the corpus and the loaders of all parts."""
  modules = _LOADERS.value or list(LOADERS)
  if unknown := set(modules) - set(LOADERS):
    raise app.UsageError(
      f"--loaders must be some of {', '.join(LOADERS)}, got"
      f" {', '.join(sorted(unknown))}."
    )
  # So that no worker stays behind, stopped.
  signal.signal(signal.SIGTERM, signal.default_int_handler)
  logging.set_verbosity(logging.INFO)
  return Run(directory, modules)


def speed(directory: pathlib.Path) -> Iterator[harness.Table]:
  """Times batches of each number of rows, and draws them."""
  run, by_rows = run_of(directory), {}
  for rows in map(int, _ROWS.value):
    title, lines = _speed(run, rows)
    by_rows[rows] = lines
    yield f"{title}, {machine()}", lines
  if _PLOT.value:
    plot(_PLOT.value, by_rows)


if __name__ == "__main__":
  harness.run(speed, starts, ranks)
