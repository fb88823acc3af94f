"""The input's checkpoint: a step, and what the step is a step of.

A state is JSON: schema, step, structured fingerprint, topology and a digest
over all of it. The fingerprint decides whether a state fits a run; topology
is only told, because the order of rows does not depend on it.
"""

from collections.abc import Mapping
from collections.abc import Sequence
import hashlib
import json
from typing import Any

SCHEMA = 1

_MISSING = "(absent)"


class StateError(ValueError):
  """A state that is damaged, or of another run."""


def encode(
  step: int,
  fingerprint: Mapping[str, Any],
  topology: Mapping[str, Any],
  extra: Mapping[str, Any] | None = None,
) -> bytes:
  """Returns a state.

  Args:
    step: The next step to read.
    fingerprint: What decides the run's rows, as JSON values.
    topology: Processes and workers, for people.
    extra: More fields, as JSON values: what the run has consumed.

  Returns:
    UTF-8 JSON.
  """
  record = {
    **(extra or {}),
    "schema": SCHEMA,
    "step": step,
    "fingerprint": fingerprint,
    "topology": topology,
  }
  record["digest"] = digest(record)
  return json.dumps(record, indent=2, sort_keys=True).encode()


def decode(state: bytes) -> dict[str, Any]:
  """Returns the record of a state.

  Raises:
    StateError: If it is no state, was altered, or has another schema.
  """
  try:
    record = json.loads(state.decode())
    found, step = record.pop("digest"), record["step"]
    schema = record["schema"]
  except (
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    RecursionError,
  ) as error:
    raise StateError(
      "input state must be a JSON object written by chomp_data, got"
      f" {state[:60]!r} ({error!r}). Restore from another checkpoint."
    ) from error
  if found != digest(record):
    raise StateError(
      f"input state must match its digest, got {str(found)[:16]}... for"
      f" content of digest {digest(record)[:16]}... The checkpoint was"
      " altered or damaged: restore from another one."
    )
  if schema != SCHEMA:
    raise StateError(
      f"input state must have schema {SCHEMA}, got {schema!r}. Use the"
      " version of chomp_data that wrote it."
    )
  if isinstance(step, bool) or not isinstance(step, int) or step < 0:
    raise StateError(
      f"input state's step must be a whole number of at least 0, got"
      f" {step!r}. Restore from another checkpoint."
    )
  return record


def digest(record: Mapping[str, Any]) -> str:
  """Returns the SHA-256 of a record as canonical JSON, in hex."""
  text = json.dumps(record, sort_keys=True, separators=(",", ":"))
  return hashlib.sha256(text.encode()).hexdigest()


def with_operations(
  fingerprint: Mapping[str, Any], operations: Sequence[Any]
) -> dict[str, Any]:
  """Returns the fingerprint of a run with more transforms.

  Args:
    fingerprint: The run's.
    operations: Transforms over batches. They go by class and `repr`, so one
      with options needs a `repr` that shows them (a dataclass has one).
  """
  if not operations:
    return dict(fingerprint)
  names = []
  for operation in operations:
    own = type(operation)
    shown = repr(operation)
    # Python's default repr is an address, which no other process shares.
    options = "" if shown.startswith("<") else f" {shown}"
    names.append(f"{own.__module__}.{own.__qualname__}{options}")
  return {**fingerprint, "operations": names}


def differences(
  saved: Mapping[str, Any],
  current: Mapping[str, Any],
  step: int | None = None,
) -> list[str]:
  """Lists where two fingerprints differ.

      sources.wiki.rows.alpha: state has 0.8, config has 0.5
      mix.stages.500.wiki: state has '0.5', config has '0.6'

  Args:
    saved: The state's fingerprint.
    current: The run's fingerprint.
    step: Where a mix may have another future: stages from this step on, and
      sources that no earlier stage weighs, are no difference. None compares
      all.

  Returns:
    One line a field, by dotted path; empty where they agree.
  """
  plain = [json.loads(json.dumps(record)) for record in (saved, current)]
  if step is not None:
    plain = [_past(record, step) for record in plain]
  old, new = (_flat(record) for record in plain)
  return [
    f"{path}: state has {old.get(path, _MISSING)!r}, config has"
    f" {new.get(path, _MISSING)!r}"
    for path in sorted(old.keys() | new.keys())
    if old.get(path, _MISSING) != new.get(path, _MISSING)
    or type(old.get(path)) is not type(new.get(path))
  ]


def _past(record: dict[str, Any], step: int) -> dict[str, Any]:
  """Returns a fingerprint less what only later steps depend on."""
  curriculum = record.get("buckets", {}).get("stages")
  if isinstance(curriculum, dict):
    begun = {at: own for at, own in curriculum.items() if int(at) < step}
    record = {**record, "buckets": {**record["buckets"], "stages": begun}}
  stages = record.get("mix", {}).get("stages")
  if not isinstance(stages, dict):
    return record
  stages = {at: own for at, own in stages.items() if int(at) < step}
  weighed = {name for own in stages.values() for name in own}
  sources = record.get("sources", {})
  return {
    **record,
    "mix": {**record["mix"], "stages": stages},
    "sources": {n: own for n, own in sources.items() if n in weighed},
  }


def _flat(value: Any, path: str = "") -> dict[str, Any]:
  if isinstance(value, dict) and value:
    out = {}
    for name, item in value.items():
      out.update(_flat(item, f"{path}.{name}" if path else name))
    return out
  return {path: value}
