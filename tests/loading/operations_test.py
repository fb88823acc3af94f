# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Names of transforms in fingerprints, and those of earlier versions."""

import dataclasses
import functools
import json

import grain
import pytest

from chomp_data import errors
from chomp_data import iterators
from chomp_data.loading import operations
from chomp_data.loading import state as state_lib


def doubled(value):
  return 2 * value


@dataclasses.dataclass(frozen=True)
class Scale(grain.transforms.Map):
  by: int = 1
  how: object = None
  seen: list = dataclasses.field(default_factory=list, compare=False)

  def map(self, element):
    return element


class Plain(grain.transforms.Map):
  def map(self, element):
    return element


class Shown(Plain):
  def __repr__(self):
    return "shown 3"


class Told(Plain):
  def __init__(self, size):
    self.fingerprint = {"size": size, "at": [1, 2]}


def test_a_fingerprint_that_is_no_json_is_refused():
  with pytest.raises(
    errors.ConfigError, match=r"`Told\.fingerprint` must be of JSON values"
  ):
    operations.fingerprint_of(Told(object()))


class Hidden(Plain):
  def __init__(self, size=1):
    self.size = size


class Slotted(Plain):
  __slots__ = ("size",)

  def __init__(self):
    self.size = 1


class Passing(Plain):
  """Its own `repr` hands on what it holds."""

  def __init__(self, held):
    self.held = held

  def __repr__(self):
    return f"passing {self.held}"


@pytest.mark.parametrize(
  ("operation", "name"),
  [
    (Hidden(), "Hidden"),
    (Slotted(), "Slotted"),
    (Scale(2, Hidden()), "Scale"),
    (Scale(2, [Hidden(), 3]), "Scale"),
    (Scale(2, {"by": (Hidden(),)}), "Scale"),
    (Scale(2, functools.partial(doubled, Hidden())), "Scale"),
    (Scale(2, Hidden().map), "Scale"),
    (Passing(Hidden()), "Passing"),
  ],
)
def test_options_that_only_pythons_own_repr_would_tell_are_refused(
  data, operation, name
):
  with pytest.raises(
    errors.ConfigError,
    match=rf"`{name}` must tell its options, got .* object at 0x.*"
    r"dataclass.*`__repr__`.*`fingerprint`",
  ):
    operations.fingerprint_of(operation)
  with pytest.raises(errors.ConfigError, match="must tell its options"):
    iterators.make_iterator(data, operations=[operation])


MOVED = type("Scale", (Scale,), {"__module__": "elsewhere"})
MOVED.__qualname__ = "Scale"


@pytest.mark.parametrize(
  ("operation", "told"),
  [
    (Scale(2), "Scale(by=2, how=None)"),
    (Plain(), "Plain"),
    (Shown(), "Shown shown 3"),
    (Told(8), 'Told {"at": [1, 2], "size": 8}'),
    # Functions go without an address, and what is not compared is not told.
    (Scale(2, doubled), "Scale(by=2, how=<function doubled>)"),
    (Scale(2, seen=[1]), "Scale(by=2, how=None)"),
    (
      Scale(2, functools.partial(doubled, 3)),
      "Scale(by=2, how=functools.partial(<function doubled>, 3))",
    ),
    (
      Passing(Scale(3)),
      "Passing passing Scale(by=3, how=None, seen=[])",
    ),
    (MOVED(2), "Scale(by=2, how=None)"),
  ],
)
def test_a_transform_goes_by_class_and_what_it_tells(operation, told):
  assert operations.fingerprint_of(operation) == told


def test_what_holds_nothing_hides_nothing():
  found = operations.fingerprint_of(Scale(2, Plain()))
  assert found.startswith("Scale(by=2, how=<")


@pytest.mark.parametrize(
  ("was", "now"),
  [
    ("a.b.Scale Scale(by=2)", "Scale(by=2)"),
    ("__main__.Scale Scale(by=2)", "Scale(by=2)"),
    ("a.Outer.Scale Outer.Scale(by=2)", "Outer.Scale(by=2)"),
    ("a.made.<locals>.Scale made.<locals>.Scale(by=2)",
     "made.<locals>.Scale(by=2)"),
    ("a.Plain", "Plain"),
    ("a.Shown shown 3", "Shown shown 3"),
    # It told no option then, so that any was taken.
    ("a.Scale", "Scale(by=2)"),
  ],
)  # fmt: skip
def test_names_of_earlier_versions_are_those_of_now(was, now):
  assert operations.as_now([was], [now]) == [now]


@pytest.mark.parametrize(
  ("was", "now"),
  [
    ("a.b.Scale Scale(by=2)", "Scale(by=3)"),
    ("a.b.Scale Scale(by=2)", "Scale"),
    ("a.b.Rescale Rescale(by=2)", "Scale(by=2)"),
    ("a.Shown shown 3", "Shown shown 4"),
    ("a.Plain", "Shown shown 4 a.Plain"),
    ("Scale(by=2)", "Scale(by=3)"),
  ],
)
def test_names_of_other_transforms_stay_other(was, now):
  assert operations.as_now([was], [now]) == [was]


def renamed(state, names):
  """Returns a state as an earlier version wrote it."""
  record = state_lib.decode(state)
  record["fingerprint"]["operations"] = names
  record["digest"] = state_lib.digest(record)
  return json.dumps(record).encode()


def test_a_state_of_an_earlier_version_is_restored_where_it_is_equal(data):
  def iterator(by):
    return iterators.make_iterator(
      data, operations=[Scale(by), Plain()], step=4
    )

  saved = iterator(2).get_state()
  names = ["my.transforms.Scale Scale(by=2, how=None)", "my.transforms.Plain"]
  old = renamed(saved, names)
  again = iterator(2)
  again.seek(0)
  again.set_state(old)
  assert again.step == 4
  assert again.get_state() == saved
  with pytest.raises(state_lib.StateError, match=r"operations.*by=2.*by=3"):
    iterator(3).set_state(old)
  with pytest.raises(state_lib.StateError, match=r"operations.*config has"):
    iterators.make_iterator(data).set_state(old)
