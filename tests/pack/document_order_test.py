# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Orders of documents: bijections of every epoch, in windows of blocks."""

import itertools

import numpy as np
import pytest

from chomp_data.pack import document_order

KINDS = ("none", "block", "full")
EPOCHS = (0, 1, 2, 2**40)

# Epoch 1 of 11 documents in blocks of 2 and windows of 4; 10 is the tail.
GOLDEN = {
  "none": [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10],
  "block": [5, 7, 4, 6, 9, 8, 1, 0, 3, 10, 2],
  "full": [7, 3, 2, 9, 0, 8, 4, 5, 10, 1, 6],
}


def make(num_documents, blocks_per_window, block_docs, kind, key=5):
  return document_order.DocumentOrder(
    num_documents,
    window_docs=blocks_per_window * block_docs,
    block_docs=block_docs,
    kind=kind,
    key=key,
  )


def of_windows(order, windows, epoch):
  return order.documents(order.positions(np.asarray(windows)), epoch)


def whole(order, epoch):
  return of_windows(order, np.arange(order.num_windows), epoch)


def small_orders(kinds=KINDS):
  for kind, size, per_window, block in itertools.product(
    kinds, (*range(1, 16), 37), (1, 2, 3), (1, 2, 5)
  ):
    yield make(size, per_window, block, kind)


@pytest.mark.parametrize("kind", KINDS)
def test_the_order_of_a_key_never_changes(kind):
  assert whole(make(11, 2, 2, kind), 1).tolist() == GOLDEN[kind]


@pytest.mark.parametrize("kind", KINDS)
def test_every_epoch_of_every_small_corpus_is_a_bijection(kind):
  for order in small_orders([kind]):
    for epoch in EPOCHS:
      documents = whole(order, epoch)
      assert sorted(documents) == list(range(order.num_documents))


@pytest.mark.parametrize("kind", KINDS)
def test_windows_are_the_same_alone_and_together(kind):
  order = make(53, 2, 5, kind)
  parts = np.split(
    whole(order, 3), np.cumsum(order.window_sizes(np.arange(6)))[:-1]
  )
  for window in range(order.num_windows):
    alone = of_windows(make(53, 2, 5, kind), [window], 3)
    assert alone.tolist() == parts[window].tolist()
  some = np.asarray([1, 3, 5])
  together = np.concatenate([parts[w] for w in some])
  assert of_windows(order, some, 3).tolist() == together.tolist()
  assert of_windows(order, some[:0], 3).tolist() == []


def test_a_window_of_blocks_holds_whole_blocks_and_the_tail_stays_last():
  for order in small_orders(["block"]):
    block, size = order.block_docs, order.num_documents
    for epoch in EPOCHS:
      seen = []
      for window in range(order.num_windows):
        documents = of_windows(order, [window], epoch)
        numbers, counts = np.unique(documents // block, return_counts=True)
        assert (counts == np.minimum(block, size - numbers * block)).all()
        seen += numbers.tolist()
      assert sorted(seen) == list(range(order.num_blocks))
      if size % block:
        assert seen[-1] == order.num_blocks - 1


@pytest.mark.parametrize("kind", ["none", "block"])
def test_sums_over_windows_follow_from_sums_over_blocks(kind):
  random = np.random.default_rng(0)
  for order in small_orders([kind]):
    lengths = random.integers(0, 100, order.num_documents)
    block = order.block_docs
    sums = np.add.reduceat(lengths, np.arange(0, len(lengths), block))
    for epoch in EPOCHS:
      expected = [
        lengths[of_windows(order, [w], epoch)].sum()
        for w in range(order.num_windows)
      ]
      assert order.window_sums(sums, epoch).tolist() == expected


@pytest.mark.parametrize("kind", ["block", "full"])
def test_epochs_and_keys_have_orders_of_their_own(kind):
  orders = {
    tuple(whole(make(200, 4, 5, kind, key=key), epoch))
    for key in range(5)
    for epoch in range(5)
  }
  assert len(orders) == 25
