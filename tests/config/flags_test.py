# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""`--config.<path>=<value>` sets any option of any config."""

import importlib
import pathlib

import ml_collections
from ml_collections import config_dict
import pytest

from chomp_data import schema
from chomp_data.config import flags
from chomp_data.config import options
from chomp_data.reference import train_options

ROOT = pathlib.Path(__file__).parents[2]
NAMES = sorted(p.stem for p in (ROOT / "configs").glob("*.py"))
# Of splices, and of buckets in a mix.
QUICK = ("splice_multi", "length_buckets")


def config_of(name, arg=None):
  config = importlib.import_module(f"configs.{name}").get_config(arg)
  config.lock()
  return config


def changed(name, *given):
  config = config_of(name)
  flags.apply(config, given, train_options.SECTIONS)
  return config


def refused(name, *given):
  with pytest.raises(schema.ConfigError) as error:
    changed(name, *given)
  return str(error.value)


def options_under(section, path=()):
  for name, own in section.options.items():
    yield (*path, name), own
  for name, inner in section.sections.items():
    yield from options_under(inner, (*path, name))


def all_options(config):
  known = options.known(config.data.to_dict())
  yield from options_under(known, ("data",))
  for name, cls in train_options.SECTIONS.items():
    yield from options_under(schema.Section(cls), (name,))


def value_at(config, path):
  value = config.to_dict()
  for name in path:
    value = value[name]
  return value


def accepted_by(rule):
  """A value of a rule, as one writes it."""
  for text in (
    "3", "0.5", "True", "some_text", "(2, 4)", "(0, 2)", "((0, 3),)",
    "((8, 8),)", "((8, 'a.jsonl'),)",
    "{'own': 1}", "{'own': 'a'}", "{'own': ['a']}", "{'own': {'alpha': 0.5}}",
    "((0, {'own': 1}),)", "{'datasets': [{'spec': 'own'}]}",
    *(c.strip("' ") for c in rule.text.removeprefix("one of ").split(",")),
  ):  # fmt: skip
    for value in flags.readings(text):
      try:
        rule.convert(value)
      except (TypeError, ValueError, OverflowError):
        continue
      return text
  raise AssertionError(rule.text)


@pytest.mark.parametrize(
  "name",
  [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow)
    for name in NAMES
  ],
)
def test_every_option_of_every_config_can_be_set(name):
  paths = dict(all_options(config_of(name)))
  assert len(paths) > 30
  for path, own in paths.items():
    if path[-1] == "kind":
      continue  # Decides which others there are.
    where = ".".join(path)
    text = accepted_by(own.rule)
    config = changed(name, f"{where}={text}")
    assert own.rule.convert(value_at(config, path)) is not None, where
    try:
      own.rule.convert(None)
    except (TypeError, ValueError):
      assert "None" in refused(name, f"{where}=None"), where
    else:
      assert value_at(changed(name, f"{where}=None"), path) is None, where


@pytest.mark.parametrize("name", ["simulated_epochs", "pretrain_mix", *QUICK])
def test_a_kind_can_be_set_to_every_one_there_is(name):
  for path, own in all_options(config_of(name)):
    if path[-1] != "kind" or path[1] == "buckets":
      continue
    for kind in own.rule.text.removeprefix("one of ").replace("'", "").split():
      kind = kind.rstrip(",")
      given = [f"{'.'.join(path)}={kind}"]
      if kind == "bin":
        given.append(f"{'.'.join(path[:-2])}.shuffle.io_block_size=None")
      if kind == "era":
        given.append(f"{'.'.join(path[:-1])}.era_length=8")
      if path[1] == "sequence_layout":
        given.append(f"{'.'.join(path[:-1])}.shards=1")
      if name == "simulated_epochs" and path[-2] == "rows":
        given.append("data.simulated_epochs=None")  # Splices have none.
      options.read(changed(name, *given).data)


def test_what_has_no_meaning_with_a_new_kind_is_left_out_and_said(caplog):
  where = "data.sources.stdlib.shuffle"
  config = changed("packed", f"{where}.kind=full")
  read = options.read(config.data).sources["stdlib"].shuffle
  assert (read.kind, read.window_blocks) == ("full", None)
  assert f"--config.{where}.kind: removed options of the file" in caplog.text
  assert f"config.{where}.window_blocks" in caplog.text
  assert "io_block_size" not in caplog.text


def test_what_the_user_set_himself_is_not_left_out():
  where = "data.sources.stdlib.shuffle"
  config = changed("packed", f"{where}.kind=full", f"{where}.window_blocks=8")
  with pytest.raises(schema.ConfigError, match=r"window_blocks.*got 8"):
    options.read(config.data)


def test_another_kind_of_rows_leaves_out_what_it_does_not_know(caplog):
  where = "data.sources.stdlib.rows"
  config = changed(
    "splice_multi", f"{where}.add_eos=true", f"{where}.kind=sequential"
  )
  rows = options.read(config.data).sources["stdlib"].rows
  assert type(rows).__name__ == "SequentialOptions"
  assert rows.add_eos
  assert f"config.{where}.alpha" in caplog.text


def test_rows_of_one_length_become_buckets():
  config = changed(
    "packed",
    "data.buckets.lengths=64,128",
    "data.buckets.tokens_per_batch=1_024",
    "data.buckets.kind=length",
  )
  read = options.read(config.data)
  assert read.kind == "length"
  assert read.buckets.lengths == (64, 128)


def test_buckets_become_rows_of_one_length():
  config = changed(
    "length_buckets",
    "data.buckets=None",
    "data.seq_len=64",
    "data.global_batch_size=4",
    "data.sources.stdlib.rows.kind=sequential",
    "data.sources.notes.rows.kind=bin",
  )
  assert options.read(config.data).kind == "rows"


def test_references_follow_and_can_be_cut():
  rows = "data.sources.stdlib.rows"
  config = changed("splice_multi", "data.seq_len=128")
  assert config.data.sources.stdlib.rows.content_length == 128
  config = changed("splice_multi", f"{rows}.content_length=32")
  assert config.data.sources.stdlib.rows.content_length == 32
  assert config.data.seq_len == 256


@pytest.mark.parametrize(
  ("given", "value"),
  [
    ("data.seq_len=4_096", 4_096),
    ("data.seq_len=0x20", 32),
    ("data.epochs=None", None),
    ("data.timeout_s=1e2", 100.0),
    ("data.train_on_eos=false", False),
    ("data.train_on_eos=0", False),
    ("data.train_on_eos=T", True),
    ("data.remainder=pad", "pad"),
    ("data.dataset_mix=a:0.9 b:0.1", "a:0.9 b:0.1"),
    ("data.sources.stdlib.store=2024", "2024"),
    ("data.sources.stdlib.store=a=b", "a=b"),
    ("data.sources.stdlib.shuffle.kind=none", "none"),
    ("data.sources.stdlib.array_record.token_dtype=uint16", "uint16"),
    ("data.sources.stdlib.store=('a', 'b')", ("a", "b")),
    ("data.mix.weights={'a.b': 1}", (("a.b", 1),)),
    ("data.mix.weights=(('a.b', 1),)", (("a.b", 1),)),
  ],
)
def test_a_value_is_read_by_its_rule(given, value):
  found = value_at(changed("packed", given), given.partition("=")[0].split("."))
  assert found == value
  assert type(found) is type(value) or isinstance(value, float)


@pytest.mark.parametrize(
  ("given", "message"),
  [
    ("data.seq_len=long", "`--config.data.seq_len` must be a whole number of"),
    ("data.seq_len=long", "got 'long'. Correct it"),
    ("data.seq_len=None", "got None"),
    ("data.lookahead=2", "`--config.data.lookahead` must be True or False"),
    (
      "data.sources.stdlib.shuffle.kind=fulll",
      "must be one of 'none', 'full', 'era', 'block', got 'fulll'",
    ),
    ("data.sources.stdlib.rows.kind=bins", "one of 'splice', 'multi_splice'"),
    ("data.seqlen=8", "Did you mean `seq_len`? Known fields: balance,"),
    ("data.sources.stdlb.store=a", "Did you mean `stdlib`?"),
    ("data.seed.x=3", "`--config.data.seed.x` is not a known field."),
    ("dta.seed=3", "`--config.dta` is not a known field. Did you mean `data`?"),
    ("model.width=3", "Known fields: attention, d_model,"),
    ("data.mix=3", "`--config.data.mix` must be a mapping, as Python writes"),
    ("data.seed=x data.speed=3", "2 fields of the config are wrong"),
  ],
)
def test_a_wrong_path_or_value_says_what_is_right(given, message):
  assert message in refused("packed", *given.split())


def test_older_files_with_placeholders_and_fields_of_their_own_stay_valid():
  config = ml_collections.ConfigDict(
    {
      "data": {
        "seq_len": config_dict.placeholder(int),
        "epochs": config_dict.placeholder(int),
        "mix": {"weights": {"a": 1.0}},
        "seqlen": 3,
      },
      "mine": {"size": 3},
    }
  )
  config.lock()
  given = ["data.seq_len=8", "data.epochs=2", "data.mix.weights.a=0.5"]
  given += ["data.seqlen=4", "mine.size=(1, 2)", "mine.other=text"]
  flags.apply(config, given, {})
  assert config.to_dict() == {
    "data": {
      "seq_len": 8,
      "epochs": 2,
      "mix": {"weights": {"a": 0.5}},
      "seqlen": 4,
    },
    "mine": {"size": (1, 2), "other": "text"},
  }


def test_a_section_is_set_as_a_whole():
  config = changed(
    "splice_in_mix",
    "data.sources.stdlib.shuffle={'kind': 'era'}",
    "data.sources.stdlib.shuffle.era_length=8",
    "data.mix=None",
  )
  assert config.data.mix is None
  assert config.data.sources.stdlib.shuffle.to_dict() == {
    "kind": "era",
    "era_length": 8,
  }
