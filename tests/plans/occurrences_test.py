# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Parts of documents are located alike in dense and in sparse lists."""

import numpy as np
import pytest

from chomp_data.plans import occurrences


@pytest.mark.parametrize(
  "document", [[], [0, 1, 2], [0, 0, 2, 5], [3, 3], [7, 1_000], [10**12]]
)
def test_parts_of_documents_are_found_in_dense_and_sparse_lists(document):
  parts = occurrences.whole(np.asarray(document, np.int64))
  asked = np.asarray([5, 0, 2, 3, 1, 7, 2, 1_000, 9, 10**12, 8], np.int64)
  first, end = parts.of(asked)
  for number, low, high in zip(asked, first, end, strict=True):
    assert document[low:high] == [number] * document.count(number)
    assert high - low == document.count(number)
