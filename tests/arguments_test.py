# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Every public callable names the argument that is wrong, in an error of ours.

What is called is not listed by hand: the names of `chomp_data` and of public
modules beside it, and the methods of classes that docs/api.md lists. Each of
their parameters is passed wrong values, chosen by its annotation. A new name,
method or parameter fails here until it has an entry in `calls` and is checked.
"""

import inspect
import math
import pathlib
import traceback
import types
import typing

import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import process_input
from chomp_data import row_kinds
from chomp_data.config import options as config_options
from chomp_data.integrations import maxtext
from chomp_data.integrations import prometheus
from chomp_data.testing import batch_hashes
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import masks
from examples import save_to_disk

PACKAGE = pathlib.Path(chomp_data.__file__).parent

# Public modules beside `chomp_data`, and their names.
OTHERS = {
  masks: ("MaskBoundaryLoss", "TrainOnEos", "ResetPositions"),
  prometheus: ("Metrics",),
  maxtext: ("MaxTextIterator",),
  batch_hashes: ("batch_sha256",),
}

# Classes whose methods are public.
WITH_METHODS = (
  "BlockShuffleSampler",
  "InputIterator",
  "Metrics",
  "Pipeline",
  "Epochs",
  "RowSource",
  "SampleStore",
  "Spans",
  "Store",
)

# Some methods of these are public, others for runs.
SOME_METHODS = {"MixtureSource": ("__getitem__", "batch", "plan")}

# Constructors that are called by classes of this package and of users alone.
NOT_CALLED = ("Epochs", "RowSource", "Store", "SampleStore")


# Calls of the table that cannot succeed on what `made` makes.
NOT_RUN = (
  "InputIterator.close",
  "InputIterator.load",
  "InputIterator.reassign",
  "InputIterator.save",
  "Store.set_cache",
  "load_config",
)


class Nothing:
  """An object that is of use to nobody."""

  def __repr__(self):
    return "Nothing()"


NOTHING = Nothing()
OBJECTS = [{}, NOTHING]
WRONG = {
  int: [None, "3", 1.5, math.nan, True, *OBJECTS],
  float: [None, "3", math.nan, True, *OBJECTS],
  str: [None, 5, *OBJECTS],
  bool: [None, "yes", 5, *OBJECTS],
  bytes: [None, "text", 5, *OBJECTS],
  np.ndarray: [None, "text", 5.5, [1.5], *OBJECTS],
}
# Beside those of its type, by the parameter's name.
MORE = {
  "seq_len": [0, -1, 2**63],
  "seed": [-1, 2**63],
  "num_records": [0, -1, 2**63],
  "num_epochs": [0, -1, 2**63],
  "era_length": [0, 2**63],
  "io_block_size": [0, 2**63],
  "window_blocks": [0, 2**63],
  "perm_type": ["feistl"],
  "cache_bytes": [-1, 2**63],
  "count": [-1, 2**63],
  "step": [-1, 2**63],
  "first": [-1],
  "name": [""],
  "path": [""],
  "directory": [""],
  "compression": ["zst"],
  "chunk": [0, -1, 2**63],
  "chunks_per_shard": [0],
  "port": [-1, 2**63],
  "source": ["wbe"],
  "document": [-1, 2**63],
  "bucket": [-1, 2**63],
  "batch": [0, -1, 2**63],
  "prefetch": [0, -1],
  "worker_count": [-1, 2**63],
  "timeout_s": [0.0, math.inf],
  "certificate": ["plans"],
  "on_peer_failure": ["exits"],
  "columns": [5, ["a", "b"], [1]],
  "extra": ["next_token", ["next_tokens"], 5],
  "rows": [[[1]], [2**63]],
  "Pipeline-rows": [[0, 0], [1, 0]],
  "Pipeline.batch-rows": [[99]],
  "indices": [[[1]], [2**63], [99]],
  "most_bytes": [0, -1, 2**63],
}
# What is right there, of the values above.
RIGHT = {
  "BlockShuffleSampler-name": [""],
  "EraShuffleSampler-name": [""],
  "FullShuffleSampler-name": [""],
  "MultiSpliceOptions-group_by_meta": ["yes"],
  "MultiSpliceOptions-shuffle_content": [5],
  "MultiSpliceOptions-shuffle_offsets": [5],
  "SpliceOptions-shuffle_content": [5],
  "SpliceOptions-shuffle_offsets": [5],
  "make_iterator-sharding": [None],
}
ANY = [NOTHING]


def wrong_values(annotation):
  """Returns values that a parameter must refuse."""
  options = typing.get_args(annotation)
  if typing.get_origin(annotation) in (types.UnionType, typing.Union):
    parts = options
  else:
    parts = (annotation,)
  none = type(None) in parts or annotation in (typing.Any, inspect._empty)
  known = [WRONG[part] for part in parts if part in WRONG]
  values = list(ANY)
  if known and len(parts) <= 2 and len(known) + none == len(parts):
    values = known[0]
  elif not none:
    values = [None, *ANY]
  if none:
    values = [value for value in values if value is not None]
  return values


@pytest.fixture(scope="module")
def made(tmp_path_factory):
  """Objects that arguments are made of, by name."""
  root = tmp_path_factory.mktemp("arguments")
  path = root / "store"
  store = testing_stores.make_store(
    path, [np.arange(2, 60) % 50 + 2 for _ in range(20)]
  )
  data = {
    "seq_len": 16,
    "global_batch_size": 2,
    "sources": {
      "web": {"store": str(path), "rows": {"kind": "sequential"}},
    },
  }
  rows = chomp_data.SequentialSource(
    store, chomp_data.SequentialOptions(), seq_len=16
  )
  pipe = chomp_data.build(data)
  iterator = chomp_data.make_iterator(data)
  sample = {"pixels": np.zeros((4, 4), np.uint8)}
  save_to_disk.save_to_disk(
    root / "samples", [(sample, {"height": 4, "width": 4})] * 3
  )
  yield types.SimpleNamespace(
    samples=chomp_data.open_samples(root / "samples", fields=["pixels"]),
    root=root,
    path=str(path),
    store=store,
    data=data,
    rows=rows,
    spans=rows.plan(np.arange(4)),
    pipe=pipe,
    layout=process_input.DeviceLayout.of(
      jax.sharding.SingleDeviceSharding(jax.devices()[0]), None
    ),
    iterator=iterator,
    state=iterator.get_state(),
    records=testing_stores.make_array_records(
      root / "records", [np.arange(9), np.arange(7)]
    ),
  )
  iterator.close()


def calls(made):
  """Returns (callable, valid arguments) of everything public, by name."""
  info = made.store.opened.tokenizer
  numbers = np.arange(3)
  row_source = {"store": made.store, "seq_len": 16}
  iterator = {
    "process_input": process_input.of_pipeline(made.pipe, made.layout, ()),
    "run": config_options.read(made.data).data,
  }
  step, spans = {"step": 1}, made.spans
  fields = dict(vars(spans))
  copies = {"starts": numbers, "lengths": numbers}
  return {
    "ArrayRecordOptions": {"vocab_size": 256, "token_dtype": "uint16"},
    **{
      kind.source.__name__: {**row_source, "options": kind.options()}
      for kind in row_kinds.ROW_KINDS.values()
    },
    "BlockShuffleSampler": {"num_records": 9, "io_block_size": 2},
    "EraShuffleSampler": {"num_records": 9, "era_length": 2},
    "FimOptions": {"prefix_id": 3, "suffix_id": 4, "middle_id": 5},
    "FullShuffleSampler": {"num_records": 9},
    "NoShuffleSampler": {"num_records": 9},
    "GridSource": {
      **row_source,
      "documents": numbers,
      "starts": numbers,
      "offsets": numbers,
    },
    "InputIterator": iterator,
    "InputRestore": {"item": made.iterator},
    "InputSave": {"item": made.iterator},
    "Pipeline": {"run": config_options.read(made.data)},
    "MixtureSource": {
      "parts": {"web": made.rows},
      "options": chomp_data.MixOptions(),
      "epochs": 1,
    },
    "MixtureSource.__getitem__": {"index": 3},
    "MixtureSource.batch": {"rows": numbers},
    "MixtureSource.plan": {"rows": numbers},
    "ShuffledSource": {
      "rows": made.rows,
      "options": chomp_data.ShuffleOptions(),
      "seed": 0,
    },
    "Spans": fields,
    "build": {"data": made.data},
    "load_config": {"name": "packed"},
    "with_placeholders": {"data": made.data},
    "make_iterator": {"data": made.data},
    "open_array_records": {
      "path": made.records,
      "options": chomp_data.ArrayRecordOptions(
        vocab_size=256, token_dtype="uint16"
      ),
    },
    "open_samples": {"path": made.root / "samples", "fields": ["pixels"]},
    "open_store": {"path": made.path},
    "verify_store": {"path": made.path},
    "write_store": {
      "path": made.root / "written",
      "documents": [numbers],
      "tokenizer_info": info,
    },
    "MaxTextIterator": {"batches": made.iterator},
    "Metrics": {"iterator": made.iterator},
    "batch_sha256": {"batch": {"tokens": numbers}},
    "BlockShuffleSampler.__getitem__": {"index": 3},
    "InputIterator.load": {"directory": made.root},
    "InputIterator.reassign": {"alive": [0]},
    "InputIterator.save": {"directory": None},
    "InputIterator.seek": {"step": 2},
    "InputIterator.set_state": {"state": made.state},
    "Metrics.serve": {"port": 0},
    "Metrics.tell": {"values": {"loss": 1.0}, "by_source": {}},
    "Pipeline.batch": step,
    "Pipeline.bucket_of": step,
    "Pipeline.canonical": step,
    "Pipeline.plan": step,
    "Pipeline.row_order": step,
    "RowSource.__getitem__": {"index": 3},
    "RowSource.batch": {"rows": numbers},
    "RowSource.blocks": {"epoch": 0},
    "RowSource.block_units": {"epoch": 0, "unit": "tokens", "rows": 3},
    "Epochs.size": {"epoch": 0},
    "Epochs.first_row": {"epoch": numbers},
    "Epochs.start": {"epoch": 0},
    "Epochs.locate": {"rows": numbers},
    "Epochs.passes": {"row": 3},
    "RowSource.plan": {"rows": numbers},
    "RowSource.prepare": {"max_epochs": 3, "full_order": False},
    "RowSource.prefetch": {"spans": spans},
    "RowSource.read": {"spans": spans},
    "RowSource.rows_of": {"documents": numbers, "epoch": 0},
    "RowSource.units": {"epoch": 0, "positions": numbers, "unit": "tokens"},
    "Epochs.total": {"epochs": 3},
    "SampleStore.metadata": {"indices": numbers},
    "SampleStore.read": {"indices": numbers},
    "SampleStore.specs": {"height": 4, "width": 4},
    "Spans.in_columns": {"low": 0, "high": 2},
    "Spans.of_rows": {"rows": numbers},
    "Spans.row_documents": {"num_slots": 2},
    "Spans.row_sums": {"values": spans.length},
    "Spans.rows": {"first": 0, "last": 1},
    "Spans.take": {"pick": numbers, "row": numbers, "num_rows": 3},
    "Store.bounds": {"documents": numbers},
    "Store.copy_tokens": {
      **copies,
      "out": np.zeros(9, np.int32),
      "positions": numbers,
    },
    "Store.document_ids": {"documents": numbers},
    "Store.prefetch": copies,
    "Store.read_tokens": copies,
    "Store.set_cache": {
      "cache_bytes": 1,
      "directory": str(made.root),
      "most_bytes": 9,
    },
  }


def public():
  """Yields every public callable by name, its methods after it."""
  named = {name: getattr(chomp_data, name) for name in chomp_data.__all__}
  for module, names in OTHERS.items():
    named |= {name: getattr(module, name) for name in names}
  for name, value in named.items():
    if isinstance(value, type) and issubclass(value, BaseException):
      continue
    if callable(value) and name not in NOT_CALLED:
      yield name, value
    if name in WITH_METHODS or name in SOME_METHODS:
      for method in SOME_METHODS.get(name, sorted(dir(value))):
        static = inspect.getattr_static(value, method)
        ours = str(getattr(static, "__module__", "")).startswith("chomp_data")
        hidden = method.startswith("_") and method != "__getitem__"
        if isinstance(static, types.FunctionType) and ours and not hidden:
          yield f"{name}.{method}", static


PUBLIC = dict(public())
PARAMETERS = [
  (name, parameter)
  for name, function in PUBLIC.items()
  for parameter in inspect.signature(function).parameters
  if parameter not in ("self", "options_", "progress")
]


def owner(made, name):
  """Returns the object that a method is asked of."""
  return {
    "BlockShuffleSampler": lambda: chomp_data.BlockShuffleSampler(9, 2),
    "InputIterator": lambda: made.iterator,
    "MixtureSource": lambda: chomp_data.MixtureSource(
      {"web": made.rows}, chomp_data.MixOptions(), epochs=1
    ),
    "Metrics": lambda: prometheus.Metrics(made.iterator),
    "Pipeline": lambda: made.pipe,
    "Epochs": lambda: made.rows.epochs,
    "RowSource": lambda: made.rows,
    "Spans": lambda: made.spans,
    "SampleStore": lambda: made.samples,
    "Store": lambda: made.store,
  }[name]()


def run(made, name, arguments):
  """Calls something public; what is drawn or awaited is."""
  if "." in name:
    own, method = name.split(".")
    result = getattr(owner(made, own), method)(**arguments)
  else:
    result = PUBLIC[name](**arguments)
  if inspect.iscoroutine(result):
    try:
      result.send(None)
    finally:
      result.close()
  if inspect.isgenerator(result):
    list(result)


@pytest.mark.parametrize(
  ("name", "parameter"), PARAMETERS, ids=map("-".join, PARAMETERS)
)
def test_a_wrong_argument_is_named_by_an_error_of_ours(made, name, parameter):
  valid = calls(made).get(name, {})
  own = inspect.signature(PUBLIC[name], eval_str=False).parameters[parameter]
  problems = []
  right = RIGHT.get(f"{name}-{parameter}", ())
  values = [
    *wrong_values(own.annotation),
    *MORE.get(parameter, ()),
    *MORE.get(f"{name.partition('.')[0]}-{parameter}", ()),
    *MORE.get(f"{name}-{parameter}", ()),
  ]
  for value in values:
    if any(value is one or value == one for one in right):
      continue
    try:
      run(made, name, {**valid, parameter: value})
    except (TypeError, ValueError, IndexError) as error:
      frame = traceback.extract_tb(error.__traceback__)[-1]
      if not pathlib.Path(frame.filename).is_relative_to(PACKAGE):
        problems.append(f"{value!r}: raised in {frame.filename}: {error}")
      if parameter not in str(error):
        problems.append(f"{value!r}: not named: {error}")
      if "got" not in str(error):
        problems.append(f"{value!r}: not shown: {error}")
    except Exception as error:
      problems.append(f"{value!r}: {error!r}")
    else:
      problems.append(f"{value!r}: accepted")
  assert not problems


@pytest.mark.parametrize("name", PUBLIC)
def test_the_arguments_of_the_table_are_right(made, name):
  # Else an error about another argument could pass for one about a wrong one.
  if name in NOT_RUN:
    pytest.skip("of another kind of run or store, or with files or a mesh")
  run(made, name, calls(made).get(name, {}))


@pytest.mark.parametrize(
  "name", [name for name in PUBLIC if name not in NOT_RUN]
)
def test_numbers_of_numpy_and_paths_of_pathlib_are_right(made, name, tmp_path):
  arguments = dict(calls(made).get(name, {}))
  if name == "write_store":
    arguments["path"] = str(tmp_path / "written")
  for own, value in arguments.items():
    if type(value) is int:
      arguments[own] = np.int64(value)
    if own in ("path", "directory") and isinstance(value, str):
      arguments[own] = pathlib.Path(value)
  run(made, name, arguments)


def test_a_source_opens_the_path_of_a_store(made):
  options = chomp_data.SequentialOptions()
  for path in (made.path, pathlib.Path(made.path)):
    rows = chomp_data.SequentialSource(path, options, seq_len=np.int32(16))
    assert repr(rows) == repr(made.rows)
    np.testing.assert_array_equal(rows[3]["tokens"], made.rows[3]["tokens"])


def test_fields_of_options_are_kept_as_plain_values():
  options = chomp_data.BinOptions(packing_buffer_docs=np.int64(9))
  assert type(options.packing_buffer_docs) is int
  assert options == chomp_data.BinOptions(packing_buffer_docs=9)


def test_an_options_error_lists_all_fields():
  with pytest.raises(chomp_data.ConfigError) as caught:
    chomp_data.BinOptions(packing_buffer_docs=0, packing_algorithm="fdd")
  assert len(caught.value.problems) == 2
