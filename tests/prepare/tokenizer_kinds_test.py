# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers of every kind: found by content, kept in stores, covering text."""

import base64
import hashlib
import io
import sys

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest
import tokenizers as hf

from chomp_data import errors
from chomp_data import stores
from chomp_data.prepare import tokenizers
from chomp_data.prepare.tokenizers import kinds
from chomp_data.prepare.tokenizers import tiktoken_ranks
from chomp_data.testing import stores as testing_stores
from tests import laws
from tests.prepare import corpora

TEXTS = [
  "the cat sat on the mat\n", "a cat and a hat\n\n", "le chat était là",
  "日本語 🎉 the hat",
]  # fmt: skip
PATTERN = r"\s?\p{L}+|\p{N}+|\s+|[^\s\p{L}\p{N}]+"


def make_sentencepiece():
  sentencepiece = pytest.importorskip("sentencepiece")
  model = io.BytesIO()
  sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(TEXTS * 3),
    model_writer=model,
    vocab_size=400,
    model_type="bpe",
    byte_fallback=True,
    pad_id=3,
    character_coverage=1.0,
    hard_vocab_limit=False,
    normalization_rule_name="identity",
    remove_extra_whitespaces=False,
    minloglevel=2,
  )
  return model.getvalue()


def rank_file(*more):
  """Ranks of the bytes, as they are, then of some tokens."""
  tokens = [bytes([b]) for b in range(256)] + [b"th", b"the", b" c", b"at"]
  lines = [
    base64.b64encode(token) + b" %d\n" % rank
    for rank, token in enumerate([*tokens, *more])
  ]
  return b"".join(lines)


def make(kind, folder, **changes):
  """A tokenizer of a kind, from a file whose name says nothing."""
  if kind == "byte":
    return tokenizers.make_tokenizer(tokenizers.TokenizerSpec())
  path = folder / f"{kind}.bin"
  if kind == "huggingface":
    path.write_bytes(corpora.bpe(TEXTS).to_str().encode())
  elif kind == "sentencepiece":
    path.write_bytes(make_sentencepiece())
  else:
    pytest.importorskip("tiktoken")
    path.write_bytes(rank_file())
    changes = {
      "pattern": PATTERN,
      "special_tokens": ("<pad>", "</s>", "<s>=300"),
      **changes,
    }
  return tokenizers.make_tokenizer(
    tokenizers.TokenizerSpec(str(path), **changes)
  )


KINDS = ("byte", "huggingface", "sentencepiece", "tiktoken")


@pytest.fixture(scope="module", params=KINDS)
def tokenizer(request, tmp_path_factory):
  return make(request.param, tmp_path_factory.mktemp("tokenizer"))


def split(encoded):
  return np.split(encoded.tokens, np.cumsum(encoded.lengths)[:-1])


def test_every_kind_is_known_to_stores():
  assert set(kinds.FILES) | {"byte", "custom"} == set(
    stores.vocabulary.TOKENIZER_FILES
  )


def test_texts_come_back(tokenizer):
  texts = [*TEXTS, "", "x"]
  encoded = tokenizer.encode_batch(texts)
  assert encoded.lengths.dtype == np.int64
  own = np.uint8 if tokenizer.takes_bytes else np.uint16
  assert encoded.tokens.dtype == own
  assert encoded.tokens.max() < tokenizer.info.vocab_size
  for text, ids in zip(texts, split(encoded), strict=True):
    assert tokenizer.decode(ids) == text
  nothing = tokenizer.encode_batch([])
  assert (len(nothing.tokens), len(nothing.lengths)) == (0, 0)


def test_special_tokens_have_ids_and_names(tokenizer):
  info = tokenizer.info
  special = [info.bos_id, info.eos_id, info.pad_id]
  assert len({*special, None}) == 4
  first = tokenizer.encode_batch(["cat"]).tokens
  text = tokenizer.decode(np.asarray([special[0], *first, *special[1:]]))
  assert text in ("<bos>cat<eos><pad>", "<s>cat</s><pad>")


def test_text_spells_no_special_token_of_plain_documents(tokenizer):
  if tokenizer.info.kind == "huggingface":
    pytest.skip("such a file says itself what it makes of such text")
  encoded = tokenizer.encode_batch(["a</s>b<pad>"])
  assert tokenizer.decode(encoded.tokens) == "a</s>b<pad>"
  special = {tokenizer.info.eos_id, tokenizer.info.pad_id}
  assert not special & set(encoded.tokens.tolist())


@laws.examples(
  60, suppress_health_check=[hypothesis.HealthCheck.function_scoped_fixture]
)
@hypothesis.given(
  text=st.lists(st.sampled_from([*"the cat\né日🎉 <", "</s>", "<s>"])).map(
    "".join
  )
)
def test_tokens_cover_all_characters_in_order(tokenizer, text):
  (covered,) = tokenizer.encode_covered([text])
  tokens, begins, ends = covered
  assert len(tokens) == len(begins) == len(ends)
  assert (begins <= ends).all()
  assert (np.diff(begins) >= 0).all()
  assert (np.diff(ends) >= 0).all()
  seen = np.zeros(len(text), bool)
  for begin, end in zip(begins, ends, strict=True):
    seen[begin:end] = True
  missing = {text[i] for i in np.flatnonzero(~seen)}
  # Some kinds say of a token without its space, or of a space alone, nothing.
  assert missing <= {" "}
  if "<s>" not in text and "</s>" not in text:
    assert tokens.tolist() == tokenizer.encode_batch([text]).tokens.tolist()


def test_templates_spell_special_tokens(tokenizer):
  if tokenizer.info.kind == "byte":
    pytest.skip("no text spells them")
  text = "<s>the cat</s>a"
  (covered,) = tokenizer.encode_covered([text])
  ids = covered.tokens.tolist()
  for name, number in (
    ("<s>", tokenizer.info.bos_id), ("</s>", tokenizer.info.eos_id),
  ):  # fmt: skip
    place = ids.index(number)
    assert text[covered.begins[place] : covered.ends[place]] == name
  assert ids[-1] == tokenizer.encode_batch(["a"]).tokens[-1]


def test_threads_change_nothing(tokenizer, monkeypatch):
  texts = [text * n for n in range(1, 20) for text in TEXTS]
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", "false")
  alone = tokenizer.encode_batch(texts)
  monkeypatch.setenv("TOKENIZERS_PARALLELISM", "true")
  both = tokenizer.encode_batch(texts)
  np.testing.assert_array_equal(alone.tokens, both.tokens)
  np.testing.assert_array_equal(alone.lengths, both.lengths)


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_alone_decodes(tmp_path, corpus, prepare, kind):
  made = make(kind, tmp_path)
  spec = tokenizers.TokenizerSpec()
  if kind == "tiktoken":
    spec = tokenizers.TokenizerSpec(
      str(tmp_path / "tiktoken.bin"),
      pattern=PATTERN,
      special_tokens=("<|end|>",),
      eos_token="<|end|>",
    )
  elif kind != "byte":
    spec = tokenizers.TokenizerSpec(str(tmp_path / f"{kind}.bin"))
  store, _ = prepare(corpus, tokenizer=spec)
  for file in tmp_path.glob("*.bin"):
    file.unlink()
  store = stores.open_store(store.path)
  loaded = tokenizers.load_tokenizer(store)
  assert loaded.info == store.opened.tokenizer
  assert loaded.info.kind == kind == made.info.kind
  if kind == "tiktoken":
    assert loaded.info.eos_id == 260
    # What the store keeps is a tokenizer that needs nothing told.
    kept = tmp_path / "out" / "tokenizer.tiktoken.json"
    again = tokenizers.make_tokenizer(
      tokenizers.TokenizerSpec(str(kept), eos_token="<|end|>")
    )
    assert again.info == loaded.info
  texts = {
    store.document_ids([i])[0]: loaded.decode(stores.read_document(store, i))
    for i in range(store.num_documents)
  }
  assert texts["deep/er/c.txt"] == "日本語 🎉"


def test_ranks_are_read_as_their_makers_read_them(tmp_path, monkeypatch):
  tiktoken = pytest.importorskip("tiktoken")
  load = pytest.importorskip("tiktoken.load")
  monkeypatch.setenv("TIKTOKEN_CACHE_DIR", "")
  made = make("tiktoken", tmp_path)
  theirs = tiktoken.Encoding(
    "theirs",
    pat_str=PATTERN,
    mergeable_ranks=load.load_tiktoken_bpe(str(tmp_path / "tiktoken.bin")),
    special_tokens={"<pad>": 260, "</s>": 261, "<s>": 300},
  )
  for text in TEXTS:
    ids = made.encode_batch([text]).tokens.tolist()
    assert ids == theirs.encode_ordinary(text)
  assert (made.info.pad_id, made.info.eos_id, made.info.bos_id) == (
    260, 261, 300,
  )  # fmt: skip
  assert made.info.vocab_size == 301


def test_known_ranks_are_those_of_their_makers(monkeypatch):
  public = pytest.importorskip("tiktoken_ext.openai_public")
  names = ("r50k_base", "p50k_base", "cl100k_base", "o200k_base")
  theirs = {}
  for name in names:
    hashes = []

    def load(path, expected_hash=None, hashes=hashes):
      hashes.append(expected_hash)
      return {}

    monkeypatch.setattr(public, "load_tiktoken_bpe", load)
    found = getattr(public, name)()
    theirs[hashes[0]] = (found["pat_str"], found["special_tokens"])
  ours = {
    digest: (tiktoken_ranks.PATTERNS[name], special)
    for digest, (name, special) in tiktoken_ranks.KNOWN.items()
  }
  assert ours == theirs


def test_known_ranks_need_nothing_told(tmp_path, monkeypatch):
  pytest.importorskip("tiktoken")
  path = tmp_path / "known"
  path.write_bytes(rank_file())
  digest = hashlib.sha256(rank_file()).hexdigest()
  known = ("cl100k_base", {"<|endoftext|>": 300})
  monkeypatch.setitem(tiktoken_ranks.KNOWN, digest, known)
  made = tokenizers.make_tokenizer(
    tokenizers.TokenizerSpec(str(path), special_tokens=("<|pad|>",))
  )
  assert (made.info.eos_id, made.info.pad_id) == (300, 301)


@pytest.mark.parametrize(
  ("content", "changes", "match"),
  [
    (rank_file(), {}, r"tiktoken_pattern.*cl100k_base"),
    (rank_file(), {"pattern": "("}, r"tiktoken_pattern.*'\('"),
    (rank_file() + b"!!! 3\n", {"pattern": PATTERN}, ":261 must be a token"),
    (rank_file()[:100], {"pattern": PATTERN}, "must rank each byte"),
    (rank_file() + b"eHh4 4\n", {"pattern": PATTERN}, "a rank twice"),
    (
      rank_file(),
      {"pattern": PATTERN, "special_tokens": ("<a>=3",)},
      "special_token.*'<a>'",
    ),
    (
      rank_file(),
      {"pattern": PATTERN, "eos_token": "<b>"},
      "eos_token.*'<b>'",
    ),
    (b'{"format": "chomp_data tiktoken", "pa', {}, "whole tokenizer file"),
    (b"\nno model", {}, "SentencePiece"),
    (b"PK\x03\x04", {}, r"begins with b'PK"),
    (b"{}", {"pattern": "x"}, "tiktoken_pattern.*tokenizer.json"),
  ],
)
def test_what_is_wrong_with_a_file_is_said(tmp_path, content, changes, match):
  pytest.importorskip("tiktoken")
  pytest.importorskip("sentencepiece")
  path = tmp_path / "file"
  path.write_bytes(content)
  with pytest.raises(errors.PrepareError, match=match):
    tokenizers.make_tokenizer(tokenizers.TokenizerSpec(str(path), **changes))


@pytest.mark.parametrize("package", ["sentencepiece", "tiktoken"])
def test_a_missing_package_is_named_with_its_extra(
  tmp_path, monkeypatch, package
):
  path = tmp_path / "file"
  path.write_bytes(
    b"\nmodel" if package == "sentencepiece" else rank_file(b"missing")
  )
  monkeypatch.setitem(sys.modules, package, None)
  with pytest.raises(errors.PrepareError, match=rf"chomp_data\[{package}\]"):
    tokenizers.make_tokenizer(
      tokenizers.TokenizerSpec(str(path), pattern=PATTERN)
    )


def test_a_file_that_changes_is_read_again(tmp_path):
  path = tmp_path / "file"
  path.write_bytes(corpora.bpe(TEXTS).to_str().encode())
  spec = tokenizers.TokenizerSpec(str(path))
  first = tokenizers.make_tokenizer(spec)
  assert tokenizers.make_tokenizer(spec) is first
  path.write_bytes(path.read_bytes() + b"\n")
  assert tokenizers.make_tokenizer(spec).info.sha256 != first.info.sha256


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


def test_special_bytes_have_names():
  tokenizer = tokenizers.make_tokenizer(tokenizers.TokenizerSpec())
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
