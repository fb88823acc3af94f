"""Splices: documents placed at many columns of a row (seed 000).

`SpliceOptions` read one document (`rows.kind='splice'`), `MultiSpliceOptions`
several with a balance between them (`'multi_splice'`), `WindowOptions` plain
windows of every document (`'windows'`). All three are the same source over
another schedule. Positions are columns, never reset: the same text at two
offsets reaches the model at two positions.
"""

import dataclasses
import fractions
from typing import Any

from absl import logging
import numpy as np

from chomp_data import schema
from chomp_data import stores
from chomp_data.index import axes
from chomp_data.index import axis_order
from chomp_data.index import hashing
from chomp_data.index import quotas
from chomp_data.index import schedule as schedule_lib
from chomp_data.ops import spans as spans_lib
from chomp_data.sources import fillers
from chomp_data.sources import grid
from chomp_data.sources import options as options_lib
from chomp_data.sources import row_source
from chomp_data.sources import selecting

_ORDER = schema.either(schema.boolean(), schema.integer(1))
_SEED = schema.optional(schema.integer(0, 2**63 - 1))


@dataclasses.dataclass(frozen=True, kw_only=True)
class ScheduleOptions(options_lib.SelectionOptions, options_lib.FillerOptions):
  """Where in a document copying starts, and where in the row it lands.

  Attributes:
    mode: 'splice', or 'slide' for windows of seq_len tokens at column 0.
    content_start_mode: Which starts t there are: 'coverage_balanced' (t with
      the copy right-aligned), 'slide_within' (every t at every offset),
      'anchor_start' (t = 0), 'cyclic_roll' (the document as a ring).
    content_length: K, tokens copied, or None for as many as fit.
    content_stride: Tokens between starts.
    offset_stride: Columns between offsets (unused in coverage_balanced).
    offset_domain: 'tight' (what is left of the document fits), 'grid' (K
      fits) or 'frame' (the row may cut it). None: 'tight', or 'frame' where
      K is None or at least seq_len.
    min_copy_len: Fewest tokens worth copying.
    alpha: Strength of the weight towards document edges; 0 is uniform.
    adaptive_k: Whether K shrinks to documents shorter than K.
    offset_jitter: J: a copy lands 0 .. J columns left of right-aligned.
    jitter_mode: 'uniform' (hashed) or 'low_discrepancy' (cycling).
    epoch_length: Rows of an epoch, or None for one for each pair.
    shuffle_content: Permute the starts each epoch; a number permutes within
      eras of that many.
    shuffle_offsets: The same for the offsets of each start.
    content_seed: Seed of the starts' order; None derives it from the run's.
    offset_seed: Seed of the offsets' order; None derives it from the run's.
    eos_before_document: Put EOS just left of a copy that is not at column 0.
  """

  mode: str = schema.option("splice", schema.choice(("splice", "slide")))
  content_start_mode: str = schema.option(
    "coverage_balanced", schema.choice(axes.CONTENT_START_MODES)
  )
  content_length: int | None = schema.option(
    None, schema.optional(schema.integer(2))
  )
  content_stride: int = schema.option(1, schema.integer(1))
  offset_stride: int = schema.option(1, schema.integer(1))
  offset_domain: str | None = schema.option(
    None, schema.optional(schema.choice(axes.OFFSET_DOMAINS))
  )
  min_copy_len: int = schema.option(2, schema.integer(2))
  alpha: float = schema.option(0.0, schema.number(0, 16))
  adaptive_k: bool = schema.option(True, schema.boolean())
  offset_jitter: int = schema.option(0, schema.integer(0))
  jitter_mode: str = schema.option(
    "uniform", schema.choice(schedule_lib.JITTER_MODES)
  )
  epoch_length: int | None = schema.option(
    None, schema.optional(schema.integer(1))
  )
  shuffle_content: bool | int = schema.option(False, _ORDER)
  shuffle_offsets: bool | int = schema.option(False, _ORDER)
  content_seed: int | None = schema.option(None, _SEED)
  offset_seed: int | None = schema.option(None, _SEED)
  eos_before_document: bool = schema.option(False, schema.boolean())

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    found = self.selection_problems(path)
    if self.min_copy_len > seq_len:
      found.append(
        f"`{path}.min_copy_len` must be at most seq_len, got"
        f" {self.min_copy_len} > {seq_len}. Lower it or use longer rows."
      )
    length = self.content_length
    if length is not None and length < self.min_copy_len:
      found.append(
        f"`{path}.content_length` must be at least `min_copy_len`, got"
        f" {length} < {self.min_copy_len}. Raise it or lower min_copy_len."
      )
    if self.offset_jitter and seq_len - self.offset_jitter < self.min_copy_len:
      found.append(
        f"`{path}.offset_jitter` must leave `min_copy_len` columns of"
        f" seq_len, got {self.offset_jitter} of {seq_len} with min_copy_len"
        f" {self.min_copy_len}. Lower it."
      )
    balanced = self.content_start_mode == "coverage_balanced"
    for name in ("alpha", "offset_jitter"):
      if getattr(self, name) and (self.mode == "slide" or not balanced):
        found.append(
          f"`{path}.{name}` must be 0 unless mode is 'splice' and"
          " content_start_mode is 'coverage_balanced', got"
          f" {getattr(self, name)} with {self.mode!r},"
          f" {self.content_start_mode!r}. Unset one of them."
        )
    if self.mode == "slide" and length is not None and length < seq_len:
      found.append(
        f"`{path}.content_length` must be None or at least seq_len where"
        f" mode is 'slide', got {length}. Unset it: a window holds seq_len"
        " tokens."
      )
    return found

  def pair_space(self, seq_len: int) -> axes.PairSpace:
    """Returns the (t, s) pairs that these options describe."""
    length = self.content_length
    domain = self.offset_domain
    if domain is None:
      whole = length is None or length >= seq_len
      domain = "frame" if whole else "tight"
    return axes.PairSpace(
      seq_len=seq_len,
      content_length=length,
      content_start_mode=(
        "slide" if self.mode == "slide" else self.content_start_mode
      ),
      content_stride=self.content_stride,
      offset_stride=self.offset_stride,
      offset_domain=domain,
      min_copy_len=self.min_copy_len,
      adaptive_k=self.adaptive_k,
      offset_jitter=self.offset_jitter,
    )


@dataclasses.dataclass(frozen=True, kw_only=True)
class SpliceOptions(ScheduleOptions):
  """One document.

  Attributes:
    doc_select_mode: The policy where neither index nor key decides.
    doc_index: The document's index; outside the length limits the policy
      decides instead, with a warning.
    doc_key: The document's id.
  """

  doc_select_mode: str = schema.option(
    "first", schema.choice(("first", "longest", "shortest", "random"))
  )
  doc_index: int | None = schema.option(
    None, schema.optional(schema.integer(0))
  )
  doc_key: str | None = schema.option(None, schema.optional(schema.text()))

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    found = super().problems(path, seq_len)
    if self.doc_index is not None and self.doc_key is not None:
      found.append(
        f"`{path}.doc_index` and `{path}.doc_key` must not both be set, got"
        f" {self.doc_index} and {self.doc_key!r}. Unset one."
      )
    return found

  def select(self, store, seq_len: int, path: str) -> selecting.Documents:
    """Returns (documents, lengths), int64[1] each."""
    return selecting.select_single(
      store, self, self.doc_index, self.doc_key, seq_len, path
    )

  def balance(self) -> dict[str, Any]:
    """Returns the schedule's balance: one document has it all."""
    return {"balance_mode": "by_temperature", "balance_tau": 1.0}


@dataclasses.dataclass(frozen=True, kw_only=True)
class MultiSpliceOptions(ScheduleOptions):
  """Several documents and the balance between them.

  Attributes:
    num_docs: How many documents, or None for every candidate.
    strict_num_docs: Whether too few candidates is an error; otherwise the
      longest other documents fill up.
    balance_mode: 'by_temperature' (quotas by length ** balance_tau),
      'by_coverage' (tau 1), 'by_document' (each brought to the largest count
      by repeating its starts in order) or 'enumerate' (every pair once).
    balance_tau: Temperature of by_temperature.
    doc_weights: Extra weights by document id; others weigh 1.
  """

  num_docs: int | None = schema.option(10, schema.optional(schema.integer(1)))
  strict_num_docs: bool = schema.option(True, schema.boolean())
  balance_mode: str = schema.option(
    "by_temperature", schema.choice(schedule_lib.BALANCE_MODES)
  )
  balance_tau: float = schema.option(1.0, schema.number(0, 1))
  doc_weights: tuple[tuple[str, float], ...] | None = schema.option(
    None, schema.optional(schema.weights())
  )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    found = super().problems(path, seq_len)
    mode = self.balance_mode
    if self.doc_weights and mode in ("by_document", "enumerate"):
      found.append(
        f"`{path}.doc_weights` must be unset where balance_mode is {mode!r},"
        f" got {dict(self.doc_weights)!r}. Use 'by_temperature' with"
        " balance_tau 0 for weighted equal shares."
      )
    if mode == "enumerate" and self.epoch_length is not None:
      found.append(
        f"`{path}.epoch_length` must be None where balance_mode is"
        f" 'enumerate', got {self.epoch_length}. Unset it: every pair comes"
        " once."
      )
    if mode == "enumerate" and self.alpha:
      found.append(
        f"`{path}.alpha` must be 0 where balance_mode is 'enumerate', got"
        f" {self.alpha}. Unset it: every start comes once."
      )
    return found

  def select(self, store, seq_len: int, path: str) -> selecting.Documents:
    """Returns (documents, lengths), int64[D] each."""
    return selecting.select_several(
      store, self, self.num_docs, self.strict_num_docs, seq_len, path
    )

  def balance(self) -> dict[str, Any]:
    """Returns the schedule's balance."""
    return {
      "balance_mode": self.balance_mode,
      "balance_tau": self.balance_tau,
    }


@dataclasses.dataclass(frozen=True, kw_only=True)
class WindowOptions(options_lib.SelectionOptions, options_lib.FillerOptions):
  """Windows of seq_len tokens at column 0 over each document.

  Attributes:
    doc_select_mode: The order of documents, and the choice where `num_docs`
      is set.
    num_docs: How many documents, or None for every candidate.
    strict_num_docs: As in MultiSpliceOptions.
    stride: Tokens between windows, or None for seq_len. The last window of a
      document is right-aligned.
    min_copy_len: Documents shorter than this are left out.
  """

  doc_select_mode: str = schema.option(
    "first", schema.choice(("first", "longest", "shortest", "random"))
  )
  num_docs: int | None = schema.option(None, schema.optional(schema.integer(1)))
  strict_num_docs: bool = schema.option(True, schema.boolean())
  stride: int | None = schema.option(None, schema.optional(schema.integer(1)))
  min_copy_len: int = schema.option(2, schema.integer(2))

  def as_splices(self, seq_len: int) -> MultiSpliceOptions:
    """Returns the same rows as a sliding splice schedule."""
    shared = {
      f.name: getattr(self, f.name)
      for f in dataclasses.fields(self)
      if f.name != "stride"
    }
    return MultiSpliceOptions(
      mode="slide",
      content_stride=self.stride or seq_len,
      balance_mode="enumerate",
      **shared,
    )

  def problems(self, path: str, seq_len: int) -> list[str]:
    """Returns what is wrong between these fields and with `seq_len`."""
    return self.as_splices(seq_len).problems(path, seq_len)


class SpliceSource(row_source.RowSource):
  """Rows that each hold one splice of one of the selected documents."""

  document_slots = 1

  def __init__(
    self,
    store: stores.Store,
    options: SpliceOptions | MultiSpliceOptions,
    *,
    seq_len: int,
    seed: int = 0,
    name: str = "splice",
    path: str = "rows",
  ):
    """Selects documents and computes their quotas; reads no token.

    Args:
      store: Where the documents are.
      options: Selection, schedule and balance.
      seq_len: Positions of a row, at least 2.
      seed: The run's seed.
      name: The source's name; its seeds depend on it.
      path: Dotted path of the options, for messages.

    Raises:
      ConfigError: If options contradict each other or leave no row.
    """
    problems = schema.check(options, path)
    if seq_len < 2:
      problems.append(
        schema.bad_value("seq_len", "at least 2", seq_len, "Raise it.")
      )
    if problems := problems or options.problems(path, seq_len):
      raise schema.ConfigError(problems)
    self.name = name
    self.store = store
    self.options = options
    self._seed = seed
    self.layout = fillers.row_layout(
      store, options, seq_len, options.eos_before_document, path
    )
    self.documents, self.lengths = options.select(store, seq_len, path)
    self._first_token = store.bounds(self.documents)[0]
    order = axis_order.AxisOrder(
      space=options.pair_space(seq_len),
      shuffle_content=options.shuffle_content,
      shuffle_offsets=options.shuffle_offsets,
      content_key=self._axis_key("content", options.content_seed),
      offset_key=self._axis_key("offsets", options.offset_seed),
    )
    self.space = order.space
    self._schedule = schedule_lib.SpliceSchedule(
      self.lengths,
      order,
      alpha=options.alpha,
      weights=self._weights(path),
      epoch_length=options.epoch_length,
      jitter_mode=options.jitter_mode,
      jitter_key=hashing.fold_key(seed, name, "jitter"),
      **options.balance(),
    )
    self._report_unused(path)

  def __len__(self) -> int:
    return self._schedule.num_rows

  def plan(self, rows: np.ndarray) -> spans_lib.Spans:
    """Plans rows; see `RowSource.plan`."""
    epoch, index = np.divmod(rows, len(self))
    splices = self._schedule.splices(index, epoch)
    count = len(rows)
    row = np.arange(count)
    start, column, length = splices.start, splices.column, splices.length
    document = self.documents[splices.slot]
    token = self._first_token[splices.slot]
    wrapped = start + length - self.lengths[splices.slot]
    if self.space.content_start_mode == "cyclic_roll" and np.any(wrapped > 0):
      # A copy that passes its document's end goes on from its start.
      over = np.maximum(wrapped, 0)
      pieces = np.repeat(row, 1 + (over > 0))
      second = np.zeros(len(pieces), np.bool_)
      second[1:] = pieces[1:] == pieces[:-1]
      head = (length - over)[pieces]
      row = pieces
      start = np.where(second, 0, start[pieces])
      column = column[pieces] + np.where(second, head, 0)
      length = np.where(second, over[pieces], head)
      document, token = document[pieces], token[pieces]
    return spans_lib.Spans(
      num_rows=count,
      row=row,
      source=np.zeros(len(row), np.int32),
      document=document,
      start=start,
      offset=token + start,
      length=length,
      column=column,
      segment=np.ones(len(row), np.int32),
    )

  def quotas(self) -> np.ndarray:
    """Returns int64[D], rows of an epoch by selected document."""
    return self._schedule.quotas()

  def validation(
    self, num_starts: int = 4, num_offsets: int = 4, num_docs: int = 10
  ) -> grid.GridSource:
    """Returns a fixed small (t, s) grid of the first selected documents.

    Args:
      num_starts: Starts of each document, evenly spaced from 0 to the last
        that copies K tokens.
      num_offsets: Offsets of each start, evenly spaced over the row.
      num_docs: Documents, in the order of selection.

    Returns:
      At most num_docs * num_starts * num_offsets rows.
    """
    lengths = self.lengths[:num_docs]
    last = np.maximum(lengths - self.space.copy_len(lengths), 0)
    room = self.seq_len - self.options.min_copy_len
    return grid.GridSource(
      self.store,
      self.documents[:num_docs],
      grid.evenly_spaced(last, num_starts),
      np.arange(num_offsets) * (room + 1) // num_offsets,
      seq_len=self.seq_len,
      content_length=self.options.content_length,
      min_copy_len=self.options.min_copy_len,
      layout=self.layout,
      name=f"{self.name}/validation",
    )

  def fingerprint(self) -> dict[str, Any]:
    """Returns what decides this source's rows, as JSON values."""
    return {
      "store": self.store.hash,
      "seq_len": self.seq_len,
      "seed": self._seed,
      "kind": self.kind,
      "rows": dataclasses.asdict(self.options),
      "filler_id": self.layout.filler_id,
      "token_before_document": self.layout.token_before_document,
    }

  @property
  def kind(self) -> str:
    """The `rows.kind` that builds such a source."""
    single = isinstance(self.options, SpliceOptions)
    return "splice" if single else "multi_splice"

  def describe(self) -> str:
    """Returns the seed's debug summary: documents, lengths, shares, pairs."""
    shown = 10
    rows = self.quotas()
    share = rows / max(int(rows.sum()), 1)
    more = "" if len(rows) <= shown else f" ... {len(rows) - shown} more"

    def listed(values):
      return "[" + ", ".join(str(v) for v in values[:shown]) + more + "]"

    ids = self.store.document_ids(self.documents[:shown])
    lines = [
      (
        f"[{self.name}] {self.kind}: num_docs={len(rows)}"
        f" doc_lengths={listed(self.lengths.tolist())}"
      ),
      (
        f"  seq_len={self.seq_len} K={self.space.max_copy_len}"
        f" mode={self.space.content_start_mode}"
        f" offsets={self.space.offset_domain}"
        f" alpha={self.options.alpha:g}"
        f" offset_jitter={self.options.offset_jitter}"
        f" total_pairs={len(self)}"
      ),
      (
        "  balance="
        + ", ".join(f"{k}={v}" for k, v in self.options.balance().items())
      ),
      f"  expected_doc_fraction={listed([f'{p:.4f}' for p in share])}",
      f"  pairs_per_doc={listed(rows.tolist())}",
    ]
    lines += [
      f"  document {document} ({identity!r}): length={length}"
      for document, identity, length in zip(
        self.documents[:shown].tolist(),
        ids,
        self.lengths[:shown].tolist(),
        strict=True,
      )
    ]
    return "\n".join(lines)

  def _axis_key(self, axis: str, seed: int | None) -> int:
    if seed is None:
      return hashing.fold_key(self._seed, self.name, axis)
    return hashing.fold_key("own", seed, self.name, axis)

  def _weights(self, path: str) -> dict[int, fractions.Fraction] | None:
    weights = getattr(self.options, "doc_weights", None)
    if not weights:
      return None
    found = self.store.find_documents([name for name, _ in weights])
    slots = {d: i for i, d in enumerate(self.documents.tolist())}
    out = {}
    problems = []
    for name, weight in weights:
      named = [slots[d] for d in found[name] if d in slots]
      if not named:
        where = "is not selected" if found[name] else "does not exist"
        problems.append(
          f"`{path}.doc_weights` must name selected documents, got {name!r},"
          f" which {where}. Correct the id, or select the document."
        )
      for slot in named:
        out[slot] = quotas.exact(weight)
    zero = len(out) == len(self.documents) and not any(out.values())
    if not problems and zero:
      problems.append(
        f"`{path}.doc_weights` must leave a document with a positive weight,"
        " got only zeros. Raise one."
      )
    if problems:
      raise schema.ConfigError(problems)
    return out

  def _report_unused(self, path: str) -> None:
    """Refuses an empty epoch; warns of documents that cannot be copied."""
    usable = self.space.num_pairs(self.lengths) > 0
    if not np.any(usable):
      raise schema.ConfigError(
        [
          f"`{path}.min_copy_len` and `content_length` must admit a document,"
          f" got {self.options.min_copy_len} and"
          f" {self.options.content_length} (adaptive_k="
          f"{self.options.adaptive_k}) where the longest of"
          f" {len(self.lengths)} selected documents has"
          f" {int(self.lengths.max(initial=0))} tokens. Lower them, or select"
          " longer documents."
        ]
      )
    if not np.all(usable):
      logging.warning(
        "%s: %d of %d selected documents are too short to be copied and get"
        " no row (the longest of them has %d tokens).",
        path,
        int(np.sum(~usable)),
        len(usable),
        int(self.lengths[~usable].max()),
      )
