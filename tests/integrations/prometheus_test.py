# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Metrics for Prometheus are the iterator's own numbers, over real HTTP."""

import collections
import dataclasses
import socket
import time
import urllib.error
import urllib.request

import grain
from prometheus_client import parser
import pytest

from chomp_data import errors
from chomp_data import iterators
from chomp_data.integrations import prometheus
from chomp_data.testing import stores as testing_stores


def config(store, **data):
  return {
    "seq_len": 16,
    "global_batch_size": 4,
    "seed": 1,
    "sources": {"text": {"store": str(store), "rows": {"kind": "sequential"}}},
    **data,
  }


def scraped(port):
  url = f"http://127.0.0.1:{port}/metrics"
  with urllib.request.urlopen(url, timeout=10) as answer:
    text = answer.read().decode()
  return {
    (sample.name, sample.labels.get("source")): sample.value
    for family in parser.text_string_to_metric_families(text)
    for sample in family.samples
    if sample.labels["process"] == "0" and "created" not in sample.name
  }


@dataclasses.dataclass(frozen=True)
class Late(grain.transforms.Map):
  """Batches that come late."""

  def map(self, batch):
    time.sleep(0.08)
    return batch


@pytest.fixture
def store(tmp_path):
  testing_stores.make_store(tmp_path / "store", [[7] * 50] * 40)
  return tmp_path / "store"


def test_what_is_scraped_is_what_the_iterator_did(store):
  with iterators.make_iterator(config(store)) as iterator:
    metrics = prometheus.Metrics(iterator)
    port = metrics.serve(0, "127.0.0.1")
    before = scraped(port)
    for _ in range(5):
      next(iterator)
    metrics.tell(
      {"train/loss": 1.5}, {"text": {"tokens": 9, "loss": 0.5, "epochs": None}}
    )
    found = scraped(port)
    reads = iterator.reads["text"]
    metrics.close()
    # The thread that reads ahead may have counted more by now.
    assert 20 <= found["chomp_data_rows_read_total", "text"] <= reads.examples
  assert before["chomp_data_step", None] == 0
  assert before["chomp_data_rows_read_total", "text"] == 0
  assert found["chomp_data_step", None] == 5
  assert found["chomp_data_batches_total", None] == 5
  assert found["chomp_data_failures_total", None] == 0
  assert found["chomp_data_wait_seconds_total", None] > 0
  assert found["chomp_data_train_loss", None] == 1.5
  assert found["chomp_data_source_tokens", "text"] == 9
  assert found["chomp_data_source_loss", "text"] == 0.5
  assert ("chomp_data_source_epochs", "text") not in found
  with pytest.raises((ConnectionError, urllib.error.URLError)):
    scraped(port)


def test_batches_that_come_late_are_stalls_and_the_first_is_none(store):
  data = config(store, prefetch=1)
  with iterators.make_iterator(data, operations=[Late()]) as iterator:
    next(iterator)
    # That the first batch is waited for is no stall.
    assert iterator.waits.stalls == 0
    for _ in range(9):
      next(iterator)
    assert 5 <= iterator.waits.stalls <= 9
    assert iterator.waits.seconds >= 0.5


def test_what_cannot_be_read_counts_as_a_failure(store):
  with iterators.make_iterator(config(store)) as iterator:
    next(iterator)
    for file in (store / "tokens" / "c").iterdir():
      # In place: a mapped file that is cut under its reader is a signal.
      with file.open("r+b") as own:
        own.write(b"\1" * file.stat().st_size)
    with pytest.raises(errors.StoreError):
      collections.deque(iterator, maxlen=0)
    assert iterator.waits.failures == 1


def test_a_port_that_is_taken_is_one_clear_error(store):
  with socket.create_server(("127.0.0.1", 0)) as taken:
    port = taken.getsockname()[1]
    metrics = prometheus.Metrics(iterators.make_iterator(config(store)))
    with pytest.raises(errors.InputError, match=f"must be free .*{port}"):
      metrics.serve(port, "127.0.0.1")
