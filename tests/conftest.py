# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Profiles, one compile cache, and a corpus of real text.

`make test` leaves tests with the mark `slow` to `make test-slow`; `make
test-all` also runs each property (tests/laws.py) on more examples.
"""

import gc
import itertools
import os
import sysconfig
import tempfile

import hypothesis
import pytest

from tests import in_process

for name, once, derandomize in (
  ("quick", 25, True),
  ("default", 100, True),
  ("full", 1_000, True),
  ("nightly", 5_000, False),
):
  hypothesis.settings.register_profile(
    name,
    deadline=None,
    derandomize=derandomize,
    print_blob=True,
    max_examples=once,
  )
hypothesis.settings.load_profile("default")

# A test need not compile what another one did, nor a process that it starts.
# One directory a worker: JAX writes entries in place, and locks only a cache
# of a bounded size.
_COMPILED = tempfile.TemporaryDirectory(prefix="compiled-")
os.environ["JAX_COMPILATION_CACHE_DIR"] = _COMPILED.name
os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
# Tiny models take longer to optimise than to run: half of what compiling costs.
os.environ.setdefault("JAX_DISABLE_MOST_OPTIMIZATIONS", "1")


def pytest_collection_finish():
  """What is imported and collected is not searched for garbage again."""
  gc.collect()
  gc.freeze()


@pytest.fixture(scope="session", autouse=True)
def workers_read():
  """A test that asks for workers gets them where they cannot help, too."""
  # Not above: what is set there is for JAX, which reads it as it is imported.
  from chomp_data.loading import workers

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(workers, "may_help", lambda *_: True)
    yield


@pytest.fixture(scope="session", autouse=True)
def nothing_outlives_a_power_cut():
  """Writing to the disk at once takes most of the time of small stores."""
  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(os, "fsync", lambda descriptor: None)
    yield


@pytest.fixture(scope="session", autouse=True)
def mixes_are_computed_in_short_blocks():
  """The first batch of a mix computes a block: of 4,096 rows, 0.3 s of CPU."""
  from chomp_data.mix import interleave

  with pytest.MonkeyPatch.context() as patch:
    patch.setattr(interleave, "BLOCK", 256)
    yield


@pytest.fixture(scope="session", autouse=True)
def loops_are_loaded():
  """Else each test with a cache directory of its own compiles them again."""
  from chomp_data.kernels import compiled

  compiled.wait()


@pytest.fixture(scope="session")
def stdlib_store(tmp_path_factory):
  """A store of the top of the standard library's sources, as a path."""
  output = tmp_path_factory.mktemp("stdlib") / "store"
  stdlib = sysconfig.get_path("stdlib")
  in_process.run_tool(
    "prepare",
    f"--input={stdlib}/*.py",
    f"--output={output}",
    "--tokenizer=byte",
    "--workers=0",
    check=True,
  )
  return str(output)


@pytest.fixture(scope="module")
def make_store(tmp_path_factory):
  """Writes documents of given tokens as a real store; BOS is 2."""
  from chomp_data.testing import stores as testing_stores

  root, number = tmp_path_factory.mktemp("stores"), itertools.count()

  def build(documents, **changes):
    return testing_stores.make_store(
      root / str(next(number)), documents, **{"bos_id": 2, **changes}
    )

  with pytest.MonkeyPatch.context() as patch:
    patch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))
    yield build
