# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How fast is text prepared? MB/s by input and tokenizer, and the overhead.

    python benchmarks/preparing.py

Inputs are the sources of the Python standard library, again and again, until
they are as large as is asked for: JSON lines and, with pyarrow, Parquet.
Tokenizers are `byte` and three of 8,192 tokens that are trained here on a part
of it: a Hugging Face `tokenizer.json`, a tiktoken file of the same tokens and a
SentencePiece model (the last two where their packages are installed).

*Alone* is `preparing_alone.py`: a loop that reads records, takes their texts
and encodes them, on one core, and does nothing else. *Overhead* is the CPU time
that the command takes beyond that, with everything: its start and that of its
workers, numbers of lines, ids, checksums, hashes, parts, shards, the manifest.
CPU time and not wall time is compared, so that other work of the machine does
not count. Each figure is the median of `--repeats`, which measure all three
commands in turn.

Ten minutes on two CPU cores.
"""

import base64
from collections.abc import Sequence
import importlib.util
import io
import json
import os
import pathlib
import resource
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from typing import Any

from absl import flags
import harness

from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import training

_MEGABYTES = flags.DEFINE_integer("megabytes", 48, "Of text.")
_TOKENIZERS = flags.DEFINE_list(
  "tokenizers", None, "Of the tokenizers these only, as 'byte,tiktoken'."
)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of each figure.")

_ALONE = pathlib.Path(__file__).with_name("preparing_alone.py")
_TOOL = pathlib.Path(__file__).parents[1] / "tools" / "prepare.py"
_VOCAB_SIZE = 8_192
_TRAIN_BYTES = 2**21
# What tiktoken splits is about what the others do.
_PATTERN = "r50k_base"


def _sources() -> list[str]:
  root = pathlib.Path(sysconfig.get_path("stdlib"))
  return [
    text
    for path in sorted(root.glob("*.py")) + sorted(root.glob("[a-z]*/*.py"))
    if "site-packages" not in path.parts
    if (text := path.read_text("utf-8", "replace"))
  ]


def _write_inputs(folder: pathlib.Path, size: int) -> dict[str, pathlib.Path]:
  texts, total = [], 0
  sources = _sources()
  while total < size:
    texts.append(sources[len(texts) % len(sources)])
    total += len(texts[-1].encode())
  lines = folder / "corpus.jsonl"
  with open(lines, "w", encoding="utf-8") as file:
    for i, text in enumerate(texts):
      file.write(json.dumps({"id": f"document {i}", "text": text}) + "\n")
  inputs = {"JSON lines": lines}
  if importlib.util.find_spec("pyarrow"):
    import pyarrow as arrow
    from pyarrow import parquet

    inputs["Parquet"] = folder / "corpus.parquet"
    names = [f"document {i}" for i in range(len(texts))]
    table = arrow.table({"id": names, "text": texts})
    parquet.write_table(table, inputs["Parquet"], row_group_size=256)
  return inputs


def _make_tokenizers(folder: pathlib.Path) -> dict[str, Any]:
  texts, total = [], 0
  for text in _sources():
    texts.append(text)
    total += len(text)
    if total > _TRAIN_BYTES:
      break
  specs = {"byte": tokenizers.TokenizerSpec()}
  file = training.train_bpe(texts, _VOCAB_SIZE)
  path = folder / "tokenizer.json"
  path.write_bytes(file)
  specs["tokenizer.json"] = tokenizers.TokenizerSpec(str(path))
  if importlib.util.find_spec("tiktoken"):
    path = folder / "own.tiktoken"
    path.write_bytes(_ranks(file))
    specs["tiktoken"] = tokenizers.TokenizerSpec(str(path), pattern=_PATTERN)
  if importlib.util.find_spec("sentencepiece"):
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=(line for text in texts for line in text.split("\n")),
      model_writer=model,
      vocab_size=_VOCAB_SIZE,
      model_type="bpe",
      byte_fallback=True,
      normalization_rule_name="identity",
      remove_extra_whitespaces=False,
      minloglevel=2,
    )
    path = folder / "own.model"
    path.write_bytes(model.getvalue())
    specs["SentencePiece"] = tokenizers.TokenizerSpec(str(path))
  return specs


def _ranks(file: bytes) -> bytes:
  """Returns the tokens of a byte-level BPE as a tiktoken file."""
  # Its alphabet stands for bytes: printable ones as they are, then the others.
  shown = [*range(33, 127), *range(161, 173), *range(174, 256)]
  others = [b for b in range(256) if b not in shown]
  byte_of = {chr(b): b for b in shown} | {
    chr(256 + i): b for i, b in enumerate(others)
  }
  vocabulary = json.loads(file)["model"]["vocab"]
  tokens = [
    bytes(byte_of[c] for c in name)
    for name in sorted(vocabulary, key=vocabulary.__getitem__)
    if name not in training.SPECIAL
  ]
  return b"".join(
    base64.b64encode(token) + b" %d\n" % rank
    for rank, token in enumerate(tokens)
  )


def _seconds(command: Sequence[str]) -> tuple[float, float]:
  """Returns seconds and CPU seconds of a process and of its workers."""

  def cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime

  begin, before = time.perf_counter(), cpu()
  # A core each, as workers have: CPU times compare then.
  environment = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
  subprocess.run(
    [sys.executable, *command],
    check=True,
    env=environment,
    stdout=subprocess.DEVNULL,
  )
  return time.perf_counter() - begin, cpu() - before


def _prepare(
  path: pathlib.Path, spec: Any, workers: int, output: pathlib.Path
) -> tuple[float, float]:
  shutil.rmtree(output, ignore_errors=True)
  flags_of = [] if spec.pattern is None else [
    f"--tiktoken_pattern={spec.pattern}"
  ]  # fmt: skip
  return _seconds(
    [
      str(_TOOL),
      f"--input={path}",
      f"--output={output}",
      f"--tokenizer={spec.source}",
      f"--workers={workers}",
      *flags_of,
    ]
  )


def _measured(
  kind: str, path: pathlib.Path, spec: Any, output: pathlib.Path
) -> tuple[list[float], list[float]]:
  """Returns medians of seconds alone and of 1 and 2 workers, and of overheads.

  Each repeat measures all three, one after the other.
  """
  asked = json.dumps([kind, str(path), spec.source, spec.pattern])
  seconds, overheads = [], []
  for _ in range(_REPEATS.value):
    wall, alone = _seconds([str(_ALONE), asked])
    prepared = [_prepare(path, spec, workers, output) for workers in (1, 2)]
    seconds.append([wall, *(wall_s for wall_s, _ in prepared)])
    overheads.append([cpu / alone - 1 for _, cpu in prepared])
  return (
    [statistics.median(repeats) for repeats in zip(*seconds, strict=True)],
    [statistics.median(repeats) for repeats in zip(*overheads, strict=True)],
  )


def preparing(directory: pathlib.Path) -> harness.Table:
  """Prepares every input with every tokenizer."""
  size = 2**20 * harness.small(_MEGABYTES.value, 1)
  lines = []
  with tempfile.TemporaryDirectory(dir=directory) as temporary:
    folder = pathlib.Path(temporary)
    inputs = _write_inputs(folder, size)
    specs = _make_tokenizers(folder)
    for kind, path in inputs.items():
      for name, spec in specs.items():
        if name not in (_TOKENIZERS.value or specs):
          continue
        seconds, overheads = _measured(kind, path, spec, folder / "out")
        alone, *ours = (f"{size / wall_s / 1e6:.1f}" for wall_s in seconds)
        one, two = (f"{100 * share:.0f}%" for share in overheads)
        lines.append(
          {
            "input": kind,
            "tokenizer": name,
            "alone, MB/s": alone,
            "1 worker, MB/s": ours[0],
            "2 workers, MB/s": ours[1],
            "CPU overhead, 1 worker": one,
            "2 workers": two,
          }
        )
  return f"Preparing {size / 1e6:.0f} MB of text", lines


if __name__ == "__main__":
  harness.run(preparing)
