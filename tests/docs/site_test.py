# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
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
  paths = [*DOCS.glob("*.md"), *DOCS.glob("*.ipynb")]
  assert sorted(found) == sorted(path.name for path in paths)


def test_every_guide_has_an_example_and_says_its_limitations():
  config = yaml.safe_load((ROOT / "mkdocs.yml").read_text())
  (guides,) = (part["Guides"] for part in config["nav"] if "Guides" in part)
  for page in pages_of(guides):
    assert pages.blocks(page, "sh", "python"), page
    assert "\n## Limitations\n" in pages.text(page), page


def anchors_of(path: pathlib.Path) -> set[str]:
  """Returns what links may name of a page: its headings."""
  headings = re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE)
  words = (re.sub(r"[^\w\s-]", "", own.lower()).strip() for own in headings)
  return {re.sub(r"\s+", "-", own) for own in words}


def test_links_between_pages_and_to_pictures_lead_somewhere():
  for path in (ROOT / "README.md", *DOCS.glob("*.md")):
    links = re.findall(r"\]\(([^)#\s]*)(?:#([^)]*))?\)", path.read_text())
    for link, anchor in links:
      if "://" in link or link.startswith("mailto:"):
        continue
      target = (path.parent / link).resolve() if link else path
      assert target.exists(), (path.name, link)
      # A site has nothing outside of it.
      assert target.is_relative_to(path.parent), (path.name, link)
      assert not anchor or anchor in anchors_of(target), (path.name, anchor)


def test_no_power_is_read_as_a_mark_of_bold():
  for path in (ROOT / "README.md", *DOCS.glob("*.md")):
    # Between `**` and `**` all would be bold.
    prose = re.sub(r"```.*?```|`[^`]*`", "", path.read_text(), flags=re.DOTALL)
    assert not re.findall(r".{9}\d ?\*\* ?\d.{9}", prose), path.name


def test_no_page_names_the_host_of_a_package_registry():
  # In two parts, so that this file does not name them itself.
  hosts = ["pypi.org", "pythonhosted.org", "registry.npmjs.org"]
  for path in (*ROOT.glob("*.*"), *DOCS.glob("*.md"), *ROOT.glob(".ci/*")):
    if not path.is_file():
      continue
    text = path.read_text()
    assert not [host for host in hosts if host in text], path.name


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
