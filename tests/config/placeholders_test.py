# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stock `ml_collections` flags set every option of a shipped config."""

import ast
import copy
import pathlib
import sys

from absl import flags as absl_flags
import ml_collections
from ml_collections import config_flags
import numpy as np
import pytest

import chomp_data
from chomp_data import row_kinds
from chomp_data import schema
from chomp_data.config import files
from chomp_data.config import options
from chomp_data.config import placeholders
from chomp_data.testing import stores as testing_stores
from tests.catalogue import runs
from tests.golden import cases

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = "data.sources.stdlib"

# Values that some option takes, as they are written on a command line.
VALUES = [
  "None", "3", "0.5", "True", "False", "x", "16x16", "1e-3", "(1, 2)", "[1, 2]",
  "[(0, 8)]", "[16, 32]", "[(16, 16)]", "['x']", "[(0, 'f.jsonl')]",
  "{'a': 'b'}", "{'a': 1.0}", "[('a', 1.0)]", "[(0, {'a': 1.0})]",
  "[(0, {'16': 1.0})]", "{'16x16': 4}", "{'x': 3}", "{}", "a=x:1",
]  # fmt: skip

# None of these is in the file, but for those of `STATED`.
OVERRIDES = {
  "data.epochs": "2",
  "data.seed": "11",
  "data.remainder": "pad",
  "data.batch_format": "huggingface",
  "data.train_on_eos": "False",
  "data.mask_boundary_loss": "False",
  "data.worker_count": "0",
  "data.timeout_s": "30",
  "data.certificate": "tokens",
  "data.skip": "[(1, 2)]",
  "data.mix.unit": "rows",
  "data.mix.exhaustion": "all_exhausted",
  "data.mix.weights": "{'stdlib': 2.5}",
  f"{SOURCE}.weight": "None",
  f"{SOURCE}.rows.num_docs": "None",
  f"{SOURCE}.rows.shuffle_content": "4",
  f"{SOURCE}.rows.filler": "eos",
  f"{SOURCE}.rows.doc_overrides": "{'2': {'alpha': 0.5}}",
  f"{SOURCE}.rows.eos_token_id": "7",
  f"{SOURCE}.rows.content_length_schedule": "[(8, 9)]",
  f"{SOURCE}.shuffle.seed": "5",
  f"{SOURCE}.shuffle.perm_type": "linear",
}
STATED = {
  "data.seq_len": "16",
  "data.global_batch_size": "2",
  f"{SOURCE}.rows.content_length": "12",
  f"{SOURCE}.rows.min_doc_length": "8",
  f"{SOURCE}.rows.max_doc_length": "None",
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  rng = np.random.default_rng(0)
  documents = [rng.integers(3, 250, n) for n in (40, 9, 70, 33) * 4]
  path = tmp_path_factory.mktemp("placeholders") / "store"
  return str(testing_stores.make_store(path, documents).path)


def stock(monkeypatch, config, *flags):
  """Returns the config that a binary of one's own gets with stock flags.

  Args:
    monkeypatch: Of the test.
    config: A ConfigDict, or the path of a file.
    *flags: Of the command line.
  """
  values = absl_flags.FlagValues()
  if isinstance(config, str):
    flags = (f"--config={config}", *flags)
  # Stock flags look for names of fields there.
  monkeypatch.setattr(sys, "argv", ["binary", *flags])
  if isinstance(config, str):
    config_flags.DEFINE_config_file("config", flag_values=values)
  else:
    config_flags.DEFINE_config_dict("config", config, flag_values=values)
  values(["binary", *flags])
  return values.config


def splice_multi(define):
  path = str(ROOT / "configs/splice_multi.py")
  return path if define == "file" else chomp_data.load_config(path)


def flags_of(overrides):
  return [f"--config.{path}={value}" for path, value in overrides.items()]


@pytest.mark.parametrize("define", ["file", "dict"])
def test_a_binary_of_ones_own_sets_options_that_a_config_does_not_name(
  define, store, monkeypatch
):
  overrides = {**STATED, **OVERRIDES, f"{SOURCE}.store": store}
  config = stock(monkeypatch, splice_multi(define), *flags_of(overrides))
  ours = chomp_data.load_config(
    splice_multi("file"),
    [f"{path}={value}" for path, value in overrides.items()],
  )
  wanted = chomp_data.build(ours.data).fingerprint
  for data in (
    config.data,
    ml_collections.FrozenConfigDict(config).data,
    config.copy_and_resolve_references().data,
  ):
    assert chomp_data.build(data).fingerprint == wanted
  # Each of them came in.
  read = options.read(ours.data)
  assert (read.data.epochs, read.data.seed, read.data.skip) == (
    2,
    11,
    ((1, 2),),
  )
  rows = read.sources["stdlib"].rows
  assert (rows.num_docs, rows.max_doc_length, rows.shuffle_content) == (
    None, None, 4,
  )  # fmt: skip
  assert (rows.filler, rows.eos_token_id) == ("eos", 7)
  assert (read.mix.unit, read.mix.exhaustion) == ("rows", "all_exhausted")
  assert read.mix.weights == (("stdlib", 2.5),)
  assert read.sources["stdlib"].shuffle.seed == 5


def test_short_forms_and_other_kinds_are_set_by_a_binary_of_ones_own(
  store, monkeypatch
):
  overrides = {
    **STATED,
    f"{SOURCE}.store": store,
    f"{SOURCE}.shuffle": "5",
    "data.epochs": "None",
    "data.mix": "None",
  }
  config = stock(monkeypatch, splice_multi("file"), *flags_of(overrides))
  fingerprint = chomp_data.build(config.data).fingerprint
  assert fingerprint["sources"]["stdlib"]["shuffle"]["kind"] == "era"
  assert fingerprint["sources"]["stdlib"]["shuffle"]["era_length"] == 5


@pytest.mark.parametrize(
  ("flag", "message"),
  [
    ("data.epoch=3", 'Did you mean "epochs"'),
    (f"{SOURCE}.rows.num_doc=3", 'Did you mean "num_docs"'),
    ("data.remainder=keep", "`config.data.remainder` must be one of 'drop'"),
    (
      f"{SOURCE}.rows.packing_buffer_docs=64",
      "packing_buffer_docs` must be left out where",
    ),
  ],
)
def test_a_wrong_option_of_a_binary_of_ones_own_is_told(
  store, monkeypatch, flag, message
):
  flags = flags_of({**STATED, f"{SOURCE}.store": store})

  def build():
    config = stock(
      monkeypatch, splice_multi("file"), *flags, f"--config.{flag}"
    )
    chomp_data.build(config.data)

  with pytest.raises(Exception, match=message):
    build()


def data_of(run, rows):
  """Returns `config.data` of a kind of run, with little in it."""
  source = {"rows": {} if rows is None else {"kind": rows}}
  data = {
    "seq_len": 16,
    "global_batch_size": 4,
    "sources": {"a": {"store": "/x", **source}, "b": {"store": "/y", **source}},
    "mix": {"weights": {"a": 1, "b": 2}},
  }
  if options.KINDS[run].section is not None:
    del data["seq_len"]
    data["buckets"] = {"kind": run}
  if run == "length":
    del data["global_batch_size"]
  return data


def paths_of(section, path=("config", "data")):
  for name, option in section.options.items():
    yield ".".join((*path, name)), option
  for name, inner in section.sections.items():
    yield from paths_of(inner, (*path, name))


def accepts(rule, text):
  try:
    value = ast.literal_eval(text)
  except (ValueError, SyntaxError):
    value = text
  try:
    rule.convert(value)
  except (TypeError, ValueError, OverflowError):
    return False
  return True


KINDS_OF_ROWS = [
  (run, rows)
  for run, kind in options.KINDS.items()
  for rows in ([None] if kind.rows else row_kinds.ROW_KINDS)
]


@pytest.mark.parametrize(("run", "rows"), KINDS_OF_ROWS, ids=str)
def test_stock_flags_set_any_option_without_a_traceback(run, rows, monkeypatch):
  data = data_of(run, rows)
  filled = ml_collections.ConfigDict({"data": data})
  filled.data = chomp_data.with_placeholders(filled.data)
  paths = [*paths_of(options.known(data))]
  assert len(paths) > 40
  tried = set()
  if (run, rows) != KINDS_OF_ROWS[0]:
    first = options.known(data_of(*KINDS_OF_ROWS[0]))
    tried = {path for path, _ in paths_of(first) if ".rows." not in path}
  for path, option in paths:
    if ".b." in path or path in tried:  # One source is enough.
      continue
    values = [*option.rule.names, *VALUES]
    values = [text for text in values if accepts(option.rule, text)][-1:]
    assert values, path
    for text in values:
      config = copy.deepcopy(filled)
      try:
        config = stock(monkeypatch, config, f"--{path}={text}")
        options.read(config.data)
      except schema.ConfigError:
        pass  # It does not go with the other options.


@pytest.mark.parametrize(
  ("data", "flag", "wanted"),
  [
    ({}, "buckets.kind=length", "`config.data.buckets.lengths` must be set"),
    ({}, "buckets.lengths=[8, 16]", "`config.data.buckets.kind` must be one"),
    ({"timeout_s": 600}, "timeout_s=30.5", None),
    ({"peer_failure_grace_s": 1}, "peer_failure_grace_s=0.25", None),
  ],
)
def test_stock_flags_set_what_a_file_leaves_out_or_writes_otherwise(
  data, flag, wanted, monkeypatch
):
  config = ml_collections.ConfigDict(
    {"data": {**data_of("rows", "bin"), **data}}
  )
  config.data = chomp_data.with_placeholders(config.data)
  config = stock(monkeypatch, config, f"--config.data.{flag}")
  if wanted is not None:
    with pytest.raises(schema.ConfigError, match=wanted):
      options.read(config.data)
  else:
    name, _, value = flag.partition("=")
    assert getattr(options.read(config.data).data, name) == float(value)


@pytest.mark.parametrize("short", [True, False, 1_000])
def test_stock_flags_set_fields_of_a_section_in_its_short_form(
  short, monkeypatch
):
  data = data_of("rows", "bin")
  data["sources"]["a"]["shuffle"] = short
  config = ml_collections.ConfigDict({"data": data})
  config.data = chomp_data.with_placeholders(config.data)
  same = stock(monkeypatch, copy.deepcopy(config))
  assert options.read(same.data) == options.read(data)
  flags = [
    f"--config.data.sources.a.shuffle.{field}"
    for field in ("kind=full", "era_length=None", "seed=3")
  ]
  read = options.read(stock(monkeypatch, config, *flags).data)
  assert read.sources["a"].shuffle.kind == "full"
  assert read.sources["a"].shuffle.seed == 3


@pytest.mark.parametrize("name", [*files.SHIPPED])
def test_a_shipped_config_has_all_options_and_none_of_them_changes_it(name):
  config = chomp_data.load_config(name)
  data = options.plain(config.data)
  missing = [*_missing(data, options.known(data), "data")]
  assert not missing
  # What the placeholders stand for is what is left out.
  stated = _without_none(data)
  assert options.read(data) == options.read(stated)


def _missing(section, known, path):
  for name in known.options:
    if name not in section:
      yield f"{path}.{name}"
  for name, inner in known.sections.items():
    if name not in section:
      yield f"{path}.{name}"
    else:
      yield from _missing(section[name], inner, f"{path}.{name}")


def _without_none(section):
  if not isinstance(section, dict):
    return section
  out = {n: _without_none(v) for n, v in section.items() if v is not None}
  return {n: v for n, v in out.items() if v != {}}


def test_placeholders_change_no_run_of_the_catalogue():
  """Placeholders and what they hold mean the same as none at all."""
  for name in runs.NAMES:
    data = runs.data_of(name, cases.ROOT)
    filled = placeholders.with_placeholders(data)
    assert options.read(filled) == options.read(data), name


def test_a_config_keeps_its_values_references_and_types():
  config = ml_collections.ConfigDict(
    {"data": {"seq_len": 8, "sources": {"a": {"store": "x"}}}}
  )
  rows = ml_collections.ConfigDict({"kind": "windows", "num_docs": 3})
  rows.stride = config.data.get_oneway_ref("seq_len")
  config.data.sources.a.rows = rows
  config.data = chomp_data.with_placeholders(config.data)
  config.data.global_batch_size = 2
  rows.num_docs = 4
  config.data.seq_len = 16
  read = options.read(config.data)
  assert (read.sources["a"].rows.num_docs, read.data.seq_len) == (4, 16)
  assert read.sources["a"].rows.stride == 16
  with pytest.raises(TypeError):
    config.data.seq_len = "long"
