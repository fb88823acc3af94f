# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One answer of a bucket is damaged: a further request gives the right one."""

import json
import pathlib

import pytest

from chomp_data import stores
from chomp_data.loading import saved_states
from chomp_data.prepare import engines
from chomp_data.prepare import run
from chomp_data.reference import mirror
from chomp_data.storage import opening
from chomp_data.storage import requests
from chomp_data.stores import span_reads
from tests.golden import golden_test
from tests.prepare import beam_bucket_test
from tests.remote import inputs_test
from tests.remote import store_kinds

DAMAGES = {
  "short": lambda body: body[:-3],
  "long": lambda body: body + b"abc",
  "flipped": lambda body: (
    body[: len(body) // 2]
    + bytes([body[len(body) // 2] ^ 1])
    + body[len(body) // 2 + 1 :]
  ),
}


@pytest.fixture(autouse=True)
def quick(monkeypatch, tmp_path):
  monkeypatch.setattr(requests, "RETRY_DELAYS_S", (0.001,) * 8)
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  monkeypatch.setattr(span_reads, "DEFAULT_CHUNK_TOKENS", store_kinds.CHUNK)


def store_of(kind):
  def make(root, directory):
    documents = store_kinds.DOCUMENTS[:4] + store_kinds.DOCUMENTS[-4:]
    kind.write(directory / kind.name, documents)
    url = store_kinds.upload(directory / kind.name, f"{root}/{kind.name}")

    def read(unused):
      store = kind.open(url)
      tokens = store.read_tokens([0], [store.num_tokens])
      return tokens.tolist(), store.document_ids([0, 3])

    return read

  return make


def checkpoint(root, directory):
  (directory / "made/model").mkdir(parents=True)
  (directory / "made/model/weights").write_bytes(bytes(range(200)))
  (directory / "made/_METADATA").write_bytes(b"0123456789")
  mirror.Mirror(f"{root}/checkpoints", keep=None).send(3, directory / "made")

  def read(target):
    mirror.Mirror(f"{root}/checkpoints", keep=None).fetch(3, target)
    return {
      file.name: file.read_bytes()
      for file in target.rglob("*")
      if file.is_file()
    }

  return read


def state(root, directory):
  golden = pathlib.Path(golden_test.__file__).parent / "expected"
  record = json.loads((golden / "after_a_phase.json").read_text())
  data = next(iter(record["states"].values()))["state"].encode()
  opening.open_storage(root).put("checkpoints/3/a/input/input.json", data)
  opening.open_storage(root).put("checkpoints/3/complete.json", b"{}")

  def read(unused):
    saved_states.state_in_bucket.cache_clear()
    return saved_states.find(root)

  return read


def prepared(name):
  def make(root, directory):
    path = inputs_test.KINDS[name](directory)
    inputs_test.upload(directory, root)
    url = f"{root}/{path.relative_to(directory).as_posix()}"

    def read(target):
      opening.open_root.cache_clear()
      inputs_test.prepare(target / "out", url, text_key="text", id_key="none")
      return inputs_test.contents(target / "out")

    return read

  return make


def beam(root, directory):
  pattern, _ = beam_bucket_test.corpus(root, directory)

  def read(target):
    output = f"{root}/{target.name}/out"
    options = {"shard_bytes": 2**15, "chunk": 2**10, "engine": "far"}
    run.prepare(run.Options((pattern,), output, **options))
    return stores.open_store(output).hash

  return read


FORMATS = {
  "zarr": store_of(store_kinds.KINDS["none"]),
  "zarr zstd": store_of(store_kinds.KINDS["zstd"]),
  "megatron": store_of(store_kinds.MEGATRON),
  "levanter": store_of(store_kinds.LEVANTER),
  "checkpoint": checkpoint,
  "state": state,
  "jsonl": prepared("jsonl"),
  "parquet": prepared("parquet"),
  "array_record": prepared("array_record"),
  "beam": beam,
}
# Formats of others, whose bytes have no checksum that is known.
UNSUMMED = ("megatron", "levanter", "jsonl", "parquet", "array_record")
# What is the same for both schemes, or slow, is left to the slow tests.
QUICK = {
  "s3": (("zarr zstd", "short"), ("checkpoint", "flipped"), ("state", "long")),
  "gs": (("zarr", "flipped"),),
}


@pytest.mark.parametrize(
  ("bucket", "name", "damage"),
  [
    pytest.param(
      scheme,
      name,
      damage,
      marks=[] if (name, damage) in QUICK[scheme] else [pytest.mark.slow],
    )
    for scheme in QUICK
    for name in FORMATS
    for damage in DAMAGES
    if not (damage == "flipped" and name in UNSUMMED)
  ],
  indirect=["bucket"],
)
def test_each_answer_may_be_damaged_once(
  bucket, name, damage, tmp_path, monkeypatch
):
  monkeypatch.setitem(
    engines.ENGINES, "far", lambda *unused: beam_bucket_test.Far()
  )
  read = FORMATS[name](bucket.root, tmp_path)
  bucket.clear()
  requests.counts.corrupt = 0
  expected = read(tmp_path / "right")
  # Inputs of `prepare` are not summed, what it keeps meanwhile is.
  part = ".partial/" if (name, damage) == ("beam", "flipped") else ""
  reads = bucket.reads(part)
  assert reads
  assert not requests.counts.corrupt
  bad = []
  for number in range(0, len(reads), max(1, len(reads) // 8)):
    bucket.clear()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / f"cache{number}"))
    damaged = []

    def once(request, body, number=number, damaged=damaged):
      if damaged or not body[1:] or request not in bucket.reads(part)[number:]:
        return body
      damaged.append(request)
      return DAMAGES[damage](body)

    bucket.damage = once
    requests.counts.corrupt = 0
    why = ""
    try:
      if read(tmp_path / f"{number}") != expected:
        why = "another result"
      # Errors of what is known of an object (JSON) are retries; where only its
      # version is asked for (the first byte), the body is not used.
      elif (
        damaged
        and "alt=json" not in damaged[0].target
        and (name not in UNSUMMED or damaged[0].begin)
        and not requests.counts.corrupt
      ):
        why = "not counted"
    except Exception as error:
      why = repr(error)[:300]
    if why:
      bad.append((number, damaged, why))
  assert not bad, "\n".join(map(str, bad))
