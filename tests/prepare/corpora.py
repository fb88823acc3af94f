# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Corpora of every kind, written by the libraries that teams use.

Each function writes documents to a directory that is there, and returns what
`prepare --input` is given. `DOCUMENTS` are texts of the Python library.
"""

import contextlib
import dataclasses
import gzip
import json
import pathlib
import sysconfig
from unittest import mock

from array_record.python import array_record_module
import numpy as np
import tokenizers as hf
import zstandard

from chomp_data import stores
from chomp_data.prepare import input_plan
from chomp_data.prepare import inputs
from chomp_data.prepare import readers
from chomp_data.prepare import records
from chomp_data.prepare.reading import byte_blocks
from chomp_data.prepare.reading import tf_example

OPTIONS = records.ReadOptions(raw=False)
_STDLIB = pathlib.Path(sysconfig.get_path("stdlib"))
DOCUMENTS = [
  (path.name, path.read_text(encoding="utf-8"))
  for path in sorted(_STDLIB.glob("[a-c]*.py"))
  if path.stat().st_size
]


def json_lines(directory, documents=DOCUMENTS, name="x.jsonl"):
  """JSON lines in the compression that the name says."""
  lines = [json.dumps({"id": i, "text": text}) + "\n" for i, text in documents]
  data = "".join(lines).encode()
  if name.endswith(".gz"):
    data = gzip.compress(data)
  elif name.endswith(".zst"):
    data = zstandard.compress(data)
  (directory / name).write_bytes(data)
  return directory / name


def table(documents=DOCUMENTS):
  """Documents as pyarrow.Table."""
  import pyarrow as arrow

  ids, texts = zip(*documents, strict=True)
  return arrow.table({"id": ids, "size": range(len(ids)), "text": texts})


def parquet(directory, documents=DOCUMENTS, rows=7):
  """Parquet of row groups of so many rows."""
  import pyarrow.parquet

  path = directory / "x.parquet"
  pyarrow.parquet.write_table(table(documents), str(path), row_group_size=rows)
  return path


def arrow_file(directory, documents=DOCUMENTS, rows=7):
  """Arrow's file format, of batches of so many rows."""
  import pyarrow as arrow

  path = directory / "x.arrow"
  own = table(documents)
  with arrow.ipc.new_file(str(path), own.schema) as out:
    out.write_table(own, max_chunksize=rows)
  return path


def saved(directory, documents=DOCUMENTS, shards=2):
  """A directory of `save_to_disk` of the datasets library."""
  import datasets

  dataset = datasets.Dataset.from_list(
    [{"id": i, "text": text} for i, text in documents]
  )
  dataset.save_to_disk(str(directory / "saved"), num_shards=shards)
  return directory / "saved"


def array_record(directory, records, name="x.array_record", group=4):
  """An ArrayRecord file of bytes."""
  path = directory / name
  writer = array_record_module.ArrayRecordWriter(
    str(path), f"group_size:{group}"
  )
  for record in records:
    writer.write(record)
  writer.close()
  return path


def array_record_of_text(directory, documents=DOCUMENTS):
  """ArrayRecord of UTF-8, which has no ids."""
  return array_record(directory, [text.encode() for _, text in documents])


def array_record_of_examples(directory, documents=DOCUMENTS):
  """ArrayRecord of `tf.train.Example`."""
  return array_record(
    directory,
    [
      example(id=[i.encode()], text=[text.encode()], size=[len(text)])
      for i, text in documents
    ],
  )


def example(**features):
  """A serialized `tf.train.Example` of lists of bytes, floats or integers."""
  message = tf_example.message_class()()
  for name, values in features.items():
    feature = message.features.feature.add(key=name).value
    feature.SetInParent()
    if not values:
      continue
    kind = {bytes: "bytes", float: "float", int: "int64"}[type(values[0])]
    getattr(feature, f"{kind}_list").value.extend(values)
  return message.SerializeToString(deterministic=True)


def bpe(texts, special=("<pad>", "</s>", "<s>"), size=320):
  """A tiny byte-level BPE of the tokenizers library."""
  tokenizer = hf.Tokenizer(hf.models.BPE())
  tokenizer.pre_tokenizer = hf.pre_tokenizers.ByteLevel(add_prefix_space=False)
  tokenizer.decoder = hf.decoders.ByteLevel()
  trainer = hf.trainers.BpeTrainer(
    vocab_size=size,
    special_tokens=list(special),
    initial_alphabet=hf.pre_tokenizers.ByteLevel.alphabet(),
    show_progress=False,
  )
  tokenizer.train_from_iterator(texts, trainer)
  return tokenizer


def trained_bytes(store, document):
  """The bytes of a document, and those of them that are trained on."""
  begin, length = store.bounds(np.asarray([document]))
  tokens = stores.read_document(store, document).astype(np.uint8)
  _, low, high, level = store.labels.runs(begin, length)
  trained = np.repeat(store.labels.levels[level] > 0, high - low)
  return tokens.tobytes(), tokens[trained].tobytes()


def planned(path, part_bytes=2**40, options=OPTIONS):
  """The files at a path or URL as `prepare` looks at them, in this process."""
  return list(
    input_plan.plan_files(
      inputs.discover([str(path)], []),
      part_bytes,
      options,
      "",
      map,
    )
  )


def pieces(path, part_bytes=2**40, options=OPTIONS):
  """The pieces that `prepare` reads of the files at a path or URL."""
  files = planned(path, part_bytes, options)
  for file in files:
    if file.error is not None:
      raise file.error
  pieces_of_files = [piece for file in files for piece in file.pieces]
  return list(input_plan.number(pieces_of_files, "", map))


def read(path, part_bytes=2**40, skipped=None, options=OPTIONS, **changes):
  """The documents of the files at a path or URL, by pieces of so many bytes."""
  options = dataclasses.replace(options, **changes)
  return [
    document
    for piece in pieces(path, part_bytes, options)
    for document in readers.documents(piece, options, skipped)
  ]


@contextlib.contextmanager
def blocks_of(size):
  """Lines are read in blocks of so many bytes."""
  with mock.patch.object(byte_blocks, "BLOCK", size):
    yield


def as_text(document):
  """The text of a document, which may be bytes."""
  text = document.text
  return text.decode() if isinstance(text, bytes) else text
