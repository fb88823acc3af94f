"""The blocks of docs/object_stores.md, on a bucket on loopback."""

import json
import pathlib
import re
import shlex
import types

import ml_collections
import pytest

from chomp_data import pipeline
from chomp_data.commands import stores as command
from chomp_data.stores import places
from tests import in_process
from tests.remote import conftest
from tests.remote import servers

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "object_stores.md"

_s3 = conftest._s3
s3_bucket = conftest.s3_bucket


def blocks(language):
  return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_what_the_page_says_works(s3_bucket, tmp_path, monkeypatch):
  monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
  lines = [
    json.dumps({"text": "some text " * 99, "id": f"{i}"}) for i in range(9)
  ]
  text = "\n".join(lines).encode()
  places.at(f"{s3_bucket.root}/texts").write("0.jsonl", text)
  url = f"{s3_bucket.root}/corpus"
  (block,) = blocks("sh")
  for line in block.replace("\\\n", " ").splitlines():
    program, *words = shlex.split(line.replace("s3://bucket", s3_bucket.root))
    if program == "chomp-prepare":
      in_process.run_tool("prepare", "--workers=0", *words, check=True)
      continue
    assert program == "chomp-stores"
    with pytest.raises(SystemExit) as exit_:
      command.main(words)
    assert exit_.value.code in (0, None), words
  data = ml_collections.ConfigDict({"seq_len": 64, "global_batch_size": 4})
  scope = {"config": types.SimpleNamespace(data=data)}
  for block in blocks("python"):
    block = block.replace("s3://bucket/corpus", url)
    block = block.replace("/tmp/chunks", str(tmp_path / "chunks"))
    exec(
      block.replace('"kind": "block"', '"kind": "block", "io_block_size": 1'),
      scope,
    )
    pipe = pipeline.build(data)
    assert pipe.canonical(0)["tokens"].shape == (4, 64)
  assert servers.BUCKET in url
