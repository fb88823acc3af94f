"""The documentation as a whole: every page is in it, what it names is there."""

import ast
import functools
import json
import pathlib
import re
import shlex

import pytest
import yaml

from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
_TOOLS = {
  "chomp-prepare": "prepare",
  "chomp-inspect": "inspect_batches",
  "chomp-stores": "stores",
  "chomp-simulate": "simulate",
  "chomp-trace": "trace",
  "chomp-diff": "diff",
  "chomp-losses": "losses",
  "chomp-train": "train",
}


def pages(nav) -> list[str]:
  """Returns the pages of a navigation, in order."""
  if isinstance(nav, str):
    return [nav]
  values = nav.values() if isinstance(nav, dict) else nav
  return [page for value in values for page in pages(value)]


def blocks(name: str, language: str) -> list[str]:
  text = (DOCS / name).read_text()
  return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


def commands(name: str) -> list[list[str]]:
  """Returns the commands of a page, as words."""
  return [
    shlex.split(line)
    for block in blocks(name, "sh")
    for line in block.replace("\\\n", " ").splitlines()
    if line.strip()
  ]


def run(words: list[str], place: pathlib.Path) -> None:
  """Runs a command of a page; `|| test $? = N` says how it ends."""
  expected = 0
  if "||" in words:
    at = words.index("||")
    expected, words = int(words[-1]), words[:at]
  found = in_process.run_tool(_TOOLS[words[0]], *words[1:], cwd=place)
  assert found.returncode == expected, (words, found.stderr[-2_000:])


def test_every_page_stands_in_the_navigation_once():
  config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
  found = pages(config["nav"])
  assert sorted(found) == sorted(path.name for path in DOCS.glob("*.md"))


def test_links_between_pages_and_to_pictures_lead_somewhere():
  for path in DOCS.glob("*.md"):
    for link in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", path.read_text()):
      if "://" not in link and not link.startswith("mailto:"):
        assert (DOCS / link).exists(), (path.name, link)
        assert (DOCS / link).resolve().is_relative_to(DOCS), (path.name, link)


@functools.cache
def functions_of(file: str) -> set[str]:
  tree = ast.parse((ROOT / "tests" / file).read_text())
  return {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_guarantees_name_tests_that_are_there():
  text = (DOCS / "guarantees.md").read_text()
  named = re.findall(r"`([\w/]+\.py)::(\w+)`", text)
  assert len(named) > 30
  for file, test in named:
    assert test in functions_of(file), (file, test)
  # Every line of a table names one.
  for line in text.splitlines():
    if line.startswith("| ") and not re.match(r"\| (guarantee|not|-)\b", line):
      assert "::" in line, line


@pytest.fixture(name="place")
def fixture_place(tmp_path, monkeypatch, stdlib_store):
  """A directory with a corpus, and the store of the shipped configs."""
  monkeypatch.chdir(tmp_path)
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "stdlib").symlink_to(stdlib_store)
  return tmp_path


@pytest.mark.slow
def test_the_five_minutes_run(place):
  corpus = place / "corpus"
  corpus.mkdir()
  with open(corpus / "0.jsonl", "w") as file:
    for i in range(200):
      own = {"id": f"{i}", "text": f"a text of some length {i} " * 40}
      file.write(json.dumps(own) + "\n")
  for words in commands("start.md"):
    run(words, place)
  (block,) = blocks("start.md", "python")
  names: dict = {}
  exec(block, names)
  assert names["batch"]["tokens"].shape == (8, 512)


@pytest.mark.slow
def test_what_is_learned_when_runs(place, stdlib_store):
  run(
    shlex.split(
      f"chomp-stores split {stdlib_store} --output={place / 'rest'}"
      " --held_out=data/held --fraction=0.1"
    ),
    place,
  )
  for words in commands("learning.md"):
    run(words, place)
  assert (place / "batch.npz").exists()


@pytest.mark.slow
def test_on_call_runs(place):
  for words in commands("on_call.md"):
    run(words, place)
