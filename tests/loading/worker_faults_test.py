"""What goes wrong in a loader worker is told, soon and in its own words."""

import pickle
import threading
import time
import types

import grain
import numpy as np
import pytest

from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.loading import workers


class HoldsALockError(Exception):
  """Pickling it fails."""

  def __init__(self, text):
    super().__init__(text)
    self.lock = threading.Lock()


class TakesTwoError(Exception):
  """It pickles, and unpickling it fails."""

  def __init__(self, text, code):
    super().__init__(f"{text} with code {code}")


class RewordsError(Exception):
  """Survives, with other words."""

  def __init__(self, code):
    super().__init__(f"code {code}")


class Failing(grain.transforms.Map):
  """Fails in a worker, at its third batch."""

  def __init__(self, error, *args):
    self._error, self._args, self._seen = error, args, 0

  def map(self, element):
    self._seen += 1
    if self._seen > 3:
      raise self._error(*self._args)
    return element


@pytest.mark.parametrize(
  ("error", "args", "text"),
  [
    (HoldsALockError, ("a broken shard",), "a broken shard"),
    (TakesTwoError, ("a broken shard", 7), "a broken shard with code 7"),
  ],
)
def test_an_exception_that_cannot_be_pickled_arrives_soon_with_its_text(
  data, error, args, text
):
  endless = {**data, "epochs": None, "worker_count": 1, "timeout_s": 60.0}
  with pipeline.make_iterator(
    endless, operations=[Failing(error, *args)]
  ) as it:
    next(it)
    began = time.monotonic()
    with pytest.raises(feed.InputError) as caught:  # noqa: PT012
      for _ in range(10):
        next(it)
    assert time.monotonic() - began < 20
    assert it.step <= 3
  # Its type, its text, and where it was raised.
  for part in (error.__name__, text, "raise self._error"):
    assert part in str(caught.value)


@pytest.mark.parametrize(
  "error",
  [
    HoldsALockError("words"),
    TakesTwoError("words", 1),
    RewordsError("words"),
    pytest.param(
      type("Local", (Exception,), {"__module__": "nowhere"})("words"),
      id="of no module",
    ),
  ],
)
def test_errors_that_do_not_survive_pickling_are_told_as_text(error):
  with pytest.raises(feed.InputError) as caught, workers.errors_arrive():
    raise error
  assert "words" in str(pickle.loads(pickle.dumps(caught.value)))
  assert type(error).__name__ in str(caught.value)


def test_errors_that_survive_pickling_stay_what_they_are():
  for error in (KeyError("name"), FileNotFoundError(2, "no", "x.bin")):
    with pytest.raises(type(error)) as caught, workers.errors_arrive():
      raise error
    assert caught.value is error


def test_a_batch_that_cannot_be_pickled_is_an_error_and_not_dropped():
  def records():
    for value in (np.zeros(2), "a word", (x for x in "ab"), np.zeros(2)):
      yield types.SimpleNamespace(data={"field": value})

  batches = workers.LastOperation()(records())
  next(batches)
  assert next(batches).data == {"field": "a word"}
  with pytest.raises(TypeError, match="generator"):
    next(batches)
