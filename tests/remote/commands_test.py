# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The command `chomp-stores` on URLs: what comes in and what goes out."""

import json
import pathlib
import shutil

import pytest

from chomp_data import errors
from chomp_data import stores
from chomp_data.storage import opening
from chomp_data.stores import kinds
from tests.commands import stores_test
from tests.remote import store_kinds

call = stores_test.call
store = stores_test.store
held, held_by = stores_test.held, stores_test.held_by
FIXTURES = pathlib.Path(__file__).parents[1] / "stores" / "fixtures"


@pytest.fixture
def local(store):
  return pathlib.Path(store.path)


@pytest.fixture
def url(bucket, local):
  return store_kinds.upload(local, f"{bucket.root}/a")


def test_what_is_told_of_a_store_is_what_is_told_of_it_on_a_disk(
  call, url, local
):
  for words in (["info", "--format=json"], ["head", "--ids"]):
    status, found, err = call(*words, url)
    assert status == 0, err
    _, expected, _ = call(*words, local)
    assert found == expected.replace(json.dumps(str(local)), json.dumps(url))
  assert call("verify", url)[0] == 0


def test_a_store_that_was_changed_is_told_by_verify(call, url):
  name = "tokens/c/0"
  data = bytearray(opening.open_storage(url).get(name))
  data[3] ^= 1
  opening.open_storage(url).put(name, bytes(data))
  status, _, err = call("verify", url)
  assert status == 1
  assert f"{url}/tokens" in err


@pytest.mark.slow
def test_new_stores_are_made_of_and_in_buckets(call, url, local, bucket):
  root = bucket.root
  for words, expected in (
    (["merge", url, local, f"--output={root}/both"], held(local) * 2),
    (["convert", url, "--to=zstd", f"--output={root}/both"], held(local)),
  ):
    status, _, err = call(*words, *["--overwrite"] * (words[0] == "convert"))
    assert status == 0, err
    assert held(f"{root}/both") == expected
  assert stores.open_store(f"{root}/both").hash == stores.open_store(url).hash
  status, _, err = call("convert", url, "--to=none", f"--output={root}/both")
  assert status == 1
  assert f"{root}/both/manifest.json must not exist" in err
  status, _, err = call(
    *("split", url, f"--output={root}/train", f"--held_out={root}/eval"),
    "--fraction=0.3",
  )
  assert status == 0, err
  assert sorted(held(f"{root}/train") + held(f"{root}/eval")) == sorted(
    held(local)
  )
  # One of two stores is there already: neither is made.
  status, _, err = call(
    *("split", url, f"--output={root}/new", f"--held_out={root}/eval"),
  )
  assert status == 1
  assert f"{root}/eval/manifest.json must not exist" in err
  assert not opening.open_storage(f"{root}/new").names()


def test_records_are_made_of_a_store_in_a_bucket_on_a_disk(
  call, url, local, tmp_path, monkeypatch
):
  out = tmp_path / "records"
  status, _, err = call("convert", url, "--to=array_record", f"--output={out}")
  assert status == 0, err
  assert [own for _, own in held(out)] == [own for _, own in held(local)]
  monkeypatch.chdir(tmp_path)
  there = f"{url}-records"
  status, _, err = call("convert", url, "--to=array_record", "--output", there)
  assert status == 1
  assert f"must be a local directory, got '{there}'" in err
  assert not list(tmp_path.glob("*:"))


def test_what_others_wrote_is_adopted_on_disks_only(call, bucket):
  status, _, err = call("adopt", f"{bucket.root}/corpus")
  assert status == 1
  assert f"must be a local directory, got '{bucket.root}/corpus'" in err


def test_records_of_tokens_in_a_bucket_are_refused_with_what_helps():
  own = kinds.STORE_KINDS["array_record"].options(
    vocab_size=9, token_dtype="uint16"
  )
  with pytest.raises(errors.StoreError, match=r"s3://bucket/x.*stores convert"):
    stores.open_store("s3://bucket/x", array_record=own)


def test_a_megatron_corpus_becomes_a_store_in_a_bucket(
  call, s3_bucket, tmp_path
):
  for suffix in (".bin", ".idx"):
    shutil.copy(FIXTURES / "megatron" / f"int32_document{suffix}", tmp_path)
  path, out = tmp_path / "int32_document", f"{s3_bucket.root}/web"
  told = "{'vocab_size': 100_000, 'eos_id': 0, 'adds_eos': True}"
  status, _, err = call(
    *("convert", path, "--to=zstd", f"--megatron={told}", f"--output={out}")
  )
  assert status == 0, err
  options = kinds.STORE_KINDS["megatron"].options(
    vocab_size=100_000, eos_id=0, adds_eos=True
  )
  corpus = stores.open_store(path, megatron=options)
  assert held(out) == held_by(corpus)


def test_a_megatron_corpus_in_a_bucket_is_read_by_all(bucket, call, tmp_path):
  for file in (FIXTURES / "megatron").glob("int32_document.*"):
    opening.open_storage(bucket.root).put(file.name, file.read_bytes())
  told = "--megatron={'vocab_size': 100_000}"
  path = f"{bucket.root}/int32_document"
  code, out, _ = call("info", path, told)
  assert code == 0
  assert "369" in out
  code, out, _ = call("verify", path, told)
  assert code == 0
  assert "readable: 6 documents, 369 tokens" in out
  code, _, _ = call(
    "convert", path, told, "--to=zstd", f"--output={tmp_path}/store"
  )
  assert code == 0
  assert stores.open_store(tmp_path / "store").num_tokens == 369
