# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The input's checkpoint: a step, and what the step is a step of.

A state is JSON: schema, step, structured fingerprint, topology and a digest
over all of it. The fingerprint decides whether a state fits a run; topology
is only told, because the order of rows does not depend on it.
"""

from collections.abc import Collection
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
import dataclasses
import fractions
import functools
import hashlib
import json
from typing import Any
from typing import Self

from chomp_data import errors
from chomp_data import fingerprints
from chomp_data import schema
from chomp_data.config import edits
from chomp_data.loading import operations as operations_lib

SCHEMA = 1

# What `get_state` returns.
STATE = schema.instance(
  "bytes, as `get_state` returns them", bytes, bytearray, memoryview
)

_FIELDS = schema.sequence(schema.text())


def _changes(value: Any) -> bool | Collection[str]:
  """Returns what may differ; one field may be named without a list."""
  if isinstance(value, bool | str):
    return value
  return _FIELDS.convert(value)


# What `set_state` and the like accept of another run.
CHANGES = schema.Rule(
  "True, False, or a list of fields of config.data by their dotted paths",
  _changes,
)

# Fields that say what is made of rows, and not which.
_OF_FIELDS = (
  *("batch_format", "columns", "document_id", "keep_fields", "lookahead"),
  *("num_targets", "operations"),
)


StateError = errors.StateError


class Fingerprint:
  """What decides a run's rows, and its texts, which are made once.

  That of a run of thousands of stages takes as long to write as a batch of a
  large model to read.

  Attributes:
    fields: The fingerprint, as JSON values; not to be altered.
  """

  def __init__(self, fields: Mapping[str, Any]):
    """Binds a fingerprint."""
    self.fields: Mapping[str, Any] = fields

  @functools.cached_property
  def compact(self) -> str:
    """Its canonical JSON."""
    return _compact(self.fields)

  @functools.cached_property
  def indented(self) -> str:
    """It as it stands in a state."""
    return _indented(self.fields)

  @functools.cached_property
  def digest(self) -> str:
    """Its SHA-256, in hex; see `digest`."""
    return digest_of(self.compact)


def encode(
  step: int,
  fingerprint: Mapping[str, Any] | Fingerprint,
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
  texts = (
    fingerprint
    if isinstance(fingerprint, Fingerprint)
    else Fingerprint(fingerprint)
  )
  record = {
    **(extra or {}),
    "schema": SCHEMA,
    "step": step,
    "topology": topology,
  }
  compact = {name: _compact(value) for name, value in record.items()}
  compact["fingerprint"] = texts.compact
  text = ",".join(f"{json.dumps(n)}:{compact[n]}" for n in sorted(compact))
  record["digest"] = digest_of(f"{{{text}}}")
  lines = {name: _indented(value) for name, value in record.items()}
  lines["fingerprint"] = texts.indented
  text = ",\n".join(f"  {json.dumps(n)}: {lines[n]}" for n in sorted(lines))
  return f"{{\n{text}\n}}".encode()


def decode(state: bytes) -> dict[str, Any]:
  """Returns the record of a state.

  Raises:
    TypeError: If it is not bytes.
    StateError: If it is no state, was altered, or has another schema.
  """
  state = bytes(schema.argument("state", STATE, state))
  try:
    record = json.loads(state.decode())
    saved_digest, step = record.pop("digest"), record["step"]
    version, fingerprint = record["schema"], record["fingerprint"]
    expected = digest(record)
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
  if saved_digest != expected:
    raise StateError(
      f"input state must match its digest, got {str(saved_digest)[:16]}... for"
      f" content of digest {expected[:16]}... The checkpoint was"
      " altered or damaged: restore from another one."
    )
  if version != SCHEMA:
    raise StateError(
      f"input state must have schema {SCHEMA}, got {version!r}. Use the"
      " version of chomp_data that wrote it."
    )
  whole = isinstance(step, int) and not isinstance(step, bool)
  if not whole or not 0 <= step <= schema.MAX_COUNT:
    raise StateError(
      f"input state's step must be a whole number of at least 0, got"
      f" {step!r}. Restore from another checkpoint."
    )
  if not isinstance(fingerprint, dict):
    raise StateError(
      "input state's fingerprint must be an object, got"
      f" {type(fingerprint).__name__}. Restore from another checkpoint."
    )
  return record


def with_fields(state: bytes, fields: Mapping[str, Any]) -> bytes:
  """Returns a state with more fields, JSON values, under its digest."""
  record = decode(state)
  return encode(
    record.pop("step"),
    record.pop("fingerprint"),
    record.pop("topology"),
    {**record, **fields},
  )


def digest(record: Mapping[str, Any]) -> str:
  """Returns the SHA-256 of a record as canonical JSON, in hex."""
  return digest_of(_compact(record))


def digest_of(text: str) -> str:
  return hashlib.sha256(text.encode()).hexdigest()


def _compact(value: Any) -> str:
  return json.dumps(value, sort_keys=True, separators=(",", ":"))


def _indented(value: Any) -> str:
  """Returns JSON as it stands in an object: of strings no line is broken."""
  return json.dumps(value, indent=2, sort_keys=True).replace("\n", "\n  ")


def with_operations(
  fingerprint: Mapping[str, Any], operations: Sequence[Any]
) -> dict[str, Any]:
  """Returns the fingerprint of a run with more transforms.

  Args:
    fingerprint: The run's.
    operations: Transforms over batches, each with a fingerprint.

  Raises:
    ConfigError: If the `fingerprint` of one is not of JSON values.
  """
  if not operations:
    return dict(fingerprint)
  names = [operations_lib.fingerprint_of(operation) for operation in operations]
  return {**fingerprint, "operations": names}


@dataclasses.dataclass(frozen=True)
class WeightsText:
  """The weights of a stage: equal where they are in proportion."""

  shares: frozenset[tuple[str, fractions.Fraction]]
  text: str = dataclasses.field(compare=False)

  def __repr__(self) -> str:
    return self.text

  @classmethod
  def of(cls, stage: Mapping[str, str]) -> Self:
    """Returns the weights that a fingerprint has as fractions."""
    exact = {
      n: fractions.Fraction(weight) for n, weight in sorted(stage.items())
    }
    whole = sum(exact.values())
    text = ", ".join(
      f"{n} {weight if weight.denominator == 1 else float(weight)}"
      for n, weight in exact.items()
    )
    return cls(
      frozenset((n, weight / whole) for n, weight in exact.items()), text
    )


def differences(
  saved: Mapping[str, Any],
  current: Mapping[str, Any],
  step: int | None = None,
) -> list[str]:
  """Lists where two fingerprints differ.

      sources.wiki.rows.alpha: state has 0.8, config has 0.5
      sources.code: state has '(absent)', config has one
      mix.stages.500: state has wiki 0.5, code 1, config has wiki 0.6, code 1

  Weights in proportion are equal, and one source alone equals a mix that has
  served no other: both give its rows in its order.

  Args:
    saved: The state's fingerprint.
    current: The run's fingerprint.
    step: Where a mix may have another future: stages from this step on, and
      sources that no earlier stage weighs, are no difference. None compares
      all.

  Returns:
    One line a field, by dotted path; empty where they agree.
  """
  return [line for _, line in located(saved, current, step)]


def located(
  saved: Mapping[str, Any],
  current: Mapping[str, Any],
  step: int | None = None,
) -> list[tuple[str, str]]:
  """Returns (dotted path, line) of what `differences` lists."""
  return [
    (path, f"{path}: state has {was}, config has {now}")
    for path, was, now in changes(saved, current, step)
  ]


def refusal(
  refused: Sequence[tuple[str, str]],
  allowed: Sequence[str],
  saved: Mapping[str, Any],
  step: int,
) -> StateError:
  """Returns the error of a state that a run does not take.

  Args:
    refused: What differs and is not allowed to, as `located` returns it.
    allowed: Fields that may differ, by dotted path.
    saved: The state's fingerprint.
    step: The state's step.
  """

  new_source = ""
  added = [path for path, _ in refused if _is_new_source(path, saved)]
  if added and any(path.startswith("mix.stages") for path, _ in refused):
    at = edits.steps_of(saved).data_step(step)
    new_source = (
      f" To add `{added[0]}` to a running job, keep the stages that began and"
      f" append one to `mix.stages` that weighs it, from data step {at} on or"
      f" later; where weights are in `sources.<name>.weight`, set that of"
      f" `{added[0]}` to 0, so that it has no rows before."
    )

  def text(in_command: bool) -> str:
    advice = [
      edits.way_back(saved, path, step, in_command) for path, _ in refused
    ]
    listed = errors.bullets(
      f"{line}{way}" for (_, line), way in zip(refused, advice, strict=True)
    )
    # Whoever is told how to continue needs no new run.
    new_run = "" if any(advice) else ", or start a new run"
    near = [
      schema.did_you_mean(name, [path for path, _ in refused])
      for name in allowed
    ]
    takes = "`--allow_input_change=FIELD` takes the name of a field"
    if not in_command:
      takes = (
        "`allow_changes` of `set_state` and `InputRestore` and"
        " `allow_input_change` of `make_iterator` take the names of fields"
      )
    return (
      "input state must come from the same data and config, got"
      f" {len(refused)} difference{'s' * (len(refused) > 1)} (fields of"
      f" config.data):{listed}\nUse the config it was saved with{new_run}."
      f" {takes} that may differ, if that is what is meant."
      + "".join([*near, new_source])
    )

  return StateError(text(False), text(True))


def _is_new_source(path: str, saved: Mapping[str, Any]) -> bool:
  """Whether a path is of a source that a state's run does not have."""
  section, _, name = path.partition(".")
  known = saved.get("sources", {})
  return section == "sources" and name.partition(".")[0] not in known


def changes(
  saved: Mapping[str, Any],
  current: Mapping[str, Any],
  step: int | None = None,
) -> list[tuple[str, str, str]]:
  """Returns path, old and new value of what `differences` lists."""
  old, new = (json.loads(json.dumps(record)) for record in (saved, current))
  old, new = _canonical(old), _canonical(new)
  old, new = _as_mix(old, new), _as_mix(new, old)
  if "operations" in old:
    names = operations_lib.as_now(old["operations"], new.get("operations"))
    old = {**old, "operations": names}
  if step is not None:
    old, new = _begun_before(old, step), _begun_before(new, step)
  return list(fingerprints.compared(_weighed(old, new), _weighed(new, old)))


def of_rows(paths: Iterable[str]) -> bool:
  """Returns whether some of the fields that differ decide which rows come."""
  return any(path.partition(".")[0] not in _OF_FIELDS for path in paths)


def consequence(paths: Collection[str], step: int) -> str:
  """Returns what follows where a state of another run is taken, for people.

  Args:
    paths: Of what differs.
    step: Of the state.
  """
  if not of_rows(paths):
    return (
      f"From step {step} on rows are those that follow; what is made of them"
      " is another."
    )
  return (
    f"From step {step} on batches are those that this config has there, as if"
    " it had been the run's from step 0: of what the state's run has read, some"
    " may come again, and some that it has not may not come in this epoch. What"
    " is consumed before is counted as this config would have."
  )


def _canonical(record: dict[str, Any]) -> dict[str, Any]:
  """Returns a fingerprint with one name of each policy, as they are now."""
  mix = record.get("mix")
  if not isinstance(mix, dict):
    return record
  if mix.get("exhaustion") != "all_exhausted_without_replacement":
    return record
  # Once it had no end without epochs. Up to the first end rows are the same;
  # beyond it the accounts differ.
  return {
    **record,
    "epochs": record.get("epochs") or 1,
    "mix": {**mix, "exhaustion": "drop"},
  }


def _as_mix(record: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
  """Returns the fingerprint of one source as a mix of it, if `other` is one."""
  mix, sources = other.get("mix"), record.get("sources")
  if "mix" in record or not isinstance(mix, dict):
    return record
  if not isinstance(sources, dict) or len(sources) != 1:
    return record
  (name,) = sources
  alone = {
    "exhaustion": "drop",
    "stages": {"0": {name: "1"}},
    "start": {},
    # One source alone is balanced in any unit.
    "unit": mix.get("unit"),
  }
  return {**record, "mix": alone}


def _begun_before(record: dict[str, Any], step: int) -> dict[str, Any]:
  """Returns a fingerprint less what only later steps depend on."""
  # What is skipped from here on is no past either.
  step = edits.steps_of(record).data_step(step - 1) + 1 if step else 0
  for field in edits.FIELDS:
    entries = record.get(field)
    if isinstance(entries, dict):
      begun = {at: entry for at, entry in entries.items() if int(at) < step}
      record = {**record, field: begun}
  curriculum = record.get("buckets", {}).get("stages")
  if isinstance(curriculum, dict):
    begun = {at: shares for at, shares in curriculum.items() if int(at) < step}
    record = {**record, "buckets": {**record["buckets"], "stages": begun}}
  stages = record.get("mix", {}).get("stages")
  if not isinstance(stages, dict):
    return record
  stages = {at: weights for at, weights in stages.items() if int(at) < step}
  weighed = {name for weights in stages.values() for name in weights}
  sources = record.get("sources", {})
  return {
    **record,
    "mix": {**record["mix"], "stages": stages},
    "sources": {n: source for n, source in sources.items() if n in weighed},
  }


def _weighed(
  record: dict[str, Any], other: Mapping[str, Any]
) -> dict[str, Any]:
  """Returns a fingerprint with the weights of each stage as one value.

  Less those that another has word for word: of a chain of thousands to work
  out the shares takes longer than all else.
  """
  out = dict(record)
  for section in ("mix", "buckets"):
    stages, theirs = _stages(record, section), _stages(other, section) or {}
    if stages is not None:
      weights = {
        at: WeightsText.of(weights)
        for at, weights in stages.items()
        if theirs.get(at) != weights
      }
      out[section] = {**record[section], "stages": weights}
  return out


def _stages(record: Mapping[str, Any], section: str) -> dict[str, Any] | None:
  """Returns the weights by step of a section, None where it has none."""
  fields = record.get(section)
  stages = fields.get("stages") if isinstance(fields, dict) else None
  return stages if isinstance(stages, dict) else None
