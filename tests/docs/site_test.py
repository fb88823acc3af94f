"""The documentation as a whole: every page is in it, what it names is there."""

import ast
import functools
import pathlib
import re

import yaml

from chomp_data import schema
from chomp_data.commands import stores
from chomp_data.config import options
from chomp_data.reference import train_options
from tests.docs import pages

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"


def pages_of(nav) -> list[str]:
  """Returns the pages of a navigation, in order."""
  if isinstance(nav, str):
    return [nav]
  values = nav.values() if isinstance(nav, dict) else nav
  return [page for value in values for page in pages_of(value)]


def test_every_page_stands_in_the_navigation_once():
  config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
  found = pages_of(config["nav"])
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


def test_every_subcommand_of_stores_is_on_its_page():
  text = (DOCS / "stores.md").read_text()
  for name in stores.COMMANDS:
    assert f"| `{name} PATH" in text


def test_options_that_pages_name_are_there():
  known = options.known({})
  own = {*known.options, *known.sections, "sources", "batch_format"}
  for page in pages.NAMES:
    for name in re.findall(r"config\.data\.(\w+)", pages.text(page)):
      assert name in own, (page, name)
    for section, name in re.findall(
      r"config\.(train|checkpoint|evaluation)\.(\w+)", pages.text(page)
    ):
      known = schema.options_of(train_options.SECTIONS[section])
      assert name in known, (page, section, name)
