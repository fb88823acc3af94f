# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options are declared once: flags, checks, page and identities follow."""

import dataclasses
import hashlib
import json

import pytest

from chomp_data import errors
from chomp_data.commands import options_page
from chomp_data.prepare import chats
from chomp_data.prepare import option_fields
from chomp_data.prepare import options as options_lib
from chomp_data.prepare import tokenizers
from chomp_data.prepare.reading import base
from tests import in_process

FLAGS = """
adds_bos adds_eos allow_open_turns bos_id bos_token chat_template chosen_key
column completion_key compression document_column duplicates encoding_errors
engine eos_id eos_token exclude filter format id_key ids_key input
max_document_bytes message_keys message_roles messages_key meta_default meta_key
meta_keys on_error output overwrite pad_id pad_token parse_arguments preview
prompt_key rejected_key special_token template_kwargs template_kwargs_key
text_key tiktoken_pattern tokenizer tools_key train_tokenizer turns vocab_size
weight_key workers
"""

# Digests of identities that stores of 0.1 have in their manifests.
IDENTITIES = [
  ({}, "f0f7b5064d6d519f"),
  ({"meta_key": "m"}, "b9377b34276b7557"),
  ({"meta_keys": ("a", "b"), "meta_default": ""}, "8e93f679b050136d"),
  ({"format": "array_record"}, "39bfa613671fcdde"),
  (
    {
      "on_error": "skip",
      "duplicates": "drop",
      "max_document_bytes": 9,
      "compression": "zstd",
      "chunk": 8,
      "shard_bytes": 16,
      "text_key": "t",
      "id_key": "i",
      "encoding_errors": "replace",
    },
    "0ed2af11e6f091d4",
  ),
  (
    {
      "messages_key": "m",
      "chat": chats.ChatOptions(
        template="{{ x }}", turns="each", message_keys=(("role", "from"),)
      ),
    },
    "28173c1b5615b149",
  ),
  (
    {"prompt_key": "p", "completion_key": "c", "weight_key": "w"},
    "f503dfb0453cfca4",
  ),
]
FILES = [
  base.InputFile("a.jsonl", "/d/a.jsonl", 70, 5, "jsonl", "none"),
  base.InputFile("b.parquet", "gs://b/b.parquet", 9, "17", "parquet", "none"),
]


@pytest.mark.parametrize(("changes", "digest"), IDENTITIES)
def test_identities_are_those_of_older_versions(changes, digest):
  options = options_lib.Options(("x",), "out", **changes)
  text = json.dumps(options_lib.identity(options, FILES), sort_keys=True)
  assert hashlib.sha256(text.encode()).hexdigest()[:16] == digest


def test_documents_are_read_as_parts_of_older_versions_say():
  options = options_lib.Options(("x",), "out")
  read = options.read_options(tokenizers.make_tokenizer(options.tokenizer))
  names = set(dataclasses.asdict(read))
  assert names == {
    "text_key", "id_key", "encoding_errors", "raw", "meta_key", "meta_keys",
    "meta_default", "max_document_bytes", "filter", "filter_sha256",
    "duplicates", "messages_key", "chat", "prompt_key", "completion_key",
    "weight_key", "chosen_key", "rejected_key", "ids_key", "column",
    "document_column", "vocab_size",
  }  # fmt: skip


def test_every_option_has_its_flag_and_a_sentence_on_the_page():
  page = options_page.page()
  names = []
  for section in options_lib.SECTIONS:
    for flag in option_fields.flags_of(section):
      names.append(flag.name)
      assert flag.option.sentence
      assert f"| **`--{flag.name}`** |" in page
  assert sorted(names) == FLAGS.split()


@pytest.mark.parametrize(
  ("changes", "problem"),
  [
    ({"workers": -1}, "`--workers` must be a whole number of at least 0, got"),
    (
      {"format": "csv"},
      "`--format` must be one of 'zarr', 'array_record', got",
    ),
    ({"weight_key": ""}, "`--weight_key` must not be empty, got ''. Give one."),
    (
      {"max_document_bytes": 0},
      "`--max_document_bytes` must be a whole number",
    ),
  ],
)
def test_a_value_that_a_rule_does_not_accept_names_the_flag(changes, problem):
  options = options_lib.Options((), "", **changes)
  with pytest.raises(errors.PrepareError) as caught:
    options_lib.check(options, has_output=False)
  assert problem in str(caught.value)


def test_a_preview_of_no_document_is_refused(tmp_path):
  done = in_process.run_tool("prepare", f"--input={tmp_path}", "--preview=0")
  assert done.returncode == 1
  assert "`--preview` must be a whole number of at least 1, got 0." in (
    done.stderr
  )


def test_the_identity_of_records_has_its_keys_in_the_order_of_older_stores():
  keys = list(
    options_lib.identity(
      options_lib.Options(("x",), "y", format="array_record"), []
    )
  )
  assert keys == [
    "inputs",
    "tokenizer",
    "text_key",
    "id_key",
    "encoding_errors",
    "compression",
    "chunk",
    "shard_bytes",
    "format",
  ]
