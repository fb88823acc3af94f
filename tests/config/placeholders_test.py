# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Stock `ml_collections` flags set every option of a shipped config."""

import pathlib

from absl import flags as absl_flags
import ml_collections
from ml_collections import config_flags
import numpy as np
import pytest

import chomp_data
from chomp_data.config import files
from chomp_data.config import options
from chomp_data.config import placeholders
from chomp_data.testing import stores as testing_stores
from tests.golden import cases

ROOT = pathlib.Path(__file__).parents[2]
SOURCE = "data.sources.stdlib"

DEFINITIONS = ("file", "dict")

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


def run(define, *flags):
  """Returns the config that a binary of one's own reads of its flags."""
  values = absl_flags.FlagValues()
  argv = ["binary", *flags]
  if define == "file":
    argv.insert(1, f"--config={ROOT}/configs/splice_multi.py")
    holder = config_flags.DEFINE_config_file(
      "config", flag_values=values, sys_argv=argv
    )
  else:
    holder = config_flags.DEFINE_config_dict(
      "config",
      chomp_data.load_config("splice_multi"),
      flag_values=values,
      sys_argv=argv,
    )
  values(argv)
  return holder.value


def fingerprint(config):
  """Returns the fingerprint of a run, however its config is held."""
  first, *others = (
    chomp_data.build(data).fingerprint
    for data in (
      config.data,
      ml_collections.FrozenConfigDict(config).data,
      config.copy_and_resolve_references().data,
    )
  )
  assert others == [first] * 2
  return first


def flags_of(overrides):
  return [f"--config.{path}={value}" for path, value in overrides.items()]


@pytest.mark.parametrize("define", DEFINITIONS)
def test_a_binary_of_ones_own_sets_options_that_a_config_does_not_name(
  define, store
):
  overrides = {**STATED, **OVERRIDES, f"{SOURCE}.store": store}
  found = fingerprint(run(define, *flags_of(overrides)))
  config = chomp_data.load_config(
    str(ROOT / "configs/splice_multi.py"),
    [f"{path}={value}" for path, value in overrides.items()],
  )
  wanted = chomp_data.build(config.data).fingerprint
  assert found == wanted
  # Each of them came in.
  read = options.read(config.data)
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


def test_short_forms_and_other_kinds_are_set_by_a_binary_of_ones_own(store):
  overrides = {
    **STATED,
    f"{SOURCE}.store": store,
    f"{SOURCE}.shuffle": "5",
    "data.epochs": "None",
    "data.mix": "None",
  }
  shuffle = fingerprint(run("file", *flags_of(overrides)))["sources"]["stdlib"][
    "shuffle"
  ]
  assert (shuffle["kind"], shuffle["era_length"]) == ("era", 5)


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
def test_a_wrong_option_of_a_binary_of_ones_own_is_told(store, flag, message):
  flags = flags_of({**STATED, f"{SOURCE}.store": store})
  with pytest.raises(Exception) as caught:  # noqa: PT011
    chomp_data.build(run("file", *flags, f"--config.{flag}").data)
  assert message in str(caught.value).splitlines()[-1]


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
    if inner.needs_kind:
      continue
    if name not in section:
      yield f"{path}.{name}"
    else:
      yield from _missing(section[name], inner, f"{path}.{name}")


def _without_none(section):
  if not isinstance(section, dict):
    return section
  out = {n: _without_none(v) for n, v in section.items() if v is not None}
  return {n: v for n, v in out.items() if v != {}}


@pytest.mark.parametrize("name", cases.CASES)
def test_placeholders_change_no_golden_case(name):
  """Placeholders and what they hold mean the same as none at all."""
  data = cases.CASES[name].at(cases.ROOT)
  filled = placeholders.with_placeholders(data)
  assert options.read(filled) == options.read(data)


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
