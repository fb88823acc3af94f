"""The blocks of docs/stores.md and docs/tokenized.md run on small data."""

import pathlib
import re
import shlex
import shutil
import types

import ml_collections
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data import stores
from chomp_data.commands import stores as command
from chomp_data.commands.store_commands import shared
from chomp_data.stores.array_record import record_writer
from chomp_data.testing import stores as testing_stores

ROOT = pathlib.Path(__file__).parents[2]
FIXTURES = ROOT / "tests" / "stores" / "fixtures"


def blocks(page, language):
  text = (ROOT / "docs" / page).read_text()
  return re.findall(rf"```{language}\n(.*?)```", text, flags=re.DOTALL)


def commands(page):
  for block in blocks(page, "sh"):
    for line in block.replace("\\\n", " ").splitlines():
      words = shlex.split(line)
      assert words[0] == "chomp-stores"
      yield words[1:]


@pytest.fixture
def root(tmp_path, monkeypatch):
  """A directory with what the pages name."""
  rng = np.random.default_rng(0)
  for name in ("web", "code", "a", "b"):
    documents = [rng.integers(0, 250, n) for n in rng.integers(1, 90, 60)]
    testing_stores.make_store(tmp_path / "data" / name, documents)
  corpora = tmp_path / "corpora"
  corpora.mkdir()
  for suffix in (".bin", ".idx"):
    shutil.copy(
      FIXTURES / "megatron" / f"uint16_document{suffix}",
      corpora / f"web_text_document{suffix}",
    )
  monkeypatch.chdir(tmp_path)
  return tmp_path


@pytest.mark.parametrize("page", ["stores.md", "tokenized.md"])
def test_every_command_of_a_page_runs(root, page):
  for words in commands(page):
    with pytest.raises(SystemExit) as exit_:
      command.main(words)
    assert exit_.value.code in (0, None), words


def test_every_subcommand_is_on_the_page():
  text = (ROOT / "docs" / "stores.md").read_text()
  for name in command.COMMANDS:
    assert f"| `{name} PATH" in text


def test_the_blocks_of_the_page_of_stores_run(root):
  several, zarr, records = blocks("stores.md", "python")
  config = ml_collections.ConfigDict(
    {
      "data": {
        "seq_len": 32,
        "global_batch_size": 4,
        "sources": {"web": {"rows": {"kind": "sequential"}}},
      }
    }
  )
  exec(several, {"config": config})
  pipe = pipeline.build(config.data)
  assert pipe.sources["web"].store.num_documents == 120
  web = stores.open_store("data/web")
  names = {"pathlib": pathlib}
  exec(zarr, names)
  assert names["first"].tolist() == web.read_tokens([0], [10]).tolist()
  record_writer.write(web, pathlib.Path("data/records"))
  exec(records, names)
  assert names["document"].tolist() == web.read_document(0).tolist()


def test_the_config_of_the_page_of_tokenized_corpora_builds(root):
  (block,) = blocks("tokenized.md", "python")
  config = types.SimpleNamespace(data=types.SimpleNamespace())
  exec(block, {"config": config})
  data = {
    "seq_len": 64,
    "global_batch_size": 2,
    "sources": config.data.sources,
  }
  pipe = pipeline.build(data)
  assert pipe.batch(0)["tokens"].shape == (2, 64)
  assert shared.line(pipe.sources["web"].store).endswith(
    pipe.sources["web"].store.hash[:16]
  )
