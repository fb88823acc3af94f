# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""tools/prepare.py: what it prints, and what it returns."""

import json
import os
import pathlib
import re
import subprocess
import sys

import pytest

from chomp_data import stores
from tests import in_process
from tests.prepare import options_test

IN = ("--input=Makefile", "--output=x")
TOOL = pathlib.Path(__file__).parents[2] / "tools" / "prepare.py"


def call(*flags):
  return in_process.run_tool("prepare", *flags)


def test_a_run_prints_its_summary_and_a_second_one_that_it_is_done(
  corpus, tmp_path
):
  flags = [f"--input={corpus}", f"--output={tmp_path / 'out'}"]
  first = call(*flags)
  assert first.returncode == 0, first.stderr
  store = stores.open_store(tmp_path / "out")
  rows = dict(line.split(None, 1) for line in first.stdout.splitlines())
  assert rows["documents"] == "7"
  assert rows["tokens"] == f"{store.num_tokens} (uint16)"
  assert rows["hash"] == store.hash
  assert "empty documents skipped  2" in first.stdout
  # Of the last chunks only what is used is on the disk, as `du` says.
  on_disk = sum(
    512 * file.stat().st_blocks
    for file in (tmp_path / "out").rglob("*")
    if file.is_file()
  )
  assert f"bytes on disk            {on_disk:,}" in first.stdout
  assert on_disk < store.manifest.num_bytes / 4
  assert "shortest, longest        3, 29 tokens" in first.stdout
  before = os.stat(tmp_path / "out" / "manifest.json").st_mtime_ns
  second = call(*flags, "--workers=2")
  assert second.returncode == 0
  assert second.stdout.startswith("nothing to do")
  assert os.stat(tmp_path / "out" / "manifest.json").st_mtime_ns == before


def test_what_was_skipped_is_in_the_summary(corpus, tmp_path):
  (corpus / "x.json").write_text('{"text": "fine"}\n' + "not JSON\n" * 12)
  (corpus / "model").write_bytes(b"\x7fELF\x00")
  flags = [f"--input={corpus}", f"--output={tmp_path / 'out'}"]
  failed = in_process.run_tool("prepare", *flags)
  assert failed.returncode == 1
  assert f"{corpus}/model must be UTF-8 text, JSON lines" in failed.stderr
  assert "got ELF." in failed.stderr
  done = in_process.run_tool("prepare", *flags, "--on_error=skip", check=True)
  lines = done.stdout.splitlines()
  assert "skipped files            1" in lines
  assert "skipped lines            12" in lines
  named = [line.split()[1] for line in lines if line.startswith("skipped  ")]
  assert named == ["model", *(f"x.json:{i}" for i in range(2, 11)), "..."]


def test_ids_that_are_missing_or_repeat_are_counted(tmp_path):
  ids = ["", ', "id": "x"', ', "id": "x"', ', "id": 7', ', "id": null']
  lines = [f'{{"text": "{i}"{own}}}\n' for i, own in enumerate(ids)]
  (tmp_path / "x.jsonl").write_text("".join(lines))
  flags = [f"--input={tmp_path / 'x.jsonl'}", f"--output={tmp_path / 'out'}"]
  done = in_process.run_tool("prepare", *flags, check=True)
  assert "without an id            2, called by their places" in done.stdout
  assert "repeated ids             1\n" in done.stdout
  again = in_process.run_tool("prepare", *flags, check=True)
  assert again.stdout.startswith("nothing to do")
  (tmp_path / "x.jsonl").write_text('{"text": "a", "id": 1}\n')
  done = in_process.run_tool("prepare", *flags, "--overwrite", check=True)
  assert "id  " not in done.stdout
  prepared = stores.open_store(tmp_path / "out").manifest.prepared
  assert not {"without_id", "repeated_ids"} & set(prepared)


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_an_id_key_that_no_document_has_is_an_error(tmp_path, kind):
  records = [{"text": "a", "name": "x"}, {"text": "", "name": "y"}]
  records += [records[0]]
  path = tmp_path / f"x.{kind}"
  if kind == "jsonl":
    path.write_text("".join(f"{json.dumps(own)}\n" for own in records))
  else:
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.Table.from_pylist(records), path)
  flags = [f"--input={path}", f"--output={tmp_path / 'out'}"]
  for more in ((), ("--duplicates=drop",)):
    done = in_process.run_tool("prepare", *flags, "--id_key=nmae", *more)
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("error:") :]
    assert "`--id_key` must be a key that a document has, got 'nmae'" in error
    assert f"{path}" in error
    assert re.search(r"'nmae', got \[.*'name'.*'text'|'text'.*'name'", error)
    assert not (tmp_path / "out").exists()
  done = in_process.run_tool("prepare", *flags, "--id_key=name", check=True)
  assert "repeated ids             1\n" in done.stdout
  # Without the flag they are called by their places.
  in_process.run_tool("prepare", *flags, "--overwrite", check=True)


def test_tables_of_text_are_no_documents_unless_beside_others(tmp_path):
  (tmp_path / "in").mkdir()
  (tmp_path / "in" / "x.CSV").write_text("a,b\n1,2\n")
  flags = [f"--input={tmp_path / 'in'}", f"--output={tmp_path / 'out'}"]
  done = in_process.run_tool("prepare", *flags)
  assert done.returncode == 1
  assert "got only tables of text" in done.stderr
  assert "x.CSV. For a document a row, convert it to Parquet" in done.stderr
  (tmp_path / "in" / "y.txt").write_text("text")
  done = in_process.run_tool("prepare", *flags, check=True)
  assert "x.CSV (of 1 such files) is read as text" in done.stderr
  assert stores.open_store(tmp_path / "out").num_documents == 2


@pytest.mark.parametrize(
  ("flags", "match"),
  [
    (["--output=x"], "`--input` must be given"),
    (["--input=x"], "`--output` must be given"),
    (["--input=nowhere/*.txt", "--output=x"], "nowhere"),
    (["--input=x", "--output=x", "stray"], "stray"),
    (["--input=x", "--output=x", "--compression=gzip"], "gzip"),
    (["--input=x", "--output=x", "--on_error=ignore"], "<fail|skip>"),
    (["--input=x", "--output=x", "--workers=two"], "--workers=two"),
    (["--input=x", "--output=x", "--txt_key=t"], "Did you mean: text_key"),
    (["--input=Makefile", "--output=x", "--workers=-1"], "at least 0, got -1"),
    (["--input=Makefile", "--output=x", "--text_key="], "not be empty, got ''"),
    (["--input=Makefile"], "`--output` must be given, got none"),
    ([*IN, "--train_tokenizer=bpe"], "`--vocab_size` must be at least 259"),
    ([*IN, "--train_tokenizer=bpe", "--vocab_size=258"], "got 258"),
    ([*IN, "--vocab_size=300"], "--train_tokenizer only, got 300"),
    (
      [*IN, "--train_tokenizer=bpe", "--vocab_size=300", "--tokenizer=a.json"],
      "`--tokenizer` must not be given",
    ),
    ([*IN, "--chat_template=nowhere.jinja"], "nowhere.jinja"),
    ([*IN, "--messages_key=m", "--message_keys=a"], "NAME=NAME"),
    ([*IN, "--preview=2", "--duplicates=drop"], "must not be given with"),
    (
      ["--input=Makefile", "--output=x", "--eos_token="],
      "--eos_token` must not",
    ),
    ([*IN, "--preview=0"], "must be a whole number of at least 1, got 0."),
  ],
)
def test_a_wrong_call_says_what_is_wrong_in_one_line(flags, match):
  done = in_process.run_tool("prepare", *flags)
  assert done.returncode == 1
  assert not done.stdout
  (line,) = done.stderr.splitlines()
  assert line.startswith("error: ")
  assert match in line


def test_help_explains_every_flag_in_sentences():
  text = in_process.run_tool("prepare", "--help").stdout
  assert "tools/prepare.py --input=" in text
  flags = re.findall(r"^  --(?:\[no\])?(\w+): (.*(?:\n    .*)*)", text, re.M)
  assert sorted(name for name, _ in flags) == options_test.FLAGS.split()
  for name, sentence in flags:
    own = re.sub(r"^<[\w|]+>: |\n    \((default|an?\b).*", "", sentence)
    own = re.sub(r";\s+repeat this option .*", ".", own)
    assert own.rstrip().endswith("."), name


@pytest.mark.parametrize(
  "limit",
  [10, *(pytest.param(n, marks=pytest.mark.slow) for n in (0, 40, 1_000))],
)
def test_a_file_that_cannot_be_written_publishes_nothing(
  corpus, tmp_path, limit
):
  flags = [f"--input={corpus}", f"--output={tmp_path / 'out'}"]
  # Not by `preexec_fn`: other tests may have started threads in here.
  script = (
    "import resource, runpy, sys\n"
    f"resource.setrlimit(resource.RLIMIT_FSIZE, ({limit}, {limit}))\n"
    "sys.argv = sys.argv[1:]\n"
    "runpy.run_path(sys.argv[0], run_name='__main__')\n"
  )
  done = subprocess.run(
    [sys.executable, "-B", "-c", script, str(TOOL), *flags],
    capture_output=True,
    text=True,
  )
  assert done.returncode == 1
  assert "File too large" in done.stderr
  assert "Traceback" not in done.stderr
  assert not (tmp_path / "out").exists()
  assert call(*flags).returncode == 0
  stores.verify_store(tmp_path / "out")
  assert sorted(os.listdir(tmp_path)) == ["corpus", "out"]
