# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The page of the public API lists all of it, in the code's own words."""

import importlib
import pkgutil
import subprocess
import sys

import chomp_data
from chomp_data import errors
from tests.docs import api_page


def test_the_page_is_what_the_docstrings_say():
  assert api_page.PAGE.read_text() == api_page.page(), (
    "run python -m tests.docs.api_page"
  )


def test_the_page_lists_all_that_is_public():
  listed = [name for _, _, names in api_page.SECTIONS for name in names]
  assert len(listed) == len(set(listed))
  assert {*listed, "__version__"} == set(chomp_data.__all__)
  assert "| |\n" not in api_page.page().replace("| | |\n", "")


def test_every_public_name_is_there_and_none_is_a_module():
  rooms = {module.name for module in pkgutil.iter_modules(chomp_data.__path__)}
  assert not rooms & set(chomp_data.__all__)
  assert set(chomp_data.__all__) <= set(dir(chomp_data))
  for name in chomp_data.__all__:
    assert getattr(chomp_data, name) is not None


def test_every_error_is_one_wherever_it_is_imported_from():
  for place, name in (
    ("schema", "ConfigError"),
    ("stores", "StoreError"),
    ("loading.state", "StateError"),
    ("loading.feed", "InputError"),
  ):
    module = importlib.import_module(f"chomp_data.{place}")
    assert getattr(module, name) is getattr(errors, name)


def test_a_row_source_is_imported_without_jax():
  code = (
    "import sys, chomp_data; chomp_data.SpliceSource, chomp_data.StoreError;"
    "assert not {'jax', 'ml_collections'} & set(sys.modules)"
  )
  subprocess.run([sys.executable, "-c", code], check=True)
