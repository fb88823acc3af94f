# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A misspelled name of anything gets the nearest one that there is."""

import re

import numpy as np
import pytest

import chomp_data
from chomp_data import schema
from chomp_data.audit import naming
from chomp_data.audit import visits
from chomp_data.commands import stores as stores_command
from chomp_data.config import options
from chomp_data.prepare import run
from chomp_data.stores import kinds
from chomp_data.stores import vocabulary
from chomp_data.testing import stores as testing_stores

IDS = ["law/statute.txt", "law/ruling.txt", "code/parser.py", "code/lexer.py"]


@pytest.fixture(scope="module")
def path(tmp_path_factory):
  path = tmp_path_factory.mktemp("names") / "stdlib"
  testing_stores.make_store(path, [np.arange(2, 40)] * 4, ids=IDS)
  return str(path)


def data(path, *, rows=None, **changed):
  out = {
    "seq_len": 16,
    "global_batch_size": 2,
    "sources": {
      "web": {"store": path, "rows": {"kind": "sequential", **(rows or {})}}
    },
  }
  return {**out, **changed}


SPLICES = {"kind": "multi_splice", "num_docs": None}
CONFIGS = {
  "rows.kind": (lambda p: data(p, rows={"kind": "sequental"}), "sequential"),
  "buckets.kind": (lambda p: data(p, buckets={"kind": "lenght"}), "length"),
  "batch_format": (lambda p: data(p, batch_format="MaxTxt"), "maxtext"),
  "option": (lambda p: data(p, rows={"add_eoss": True}), "add_eos"),
  "packing_mode": (
    lambda p: data(p, rows={"packing_mode": "bin"}),
    "config.data.sources.<name>.rows.kind",
  ),
  "mix.unit": (lambda p: data(p, mix={"unit": "tokns"}), "tokens"),
  "mix.weights": (lambda p: data(p, mix={"weights": {"wbe": 1.0}}), "web"),
  "doc_key": (
    lambda p: data(p, rows={"kind": "splice", "doc_key": "law/statut.txt"}),
    "law/statute.txt",
  ),
  "doc_weights": (
    lambda p: data(p, rows={**SPLICES, "doc_weights": {"code/lexr.py": 2.0}}),
    "code/lexer.py",
  ),
  "group_weights": (
    lambda p: data(
      p,
      rows={
        **SPLICES,
        "groups": {"laws": IDS[:2], "code": IDS[2:]},
        "group_weights": {"law": 2.0},
      },
    ),
    "laws",
  ),
  "store": (lambda p: data(p.replace("stdlib", "stdlb")), "stdlib"),
}


def said(error, name):
  """Whether an error names what was meant."""
  return bool(re.search(rf"(Did you mean|Set) `{re.escape(name)}`", str(error)))


@pytest.mark.parametrize("case", CONFIGS)
def test_names_of_a_config(path, case):
  make, name = CONFIGS[case]
  with pytest.raises((schema.ConfigError, chomp_data.StoreError)) as caught:
    chomp_data.build(make(path))
  assert said(caught.value, name)


def test_a_document_of_tombstones(path, tmp_path):
  file = tmp_path / "gone.jsonl"
  file.write_text('{"source": "web", "document": "code/parsr.py"}\n')
  with pytest.raises(schema.ConfigError) as caught:
    chomp_data.build(data(path, tombstones=((0, str(file)),)))
  assert said(caught.value, "code/parser.py")
  file.write_text('{"source": "wb", "document": 0}\n')
  with pytest.raises(schema.ConfigError) as caught:
    chomp_data.build(data(path, tombstones=((0, str(file)),)))
  assert said(caught.value, "web")


CALLS = {
  "source": (lambda p: visits.exposures(p, "wbe", 0, 1), "web"),
  "document": (lambda p: naming.find_document(p, "web/law/ruling.tx"), IDS[1]),
  "source of a document": (lambda p: naming.find_document(p, "wb/0"), "web"),
  "store options": (
    lambda p: chomp_data.open_store("x", megatrn=None),
    "megatron",
  ),
  "perm_type": (
    lambda p: chomp_data.FullShuffleSampler(9, perm_type="feistl"),
    "feistel",
  ),
  "config": (lambda p: chomp_data.load_config("pakced"), "packed"),
  "algorithm": (
    lambda p: run.prepare(
      run.Options(
        (__file__,),
        f"{p}.out",
        train=run.run_tokenizer.TrainOptions("bpee", 400),
      )
    ),
    "bpe",
  ),
  "tokenizer kind": (
    lambda p: chomp_data.write_store(
      "x",
      [],
      tokenizer_info=vocabulary.TokenizerInfo("hugingface", "0" * 64, 9),
    ),
    "huggingface",
  ),
}


@pytest.mark.parametrize("case", CALLS)
def test_names_of_arguments(path, case, tmp_path, monkeypatch):
  monkeypatch.chdir(tmp_path)
  call, name = CALLS[case]
  pipe = chomp_data.build(data(path))
  with pytest.raises((ValueError, TypeError)) as caught:
    call(pipe)
  assert said(caught.value, name)


def test_a_subcommand(capsys):
  with pytest.raises(SystemExit):
    stores_command.main(["verfy", "x"])
  assert said(capsys.readouterr().err, "verify")


def test_case_does_not_matter_and_nothing_near_is_nothing():
  assert schema.did_you_mean("FFD", ["ffd", "exact"]) == " Did you mean `ffd`?"
  assert not schema.did_you_mean("xyz", ["ffd", "exact"])
  assert not schema.did_you_mean(None, ["ffd", "exact"])


def leaves(section, path=()):
  """Yields every option below a section, by its path."""
  for name, option in section.options.items():
    yield (*path, name), option
  for name, inner in section.sections.items():
    yield from leaves(inner, (*path, name))


@pytest.mark.parametrize(
  ("kind", "shuffle"),
  [
    ("sequential", "block"), ("bin", "full"), ("splice", "era"),
    ("multi_splice", "none"), ("windows", "block"),
  ],
)  # fmt: skip
def test_what_may_be_left_out_may_be(path, kind, shuffle):
  rows = {"kind": kind}
  order = {"kind": shuffle, **({"era_length": 8} if shuffle == "era" else {})}
  good = data(path, rows=rows)
  good["sources"]["web"]["shuffle"] = order
  options.read(good)
  for where, _ in leaves(options.known(good)):
    # Sections that a run has, or has not, with fields that they require.
    absent = {
      "buckets",
      "sequence_layout",
      "fim",
      "simulated_epochs",
      *kinds.sections(),
    }
    if where[-1] == "kind" or absent & set(where):
      continue
    bad = data(path, rows=dict(rows))
    bad["sources"]["web"]["shuffle"] = dict(order)
    section = bad
    for name in where[:-1]:
      section = section.setdefault(name, {})
    section[where[-1]] = object()
    with pytest.raises(schema.ConfigError) as caught:
      options.read(bad)
    (problem,) = [
      one
      for one in caught.value.problems
      if f"`config.data.{'.'.join(where)}` must be" in one
    ]
    if "leave it out for the default" in problem:
      del section[where[-1]]
      options.read(bad)
