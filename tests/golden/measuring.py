# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What is kept of a config: fingerprint, batches, accounts, states."""

from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Mapping
import hashlib
import itertools
import json
import pathlib
from typing import Any

import numpy as np

import chomp_data
from tests.golden import cases as cases_lib

HERE = pathlib.Path(__file__).parent

# Every step up to here, and so many around the middle and the end.
_FIRST = 10
_AROUND = 3


def digest(batch: Mapping[str, Any]) -> str:
  """Returns a hash of every field's name, dtype, shape and bytes."""
  found = hashlib.sha256()
  for name in sorted(batch):
    value = np.asarray(batch[name])
    found.update(f"{name}:{value.dtype.str}:{value.shape};".encode())
    found.update(value.tobytes())
  return found.hexdigest()[:16]


def steps_of(num_steps: int | None, far: Iterable[int]) -> list[int]:
  """Returns the steps of a run that are looked at."""
  if num_steps is None:
    return sorted({*range(_FIRST), *far})
  middle = num_steps // 2
  found = {
    *range(_FIRST),
    *(num_steps * i // 7 for i in range(7)),
    *range(middle - _AROUND, middle + _AROUND),
    *range(num_steps - _AROUND, num_steps),
  }
  return sorted(step for step in found if 0 <= step < num_steps)


def batches(pipe: chomp_data.Pipeline, far: Iterable[int]) -> dict[str, Any]:
  """Returns fingerprint, steps and batches of a run."""
  steps = steps_of(pipe.num_steps, far)
  return {
    "num_steps": pipe.num_steps,
    "fingerprint": as_json(pipe.fingerprint),
    "batches": {str(step): digest(pipe.batch(step)) for step in steps},
  }


def accounts(pipe: chomp_data.Pipeline) -> dict[str, Any]:
  """Returns what checkpoints keep before a few steps, the end among them."""
  last = 40 if pipe.num_steps is None else pipe.num_steps
  return {
    str(step): as_json(pipe.accounts.record(step))
    for step in sorted({0, last // 3, last})
  }


def states(pipe: chomp_data.Pipeline, steps: Iterable[int]) -> dict[str, Any]:
  """Returns states, and the two batches that an iterator gives after each."""
  out = {}
  for step in steps:
    with chomp_data.make_iterator(pipe) as iterator:
      for _ in range(step):
        next(iterator)
      state = iterator.get_state().decode()
      out[str(step)] = {"state": state, "following": following(iterator)}
  return out


def following(iterator: Iterator[Mapping[str, Any]]) -> list[str]:
  """Returns the hashes of the next two batches, as they are on devices."""
  return [digest(batch) for batch in itertools.islice(iterator, 2)]


def resumed(data: Any, state: Any) -> dict[str, Any]:
  """Returns `config.data` of a run that starts from a `resume_state`."""
  return {**data, "mix": {**data["mix"], "resume_state": state}}


def measure(case: cases_lib.Case, root: pathlib.Path) -> dict[str, Any]:
  """Returns all that is kept of a case, over corpora under a directory."""
  data = case.at(root)
  pipe = chomp_data.build(data)
  out = {**batches(pipe, case.far), "accounts": accounts(pipe)}
  if case.states:
    out["states"] = states(pipe, case.states)
  if case.resumed is not None:
    state = pipe.accounts.resume_state(case.resumed)
    out["resumed"] = {
      "resume_state": as_json(state),
      **batches(chomp_data.build(resumed(data, state)), case.far),
    }
  return out


def path_of(name: str) -> pathlib.Path:
  """Returns the golden file of a case."""
  return HERE / "expected" / f"{name}.json"


def golden(name: str) -> dict[str, Any]:
  """Returns what is kept of a case."""
  return json.loads(path_of(name).read_text())


def as_json(value: Any) -> Any:
  """Returns a value as JSON gives it back."""
  return json.loads(json.dumps(value))


def missing(old: Any, new: Any, path: str = "") -> list[str]:
  """Lists what an old record has and a new one lacks, or says otherwise.

      old {"a": 1, "b": {"c": 2}}, new {"a": 3, "b": {"c": 2, "d": 4}}
      -> ["a: was 1, is 3"]

  What only the new one has is no difference: later code may say more.
  """
  if isinstance(old, dict) and isinstance(new, dict):
    return [
      line
      for name, own in old.items()
      for line in missing(own, new.get(name, "(absent)"), f"{path}.{name}")
    ]
  if isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
    return [
      line
      for i, (own, other) in enumerate(zip(old, new, strict=True))
      for line in missing(own, other, f"{path}[{i}]")
    ]
  same = old == new and type(old) is type(new)
  return [] if same else [f"{path.lstrip('.')}: was {old!r}, is {new!r}"]
