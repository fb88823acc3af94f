"""The commands of docs/corpora.md run, on corpora of the names they give."""

import gzip
import json
import pathlib
import re
import shlex
import sys

import pytest

from chomp_data import stores
from chomp_data.prepare import filters
from tests import in_process

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "corpora.md"


def blocks(language):
  return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def commands():
  """Every command of the page, as words; its variables left out."""
  for block in blocks("sh"):
    for line in block.replace("\\\n", " ").splitlines():
      words = shlex.split(line)
      start = next(i for i, word in enumerate(words) if "=" not in word)
      if words[start] == "chomp-prepare":
        yield words[start + 1 :]


@pytest.fixture
def root(tmp_path, monkeypatch):
  """A directory with all that the page's commands name."""
  parquet = pytest.importorskip("pyarrow.parquet")
  arrow = pytest.importorskip("pyarrow")
  texts = ["a long text " * 50, "short", "a long text " * 50]
  (tmp_path / "crawl").mkdir()
  table = {"id": ["a", "b", "c"], "text": texts, "score": [0.9, 0.8, 0.1]}
  parquet.write_table(arrow.table(table), tmp_path / "crawl" / "0.parquet")
  # As `dolma mix` writes documents.
  dolma = tmp_path / "dolma" / "documents" / "2019-09"
  dolma.mkdir(parents=True)
  with gzip.open(dolma / "0933_uk_all.jsonl.gz", "wt") as file:
    for i, text in enumerate(texts):
      own = {"id": f"d{i}", "text": text, "source": "cc", "metadata": {"n": i}}
      file.write(json.dumps(own) + "\n")
  # As JsonlWriter and ParquetWriter of datatrove do; what is empty is left out.
  output = tmp_path / "datatrove" / "output"
  output.mkdir(parents=True)
  records = [
    {"text": texts[0], "id": "t0", "metadata": {"language": "en", "p": 1.0}},
    {"id": "t1", "metadata": {"language": "en", "p": 0.1}},
    {"text": texts[1], "id": "t2"},
  ]
  with gzip.open(output / "00000.jsonl.gz", "wt") as file:
    for own in records:
      file.write(json.dumps(own, ensure_ascii=False) + "\n")
  batch = arrow.RecordBatch.from_pylist(records)
  parquet.write_table(arrow.table(batch), output / "00001.parquet")
  (tmp_path / "my_filters.py").write_text(blocks("python")[0])
  monkeypatch.syspath_prepend(str(tmp_path))
  filters.load.cache_clear()
  yield tmp_path
  sys.modules.pop("my_filters", None)
  filters.load.cache_clear()


def prepare(root, words):
  """Runs a command of the page in a directory."""
  own = [
    re.sub(r"^(--(?:input|output)=)", rf"\1{root}/", word) for word in words
  ]
  in_process.run_tool("prepare", *own, check=True)


def test_every_command_of_the_page_makes_its_store(root):
  found = {}
  for words in commands():
    prepare(root, words)
    (output,) = (w.removeprefix("--output=") for w in words if "output=" in w)
    store = stores.open_store(root / output)
    ids = store.document_ids(range(store.num_documents))
    left_out = store.manifest.prepared.get("skipped", {}).get("reasons")
    found[output] = (ids, left_out)
  assert found == {
    "data/crawl": (["a", "b", "c"], None),
    "data/unique": (["a", "b"], {"duplicate": 1}),
    "data/good": (["a"], {"filtered": 1, "short": 1}),
    "data/dolma": (["d0", "d1", "d2"], None),
    "data/datatrove": (["t0", "t2", "t0", "t2"], {"no text": 2}),
  }


@pytest.mark.slow
def test_the_script_of_the_page_gets_a_batch_of_the_first_command(
  root, monkeypatch
):
  monkeypatch.chdir(root)
  prepare(root, next(commands()))
  _, script = blocks("python")
  names = {}
  exec(script, names)
  assert names["batch"]["tokens"].sharding == names["rows"]
