# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""docs/options.md is what the options say."""

import dataclasses
import pathlib
import re

import pytest

from chomp_data import row_kinds
from chomp_data import schema
from chomp_data.commands import options_page
from chomp_data.config import options
from chomp_data.reference import train_options
from chomp_data.stores import array_record

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "options.md"
COMMAND = "python -m chomp_data.commands.options_page > docs/options.md"
CLASSES = [
  *train_options.SECTIONS.values(),
  *(kind.options for kind in row_kinds.ROW_KINDS.values()),
  *(kind.fields for kind in options.KINDS.values()),
  *(kind.mix for kind in options.KINDS.values()),
  *(kind.shuffle for kind in options.KINDS.values()),
  *(kind.section for kind in options.KINDS.values() if kind.section),
  *(kind.rows for kind in options.KINDS.values() if kind.rows),
  options.SourceOptions,
  array_record.ArrayRecordOptions,
]


def test_the_page_is_up_to_date():
  assert PAGE.read_text() == options_page.page(), COMMAND


@pytest.mark.parametrize(
  "cls", dict.fromkeys(CLASSES), ids=lambda c: c.__name__
)
def test_every_option_has_a_sentence_and_stands_on_the_page(cls):
  text = " ".join(PAGE.read_text().split())
  for name, option in schema.options_of(cls).items():
    assert re.fullmatch(r"[A-Z(].* .*\.", option.sentence), name
    assert not re.search(r"seed 0\d\d|[a-z][A-Z]\w+Options", option.sentence)
    sentence, rule = (
      re.sub(r"([|*])", r"\\\1", shown)
      for shown in (option.sentence, option.rule.text)
    )
    assert f"| **`{name}`** |" in text, f"{name}: {COMMAND}"
    assert f" | {sentence} *Must be {rule}" in text, f"{name}: {COMMAND}"


def test_sentences_are_those_of_the_class_that_declares_a_field_last():
  @dataclasses.dataclass(kw_only=True)
  class Base:
    """Some options.

    Attributes:
      first: What is
        first.
      second: What is second.

    Source: nothing.
    """

    first: int = schema.option(1, schema.integer())
    second: int = schema.option(2, schema.integer())

  @dataclasses.dataclass(kw_only=True)
  class Own(Base):
    """Others.

    Attributes:
      second: Another one.
    """

  found = schema.options_of(Own)
  assert found["first"].sentence == "What is first."
  assert found["second"].sentence == "Another one."
