# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Options are declared once: flags, checks, page and identities follow."""

import copy
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
  read = options.read_options(tokenizers.make_tokenizer(options.tokenizer_spec))
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


PAIRS = {"chosen_key": "c", "rejected_key": "r"}
NO_FIT = [
  ({"workers": -1}, "`--workers` must be a whole number of at least 0, got"),
  ({"format": "csv"}, "`--format` must be one of 'zarr', 'array_record', got"),
  ({"weight_key": ""}, "`--weight_key` must not be empty, got ''. Give one."),
  ({"max_document_bytes": 0}, "`--max_document_bytes` must be a whole number"),
  ({"duplicates": "maybe"}, "`--duplicates` must be one of"),
  ({"engine": "spark"}, "'pool', 'beam', got 'spark'"),
  ({"meta_key": ""}, "--meta_key` must not be empty"),
  ({"meta_default": ""}, "--meta_default` must not be given without"),
  ({"meta_keys": ("a", "a")}, "`--meta_keys` must be distinct.*'a,a'"),
  ({"meta_keys": ("a", "")}, "`--meta_keys` must be distinct.*'a,'"),
  ({"meta_keys": ("a",), "meta_key": "b"}, "must not both be given.*'b'"),
  ({"meta_keys": ("a",), "format": "array_record"}, "`--meta_keys` must not"),
  ({"weight_key": "w", "format": "array_record"}, "`--weight_key` must not be"),
  ({"chosen_key": "c"}, "`--chosen_key` and `--rejected_key` must be"),
  ({**PAIRS, "messages_key": "m"}, "`--messages_key` must not be given"),
  ({**PAIRS, "completion_key": "c"}, "`--completion_key` must not be given"),
  (
    {**PAIRS, "chat": chats.ChatOptions(turns="each")},
    "--turns` must be left",
  ),
  (
    {**PAIRS, "format": "array_record"},
    "--chosen_key` must not be given",
  ),
  ({"prompt_key": "q"}, "--completion_key` must be given together"),
  (
    {"messages_key": "m", "prompt_key": "q", "completion_key": "a"},
    "must not be given with --messages_key",
  ),
  (
    {"chat": chats.ChatOptions(turns="each")},
    "--turns` must be given with --messages",
  ),
  (
    {"messages_key": "m", "chat": chats.ChatOptions(parse_arguments=True)},
    "--chat_template",
  ),
  (
    {"messages_key": "m", "chat": chats.ChatOptions(template_kwargs="1")},
    "JSON object",
  ),
  ({"column": ("q:uint8",)}, "--column` must not be given without"),
  ({"ids_key": "i", "column": ("q",)}, "NAME:DTYPE"),
  (
    {"ids_key": "i", "tokenizer": tokenizers.TokenizerSpec(adds_eos=True)},
    "--adds_eos` must not be given without --ids_key and --vocab_size",
  ),
  ({"ids_key": "i", "column": ("q:int64",)}, "int64"),
  ({"ids_key": "i", "column": ("tokens:uint8",)}, "field of batches"),
  ({"ids_key": "i", "column": ("q:uint8", "q:int8")}, "once"),
  ({"document_column": ("q:uint8[2]",)}, "per"),
  ({"ids_key": "i", "messages_key": "m"}, "--messages_key` must not"),
  ({"ids_key": "i"}, "`--tokenizer` or `--vocab_size` must be given"),
  (
    {"document_column": ("q:uint8",), "format": "array_record"},
    "--format` must be zarr with columns",
  ),
]


@pytest.mark.parametrize(("changes", "match"), NO_FIT)
def test_options_that_do_not_fit_are_named(changes, match):
  options = options_lib.Options((), "", **changes)
  with pytest.raises(errors.PrepareError, match=match):
    options_lib.check(options, has_output=False)


def test_a_copy_of_options_has_no_tokenizer_either():
  options = copy.deepcopy(options_lib.Options((), "", ids_key="i"))
  with pytest.raises(errors.PrepareError, match="got neither"):
    options_lib.check(options, has_output=False)
