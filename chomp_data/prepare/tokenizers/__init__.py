# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Tokenizers: from text to token ids and back. Nothing is downloaded.

A kind of tokenizer is one file here and one entry in `kinds`. Documents are
encoded without special tokens: those are added when rows are read.
"""

from chomp_data.prepare.tokenizers.base import (
  all_special_texts as all_special_texts,
)
from chomp_data.prepare.tokenizers.base import Encoded as Encoded
from chomp_data.prepare.tokenizers.base import special_texts as special_texts
from chomp_data.prepare.tokenizers.base import Tokenizer as Tokenizer
from chomp_data.prepare.tokenizers.base import TokenizerSpec as TokenizerSpec
from chomp_data.prepare.tokenizers.base import (
  TokensWithOffsets as TokensWithOffsets,
)
from chomp_data.prepare.tokenizers.kinds import BYTE as BYTE
from chomp_data.prepare.tokenizers.kinds import load_tokenizer as load_tokenizer
from chomp_data.prepare.tokenizers.kinds import make_tokenizer as make_tokenizer
