# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: bytes as they are, and files of Hugging Face."""

import numpy as np
import pytest
import tokenizers as hf

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.testing import stores as testing_stores
from tests.prepare import corpora

BYTES = tokenizers.make_tokenizer(tokenizers.TokenizerSpec())
TEXTS = ["the cat sat on the mat", "a cat and a hat", "le chat était là"]


def train(path, special=("<pad>", "</s>", "<s>")):
  """Trains a tiny byte-level BPE."""
  tokenizer = corpora.bpe(TEXTS, special)
  # What models set, and documents must not meet.
  tokenizer.enable_truncation(4)
  tokenizer.enable_padding(length=50)
  if "<s>" in special:
    tokenizer.post_processor = hf.processors.TemplateProcessing(
      single="<s> $A", special_tokens=[("<s>", tokenizer.token_to_id("<s>"))]
    )
  tokenizer.save(str(path))
  return path


def split(encoded):
  """The token ids of each text."""
  return np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])


def test_special_bytes_have_names():
  tokenizer = BYTES
  ids = np.asarray([256, 104, 105, 257, 258, 258, 0xFF])
  assert tokenizer.decode(ids) == "<bos>hi<eos><pad><pad>\ufffd"
  assert tokenizer.decode(np.zeros(0, int)) == ""
  with pytest.raises(ValueError, match="got 259"):
    tokenizer.decode(np.asarray([0, 259]))


def test_a_file_encodes_whole_documents_without_special_tokens(tmp_path):
  path = train(tmp_path / "tokenizer.json")
  tokenizer = tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(path)))
  assert tokenizer.info.kind == "huggingface"
  assert (
    tokenizer.info.pad_id, tokenizer.info.eos_id, tokenizer.info.bos_id
  ) == (0, 1, 2)  # fmt: skip
  texts = [*TEXTS, "日本語 🎉", ""]
  for text, ids in zip(
    texts, split(tokenizer.encode_batch(texts)), strict=True
  ):
    assert tokenizer.decode(ids) == text
    assert ids.dtype == np.uint16
    assert not set(ids.tolist()) & {0, 1, 2}
  assert tokenizer.encode_batch(TEXTS[:1]).lengths[0] > 4


def test_special_tokens_can_be_named(tmp_path):
  path = train(tmp_path / "tokenizer.json", ["<|fill|>", "<|stop|>"])
  spec = tokenizers.TokenizerSpec(str(path))
  assert tokenizers.make_tokenizer(spec).info.pad_id is None
  spec = tokenizers.TokenizerSpec(str(path), "<|fill|>", "<|stop|>")
  info = tokenizers.make_tokenizer(spec).info
  assert (info.pad_id, info.eos_id, info.bos_id) == (0, 1, None)


def test_unknown_names_are_listed_together(tmp_path):
  path = train(tmp_path / "tokenizer.json")
  spec = tokenizers.TokenizerSpec(str(path), "<nope>", "<nada>")
  with pytest.raises(errors.PrepareError) as caught:
    tokenizers.make_tokenizer(spec)
  assert "--pad_token" in str(caught.value)
  assert "'<nada>'" in str(caught.value)


def test_the_byte_tokenizer_takes_no_names():
  with pytest.raises(errors.PrepareError, match=r"--eos_token.*'x'"):
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec(eos_token="x"))


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff", b'{"model": 3}'])
def test_what_is_no_tokenizer_is_refused(tmp_path, content):
  path = tmp_path / "tokenizer.json"
  path.write_bytes(content)
  with pytest.raises(errors.PrepareError, match=str(path)):
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(path)))
  with pytest.raises(errors.PrepareError, match="No such file"):
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec("nowhere.json"))


def test_the_vocabulary_ends_at_the_largest_id(tmp_path):
  path = tmp_path / "tokenizer.json"
  tokenizer = hf.Tokenizer(
    hf.models.WordLevel({"a": 0, "b": 70_000, "<unk>": 1}, unk_token="<unk>")
  )
  tokenizer.pre_tokenizer = hf.pre_tokenizers.Whitespace()
  tokenizer.save(str(path))
  made = tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(path)))
  assert made.info.vocab_size == 70_001
  tokens, lengths = made.encode_batch(["a b c", "b"])
  assert tokens.tolist() == [0, 70_000, 1, 70_000]
  assert lengths.tolist() == [3, 1]
  assert tokens.dtype == np.uint32


def test_an_altered_tokenizer_in_a_store_is_refused(tmp_path, corpus, prepare):
  path = train(tmp_path / "tokenizer.json")
  store, _ = prepare(corpus, tokenizer=tokenizers.TokenizerSpec(str(path)))
  file = tmp_path / "out" / "tokenizer.json"
  text = file.read_text()
  file.write_text(text.replace('"max_length": 4', '"max_length": 5'))
  assert file.read_text() != text
  with pytest.raises(stores.StoreError, match=r"tokenizer\.json"):
    tokenizers.load_tokenizer(store)


def test_a_store_without_a_tokenizer_says_so(tmp_path):
  store = testing_stores.make_store(tmp_path / "store", [[1]])
  with pytest.raises(stores.StoreError, match="'custom'"):
    tokenizers.load_tokenizer(store)


@pytest.mark.parametrize(
  ("name", "advice"),
  [
    ("gpt2", "`hf download gpt2 tokenizer.json --local-dir=gpt2`"),
    ("org/model", "--tokenizer=model/tokenizer.json"),
    ("cl100k_base", "tiktoken.get_encoding('cl100k_base')"),
    ("missing/tokenizer.json", "Correct the path; nothing is downloaded."),
  ],
)
def test_a_name_is_told_how_to_get_its_file(
  name, advice, tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  with pytest.raises(errors.PrepareError) as caught:
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec(name))
  assert repr(name) in str(caught.value)
  assert advice in str(caught.value)


def test_a_directory_with_a_tokenizer_is_told_the_file(tmp_path):
  (tmp_path / "tokenizer.json").write_text("{}")
  with pytest.raises(errors.PrepareError, match=r"--tokenizer=.*tokenizer\.js"):
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(tmp_path)))
