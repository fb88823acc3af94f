"""How fast is text prepared? MB/s by input and tokenizer, and the overhead.

    python benchmarks/preparing.py

Inputs are the sources of the Python standard library, again and again, until
they are as large as is asked for: JSON lines and, with pyarrow, Parquet.
Tokenizers are `byte` and three of 8,192 tokens that are trained here on a part
of it: a Hugging Face `tokenizer.json`, a tiktoken file of the same tokens and a
SentencePiece model (the last two where their packages are installed).

*Alone* is a loop that reads records, takes their texts and encodes them in the
same batches, on one core, and does nothing else. *Overhead* is the CPU time
that preparing takes beyond that, with everything: numbers of lines, ids,
checksums, hashes, parts, shards, the manifest. CPU time and not wall time is
compared, so that other work of the machine does not count. Each figure is the
median of `--repeats`.

Ten minutes on two CPU cores.
"""

import base64
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
import importlib.util
import io
import json
import os
import pathlib
import resource
import shutil
import statistics
import sysconfig
import tempfile
import time
from typing import Any

from absl import app
from absl import flags
import tables

from chomp_data.prepare import run
from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import training

_SMALL = flags.DEFINE_bool("small", False, "Little text: seconds.")
_MEGABYTES = flags.DEFINE_integer("megabytes", 48, "Of text.")
_TOKENIZERS = flags.DEFINE_list(
  "tokenizers", None, "Of the tokenizers these only, as 'byte,tiktoken'."
)
_REPEATS = flags.DEFINE_integer("repeats", 3, "Runs of each figure.")
_DIRECTORY = flags.DEFINE_string(
  "directory", None, "Where inputs and stores are made (a temporary one)."
)
_OUTPUT = flags.DEFINE_string("output", None, "Markdown file to write.")

_VOCAB_SIZE = 8_192
_TRAIN_BYTES = 2**21
_BATCH_TEXTS, _BATCH_CHARACTERS = 1_024, 4 * 2**20  # As parts are encoded.
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
  found = {"JSON lines": lines}
  if importlib.util.find_spec("pyarrow"):
    import pyarrow as arrow
    from pyarrow import parquet

    found["Parquet"] = folder / "corpus.parquet"
    names = [f"document {i}" for i in range(len(texts))]
    table = arrow.table({"id": names, "text": texts})
    parquet.write_table(table, found["Parquet"], row_group_size=256)
  return found


def _make_tokenizers(folder: pathlib.Path) -> dict[str, Any]:
  texts, total = [], 0
  for text in _sources():
    texts.append(text)
    total += len(text)
    if total > _TRAIN_BYTES:
      break
  found = {"byte": tokenizers.TokenizerSpec()}
  file = training.train_bpe(texts, _VOCAB_SIZE)
  path = folder / "tokenizer.json"
  path.write_bytes(file)
  found["tokenizer.json"] = tokenizers.TokenizerSpec(str(path))
  if importlib.util.find_spec("tiktoken"):
    path = folder / "own.tiktoken"
    path.write_bytes(_ranks(file))
    found["tiktoken"] = tokenizers.TokenizerSpec(str(path), pattern=_PATTERN)
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
    found["SentencePiece"] = tokenizers.TokenizerSpec(str(path))
  return found


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


def _texts(kind: str, path: pathlib.Path) -> Iterator[str]:
  if kind == "JSON lines":
    with open(path, "rb") as file:
      for line in file:
        yield json.loads(line)["text"]
    return
  from pyarrow import parquet

  for batch in parquet.ParquetFile(path).iter_batches(
    batch_size=256, columns=["id", "text"], use_threads=False
  ):
    yield from batch.column("text").to_pylist()


def _alone(kind: str, path: pathlib.Path, spec: Any) -> None:
  """Reads and encodes, and forgets."""
  tokenizer = tokenizers.make_tokenizer(spec)
  batch, characters = [], 0
  for text in _texts(kind, path):
    batch.append(text)
    characters += len(text)
    if len(batch) >= _BATCH_TEXTS or characters >= _BATCH_CHARACTERS:
      tokenizer.encode_batch(batch)
      batch, characters = [], 0
  tokenizer.encode_batch(batch)


def _prepare(
  path: pathlib.Path, spec: Any, workers: int, output: pathlib.Path
) -> None:
  shutil.rmtree(output, ignore_errors=True)
  run.prepare(
    run.Options(
      inputs=(str(path),), output=str(output), tokenizer=spec, workers=workers
    )
  )


def _measured(call: Callable[[], None]) -> tuple[float, float]:
  """Returns medians of seconds and CPU seconds, those of children included."""

  def cpu() -> float:
    return sum(
      used.ru_utime + used.ru_stime
      for used in map(
        resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
      )
    )

  found = []
  for _ in range(_REPEATS.value):
    begin, before = time.perf_counter(), cpu()
    call()
    found.append((time.perf_counter() - begin, cpu() - before))
  seconds, used = zip(*found, strict=True)
  return statistics.median(seconds), statistics.median(used)


def _preparing() -> tables.Table:
  size = 2**20 * (1 if _SMALL.value else _MEGABYTES.value)
  lines = [
    ["input", "tokenizer", "alone, MB/s", "1 worker, MB/s", "2 workers, MB/s",
     "CPU overhead, 1 worker", "2 workers"],
  ]  # fmt: skip
  with tempfile.TemporaryDirectory(dir=_DIRECTORY.value) as kept:
    folder = pathlib.Path(kept)
    inputs = _write_inputs(folder, size)
    specs = _make_tokenizers(folder)
    for kind, path in inputs.items():
      for name, spec in specs.items():
        if name not in (_TOKENIZERS.value or specs):
          continue
        # A core each, as workers have: CPU times compare then.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        seconds, alone = _measured(
          lambda k=kind, p=path, s=spec: _alone(k, p, s)
        )
        rates, overheads = [size / seconds / 1e6], []
        for workers in (1, 2):
          seconds, used = _measured(
            lambda p=path, s=spec, w=workers: _prepare(p, s, w, folder / "out")
          )
          rates.append(size / seconds / 1e6)
          overheads.append(used / alone - 1)
        lines.append(
          [kind, name, *(f"{rate:.1f}" for rate in rates),
           *(f"{100 * own:.0f}%" for own in overheads)]
        )  # fmt: skip
  return f"Preparing {size / 1e6:.0f} MB of text", lines


def main(argv: Sequence[str]) -> None:
  """Measures, and shows the table."""
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  tables.run_parts({"preparing": _preparing}, ["preparing"], _OUTPUT.value)


if __name__ == "__main__":
  app.run(main)
