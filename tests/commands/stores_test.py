# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `stores`: each subcommand on small stores of several kinds."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import datasets
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.commands import stores as command
from chomp_data.commands.store_commands import split
from chomp_data.prepare import run as prepare
from chomp_data.stores import adopting
from chomp_data.testing import stores as testing_stores
from tests import in_process
from tests.golden import cases
from tests.golden import corpora

FIXTURES = pathlib.Path(__file__).parents[1] / "stores" / "fixtures"
MEGATRON = "{'vocab_size': 100_000, 'eos_id': 0, 'adds_eos': True}"


@pytest.fixture
def call(capsys):
  """Runs a subcommand: its status and what it printed."""

  def run(*arguments):
    with pytest.raises(SystemExit) as exit_:
      command.main([str(own) for own in arguments])
    done = capsys.readouterr()
    code = exit_.value.code
    if isinstance(code, str):
      return 1, done.out, code
    return code or 0, done.out, done.err

  return run


def documents(count=40, seed=0):
  rng = np.random.default_rng(seed)
  return [rng.integers(0, 250, n) for n in rng.integers(0, 90, count)]


@pytest.fixture
def store(tmp_path):
  return testing_stores.make_store(
    tmp_path / "a", documents(), ids=[f"a/{i}" for i in range(40)]
  )


def held_by(store):
  """Returns the id and the tokens of each document."""
  ids = store.document_ids(range(store.num_documents))
  return [
    (name, stores.read_document(store, i).tolist())
    for i, name in enumerate(ids)
  ]


def held(path, **options):
  return held_by(stores.open_store(path, **options))


# --- looking -----------------------------------------------------------------


def test_info_tells_documents_tokens_lengths_tokenizer_and_hash(store, call):
  status, out, _ = call("info", store.path, "--format=json")
  assert status == 0
  found = json.loads(out)
  assert found["hash"] == store.hash
  assert found["documents"] == 40
  assert found["tokens"] == store.num_tokens
  assert found["tokenizer"]["vocab_size"] == 256
  lengths = np.asarray([len(own) for own in documents()])
  for own in found["lengths"]:
    here = (lengths >= own["from"]) & (lengths <= own["to"])
    assert own["documents"] == here.sum()
    assert own["tokens"] == lengths[here].sum()
  assert sum(own["documents"] for own in found["lengths"]) == 40
  status, out, _ = call("info", store.path, store.path)
  assert status == 0
  assert out.count(store.hash) == 2
  assert "64 .. 127" in out
  assert "█" in out
  assert f"{store.num_tokens:,}" in out


def test_info_of_other_tools_data_asks_for_what_it_does_not_say(tmp_path, call):
  for suffix in (".bin", ".idx"):
    shutil.copy(FIXTURES / "megatron" / f"int32_document{suffix}", tmp_path)
  path = tmp_path / "int32_document"
  status, _, error = call("info", path)
  assert status == 1
  assert "`megatron` beside the path" in error
  status, out, _ = call("info", path, f"--megatron={MEGATRON}", "--format=json")
  assert status == 0
  assert json.loads(out)["documents"] == 6
  assert not json.loads(out)["adopted"]
  status, _, error = call("info", path, "--megatron={'vocab': 3}")
  assert status == 1
  assert "`--megatron.vocab` is not a known field" in error
  status, _, error = call("info", path, "--megatron=rubbish(")
  assert status == 1
  assert "must be a mapping" in error


def test_head_decodes_text_and_else_shows_ids(tmp_path, store, call):
  source = tmp_path / "text.jsonl"
  source.write_text(
    '{"id": "one", "text": "Good day."}\n{"id": "two", "text": "Bye."}\n'
  )
  prepare.prepare(prepare.Options((str(source),), str(tmp_path / "text")))
  status, out, _ = call("head", tmp_path / "text", "--count=1")
  assert status == 0
  assert "one" in out
  assert "Good day." in out
  assert "Bye" not in out
  status, out, _ = call(
    "head", tmp_path / "text", "--first=1", "--format=json", "--tokens=3"
  )
  assert json.loads(out)["text"] == "Bye"
  assert json.loads(out)["length"] == 4
  status, out, _ = call("head", store.path, "--count=2", "--format=json")
  lines = [json.loads(own) for own in out.splitlines()]
  assert [own["tokens"] for own in lines] == [
    own[:64].tolist() for own in documents()[:2]
  ]


def test_verify_names_what_is_wrong_and_goes_on(tmp_path, store, call):
  other = testing_stores.make_store(tmp_path / "b", documents(seed=1))
  file = next((tmp_path / "a" / "tokens").rglob("c/0"))
  data = bytearray(file.read_bytes())
  data[50] ^= 1
  file.write_bytes(data)
  status, out, error = call("verify", store.path, other.path)
  assert status == 1
  assert str(file) in error
  assert f"{other.path}: right: 40 documents" in out


# --- writing -----------------------------------------------------------------


def test_merge_is_the_documents_of_all_in_order(tmp_path, store, call):
  testing_stores.make_store(
    tmp_path / "b", documents(7, 1), ids=[f"b/{i}" for i in range(7)]
  )
  output = tmp_path / "both"
  status, out, _ = call("merge", store.path, tmp_path / "b", "--output", output)
  assert status == 0
  assert "47 documents" in out
  assert held(output) == held(store.path) + held(tmp_path / "b")
  status, _, error = call("merge", store.path, "--output", output)
  assert status == 1
  assert "must not exist" in error
  status, _, _ = call(
    "merge", store.path, "--output", output, "--overwrite", "--compression=zstd"
  )
  assert status == 0
  assert held(output) == held(store.path)


def test_merge_keeps_labels_and_weights(tmp_path, call):
  testing_stores.make_store(
    tmp_path / "a",
    [[1, 2, 3], [4, 5]],
    levels=[0.0, 1.0, 0.5],
    label_levels=[[0, 1, 2], [2, 2]],
    weights=[1.0, 3.0],
  )
  testing_stores.make_store(tmp_path / "b", [[6, 7]])
  status, _, _ = call(
    "merge", tmp_path / "a", tmp_path / "b", "--output", tmp_path / "both"
  )
  assert status == 0
  both = stores.open_store(tmp_path / "both")
  _, begin, stop, level = both.labels.runs(np.asarray([0]), np.asarray([7]))
  found = np.repeat(both.labels.levels[level], stop - begin)
  assert found.tolist() == [0, 1, 0.5, 0.5, 0.5, 1, 1]
  assert both.labels.document_weights(np.arange(3)).tolist() == [1, 3, 1]


def test_info_tells_levels_as_short_as_they_were_given(tmp_path, call):
  made = testing_stores.make_store(
    tmp_path / "a", [[1]], levels=[0, 1, 0.3], label_levels=[[2]]
  )
  _, out, _ = call("info", made.path, "--format=json")
  assert json.loads(out)["levels"] == [0.0, 1.0, 0.3]


def test_merge_refuses_other_tokenizers(tmp_path, store, call):
  testing_stores.make_store(tmp_path / "b", [[1]], vocab_size=77)
  status, _, error = call(
    "merge", store.path, tmp_path / "b", "--output", tmp_path / "both"
  )
  assert status == 1
  assert "must be of the tokenizer" in error
  assert not (tmp_path / "both").exists()


def test_convert_keeps_hash_documents_and_chunks(tmp_path, store, call):
  status, _, _ = call(
    "convert", store.path, "--to=zstd", "--output", tmp_path / "z"
  )
  assert status == 0
  found = stores.open_store(tmp_path / "z")
  assert found.hash == store.hash
  assert found.opened.chunk_tokens == store.opened.chunk_tokens
  assert held(tmp_path / "z") == held(store.path)
  status, _, _ = call(
    "convert", tmp_path / "z", "--to=none", "--output", tmp_path / "n"
  )
  assert status == 0
  for file in pathlib.Path(store.path).rglob("*"):
    if file.is_file() and file.name != "manifest.json":
      again = tmp_path / "n" / file.relative_to(store.path)
      assert again.read_bytes() == file.read_bytes(), file
  status, _, _ = call(
    "convert", store.path, "--to=array_record", "--output", tmp_path / "r"
  )
  assert status == 0
  assert [own for _, own in held(tmp_path / "r")] == [
    own for _, own in held(store.path)
  ]


def test_convert_keeps_the_hash_of_labels_and_weights(tmp_path, call):
  own = testing_stores.make_store(
    tmp_path / "a",
    [[1, 2, 3], [], [4]],
    levels=[0.0, 1.0, 0.3],
    label_levels=[[0, 1, 2], [], [2]],
    weights=[1.0, 0.5, 2.0],
  )
  for to in ("zstd", "none"):
    call("convert", tmp_path / "a", f"--to={to}", "--output", tmp_path / to)
    assert stores.open_store(tmp_path / to).hash == own.hash


def test_what_a_killed_command_left_is_removed(tmp_path, store, call):
  left = tmp_path / "out.writing"
  left.mkdir()
  (left / "junk").write_text("half a store")
  status, _, _ = call("merge", store.path, "--output", tmp_path / "out")
  assert status == 0
  assert sorted(os.listdir(tmp_path)) == ["a", "out"]


def test_convert_makes_stores_of_other_tools_data(tmp_path, call):
  cache = shutil.copytree(FIXTURES / "levanter" / "cache", tmp_path / "cache")
  status, _, _ = call(
    "convert", cache, "--to=none", "--output", tmp_path / "own",
    "--levanter={'vocab_size': 100_000}",
  )  # fmt: skip
  assert status == 0
  found = stores.open_store(tmp_path / "own")
  assert found.num_documents == 6
  assert found.document_ids([5])[0] == "cache:5"
  assert found.opened.tokenizer.vocab_size == 100_000


# --- splitting ---------------------------------------------------------------


def split_of(call, path, tmp_path, *flags):
  rest, out = tmp_path / "rest", tmp_path / "held"
  status, _, error = call(
    "split", path, "--output", rest, "--held_out", out, "--overwrite", *flags
  )
  assert status == 0, error
  return dict(held(rest)), dict(held(out))


def test_split_is_stable_when_documents_are_added(tmp_path, call):
  few, many = documents(60), documents(60) + documents(90, 5)
  ids = [f"doc {i}" for i in range(150)]
  testing_stores.make_store(tmp_path / "few", few, ids=ids[:60])
  order = np.random.default_rng(3).permutation(150)
  testing_stores.make_store(
    tmp_path / "many", [many[i] for i in order], ids=[ids[i] for i in order]
  )
  rest, out = split_of(call, tmp_path / "few", tmp_path, "--fraction=0.2")
  assert rest.keys() | out.keys() == set(ids[:60])
  assert not rest.keys() & out.keys()
  more_rest, more_out = split_of(
    call, tmp_path / "many", tmp_path, "--fraction=0.2"
  )
  assert out.keys() == more_out.keys() & set(ids[:60])
  assert rest.keys() == more_rest.keys() & set(ids[:60])
  both = {**more_rest, **more_out}
  assert both == {ids[i]: many[i].tolist() for i in range(150)}
  # A larger fraction holds out more, and all of those.
  _, larger = split_of(call, tmp_path / "few", tmp_path, "--fraction=1/2")
  assert out.keys() < larger.keys()
  _, other = split_of(call, tmp_path / "few", tmp_path, "--fraction=0.2",
                      "--seed=1")  # fmt: skip
  assert other.keys() != out.keys()


def test_split_holds_out_the_fraction_and_is_pinned():
  ids = [f"{i}" for i in range(20_000)]
  mask = split.is_held_out(ids, int(0.03 * 2**64), 0)
  assert 480 < mask.sum() < 720
  found = np.flatnonzero(split.is_held_out(ids[:200], int(0.03 * 2**64), 0))
  assert found.tolist() == [6, 17, 45, 68, 78, 156]


def test_split_of_nothing_is_an_error(tmp_path, store, call):
  paths = ["--output", tmp_path / "r", "--held_out", tmp_path / "h"]
  for fraction, message in (
    ("0.000001", "none is held out"),
    ("2", "between 0 and 1"),
    ("x", "between 0 and 1"),
  ):
    status, _, error = call(
      "split", store.path, *paths, f"--fraction={fraction}"
    )
    assert status == 1
    assert message in error
  status, _, error = call(
    "split", store.path, "--output", tmp_path / "r", "--held_out",
    tmp_path / "r",
  )  # fmt: skip
  assert status == 1
  assert "another path" in error
  assert sorted(os.listdir(tmp_path)) == ["a"]


@pytest.mark.parametrize(
  "arguments",
  [
    ("head", "STORE", "--count=--"),
    ("merge", "STORE", "--output=--"),
    ("split", "STORE", "--output=x", "--held_out=y", "--seed=--"),
    ("convert", "STORE", "--output=x", "--to=--"),
  ],
)
def test_two_hyphens_are_no_value(arguments, store, call):
  arguments = [store.path if own == "STORE" else own for own in arguments]
  status, out, error = call(*arguments)
  name = arguments[-1].partition("=")[0]
  assert (status, out) == (2, "")
  assert error.endswith(f"argument {name}: must be a value, got '--'\n")


def test_head_shows_all_tokens_for_any_large_number(store, call):
  every = call("head", store.path, "--tokens=1000", "--ids")
  assert call("head", store.path, f"--tokens={10**30}", "--ids") == every


def test_what_verify_is_told_of_other_kinds_is_checked_first(store, call):
  status, out, error = call("verify", store.path, "--levanter=5,")
  assert (status, out) == (1, "")
  assert "`--levanter` must be" in error
  assert "got (5,)" in error


# --- adopting ----------------------------------------------------------------


def test_a_file_that_is_no_data_is_not_adopted(tmp_path, call):
  file = tmp_path / "notes.txt"
  file.write_text("not an ArrayRecord file")
  status, out, error = call("adopt", file)
  assert (status, out) == (1, "")
  assert f"{file} must be a" in error
  assert "ArrayRecord file" in error
  assert list(tmp_path.iterdir()) == [file]


def flip(file, at=None):
  """Changes a byte and leaves size and time as they were."""
  stat = file.stat()
  data = bytearray(file.read_bytes())
  data[len(data) // 2 if at is None else at] ^= 1
  file.write_bytes(data)
  os.utime(file, ns=(stat.st_atime_ns, stat.st_mtime_ns))


@pytest.fixture(params=["array_record", "arrow", "megatron", "levanter"])
def foreign(request, tmp_path):
  """Data of others: its path, its files, and how it is opened."""
  kind = request.param
  path = tmp_path / "data"
  if kind == "array_record":
    testing_stores.make_array_records(path, documents(400))
    options = {kind: {"token_dtype": "uint16", "vocab_size": 256}}
  elif kind == "arrow":
    datasets.Dataset.from_dict({"text": ["x" * 900] * 3_000}).save_to_disk(path)
    options = None
  elif kind == "megatron":
    for suffix in (".bin", ".idx"):
      file = FIXTURES / "megatron" / f"int32_document{suffix}"
      shutil.copy(file, f"{path}{suffix}")
    options = {kind: {"vocab_size": 100_000}}
  else:
    shutil.copytree(FIXTURES / "levanter" / "cache", path)
    options = {kind: {"vocab_size": 100_000}}
  files = sorted(own for own in tmp_path.rglob("*") if own.is_file())
  if kind == "arrow":
    files = [own for own in files if own.suffix == ".arrow"]
  return path, files, options


def opened(path, options):
  kind, values = next(iter(options.items()))
  cls = stores.STORE_KINDS[kind].options
  store = stores.open_store(path, **{kind: cls(**values)})
  return store.read_tokens([0], [store.num_tokens]).tolist()


def test_adopted_data_shows_every_later_change(foreign, call):
  path, files, options = foreign
  if options:
    before = opened(path, options)
  status, out, _ = call("adopt", path)
  assert status == 0
  assert f"{len(files)} files" in out
  assert call("verify", path)[0] == 0
  status, _, error = call("adopt", path)
  assert status == 1
  assert "must not be adopted yet" in error
  for file in files:
    flip(file)
    status, _, error = call("verify", path)
    assert status == 1
    assert file.name in error
    if options:
      # An index of before does not hide it, nor does one of after.
      index = path.with_name(path.name + ".index")
      for _ in range(2):
        with pytest.raises(stores.StoreError):
          opened(path, options)
        shutil.rmtree(index, ignore_errors=True)
    flip(file)
    assert call("verify", path)[0] == 0
  if options:
    assert opened(path, options) == before
  files[0].write_bytes(files[0].read_bytes() + b"x")
  status, _, error = call("verify", path)
  assert status == 1
  assert "bytes and not" in error
  files[0].unlink()
  assert call("verify", path)[0] == 1


def test_checksums_that_were_altered_are_an_error(tmp_path, call):
  path = tmp_path / "data"
  testing_stores.make_array_records(path, documents())
  call("adopt", path)
  flip(tmp_path / "data.adopted" / "pages.bin", 0)
  status, _, error = call("verify", path)
  assert status == 1
  assert "data.adopted" in error


def test_stores_of_ours_need_no_adoption(store, call):
  status, _, error = call("adopt", store.path)
  assert status == 1
  assert "Verify it" in error


def test_what_was_not_adopted_is_told_as_trusted_in_the_summary(
  foreign, store, call
):
  """With the command that ends it."""
  path, files, options = foreign
  if options is None:
    # Arrow holds arrays, for buckets of sizes.
    shutil.rmtree(path)
    corpora.write(path.parent, "scans")
    path = (path.parent / "scans").rename(path)
    source = {"store": str(path)}
    data = cases.CASES["sizes"].data
  else:
    rows = {"kind": "sequential", "pad_token_id": 0}
    source = {"store": str(path), "rows": rows, **options}
    data = {"seq_len": 16, "global_batch_size": 2}
    if files[0].suffix == ".bin":
      # Before anything of ours has seen it: nothing else can tell.
      flip(files[0])
  data = {**data, "mix": None, "sources": {"own": source}}
  said = (
    "  own: trusted as found, its files have no checksums: `chomp-stores adopt"
    f" {path}` keeps some beside them"
  )
  assert said in pipeline.build(data).describe().splitlines()
  assert call("adopt", path)[0] == 0
  assert "trusted" not in pipeline.build(data).describe()
  assert adopting.trusted([store.path]) == []


def test_what_was_not_adopted_is_read_and_said_so(tmp_path, call):
  path = tmp_path / "data"
  testing_stores.make_array_records(path, documents())
  section = "--array_record={'token_dtype': 'uint16', 'vocab_size': 256}"
  status, out, _ = call("verify", path, section)
  assert status == 0
  assert "adopt it" in out


# --- the command -------------------------------------------------------------


def test_help_names_every_subcommand_and_its_arguments(call):
  status, out, _ = call("--help")
  assert status == 0
  for name in command.COMMANDS:
    assert f"    {name} " in out
    status, own, _ = call(name, "--help")
    assert status == 0
    assert own.count("\n") > 8, name
  assert "--held_out" in call("split", "--help")[1]
  assert call()[0] == 2
  assert call("sort")[0] == 2


@pytest.mark.slow
def test_it_runs_as_a_module_and_from_a_checkout(store):
  done = in_process.run_tool("stores", "info", store.path, check=True)
  assert store.hash in done.stdout
  done = subprocess.run(
    [sys.executable, "-m", "chomp_data.stores", "info", store.path],
    capture_output=True,
    text=True,
    check=True,
  )
  assert store.hash in done.stdout


def test_an_interrupted_command_publishes_nothing(
  tmp_path, store, call, monkeypatch
):
  def interrupted(*unused):
    raise KeyboardInterrupt

  monkeypatch.setattr("chomp_data.stores.copying.append", interrupted)
  status, _, error = call("merge", store.path, "--output", tmp_path / "m")
  assert status == 1
  assert "nothing was published" in error
  assert sorted(os.listdir(tmp_path)) == ["a"]
