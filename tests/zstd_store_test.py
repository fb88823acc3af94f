# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The config of a store in zstd: read through a cache, the same batches."""

import pytest

from chomp_data import pipeline
from chomp_data.commands import stores as command
from chomp_data.stores.zarr import chunked_array
from chomp_data.testing import batch_hashes
from configs import zstd_store


@pytest.fixture(scope="module")
def compressed(stdlib_store, tmp_path_factory):
  output = tmp_path_factory.mktemp("zstd") / "store"
  with pytest.raises(SystemExit) as exit_:
    command.main(["convert", stdlib_store, "--to=zstd", f"--output={output}"])
  assert not exit_.value.code
  return str(output)


def test_batches_are_those_of_the_store_that_is_not_compressed(
  stdlib_store, compressed
):
  found = []
  for path in (stdlib_store, compressed):
    config = zstd_store.get_config()
    config.data.sources.stdlib.store = path
    pipe = pipeline.build(config.data)
    found.append(
      (
        pipe.fingerprint,
        [batch_hashes.batch_sha256(pipe.batch(step)) for step in range(20)],
      )
    )
  tokens = pipe.sources["stdlib"].store.opened.tokens
  assert isinstance(tokens, chunked_array.ChunkedArray)
  assert tokens.counters.chunks_fetched
  assert found[0] == found[1]
