# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""How random are the orders? Against an ideal and the figures of seed 002.

    python benchmarks/shuffle_quality.py --plot=shuffle_quality.png

The setting of seed 002: 8,192 rows, 8 seeds, blocks of 128, windows of 8
blocks, eras of 1,024, batches of 128. The ideal of a kind draws its
permutations from NumPy's generator in the same structure: whole epochs, eras,
or permuted blocks and the rows of their windows. `z` is the distance of our
mean from the ideal's in standard errors; the exit status is 1 if any exceeds
4. Six seconds on one CPU core. Metrics:

- displacement: mean |row - position| / (n - 1); 1/3 if random
- inversions: pairs of rows out of order, of all pairs; 1/2 if random
- rank correlation: Spearman's rho of row and position
- same block: neighbours that come from the same block, of all neighbours
- blocks in a batch: distinct blocks that a batch draws from
- batch variance: variance of a batch's rows by block, over its window's blocks
- pair variance: variance of how often two blocks share a window in 64 epochs,
  over the binomial's; 1 if pairs meet at random
- window sets: distinct sets of blocks in the windows of 64 epochs
"""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import pathlib
import sys

from absl import flags
import harness
import numpy as np

from chomp_data.order import orders

_SEEDS = flags.DEFINE_integer("seeds", 8, "Orders of ours.", 2)
_PERM_TYPE = flags.DEFINE_enum(
  "perm_type", "feistel", orders.PERM_TYPES, "What permutes."
)
_PLOT = flags.DEFINE_string(
  "plot", None, "PNG to write; needs matplotlib (the extra `plots`)."
)

_BLOCK = 128  # rows
_WINDOW_BLOCKS = 8
_WINDOW = _BLOCK * _WINDOW_BLOCKS  # rows, and an era's
_BATCH = 128  # rows
_MOST_Z = 4.0
_ROUNDING = 1e-9

# What seed 002 publishes for this setting, then what follows from its affine
# Feistel network: 16 rows of each of 8 blocks in every batch, 64 sets ever.
_PUBLISHED = ("displacement", "inversions", "rank correlation", "same block")
_SEED = {
  (kind, metric): value
  for kind, values in (
    ("full", (0.3325, 0.4997, 0.0010, 0.0107)),
    ("era", (0.0417, 0.0625, 0.9844, 0.3106)),
    ("block", (0.3319, 0.4980, 0.0088, 0.3063)),
  )
  for metric, value in zip(_PUBLISHED, values, strict=True)
}
_SEED["none", "same block"] = 0.9923
_SEED["block", "blocks in a batch"] = 8.0
_SEED["block", "batch variance"] = 0.0
_SEED["block", "window sets"] = 64.0


@dataclasses.dataclass(frozen=True)
class Setting:
  """What is measured.

  Attributes:
    rows: Rows of an epoch, a multiple of a window's.
    ideals: Orders of the ideal.
    epochs: Epochs in which blocks meet.
    published: Whether the figures of seed 002 are of this setting.
  """

  rows: int = 8_192
  ideals: int = 400
  epochs: int = 64
  published: bool = True


@dataclasses.dataclass(frozen=True)
class Finding:
  """One metric of one kind of order.

  Attributes:
    kind: The order.
    metric: Its name.
    ours: float64[seeds].
    ideal: float64[ideals].
  """

  kind: str
  metric: str
  ours: np.ndarray
  ideal: np.ndarray

  @property
  def z(self) -> float:
    """Standard errors between our mean and the ideal's."""
    distance = self.ours.mean() - self.ideal.mean()
    # The ideal's spread for both: eight seeds tell little of their own.
    spread = self.ideal.std(ddof=1)
    error = spread * np.sqrt(1 / len(self.ours) + 1 / len(self.ideal))
    if abs(distance) < _ROUNDING:
      return 0.0
    return float(distance / error) if error else float("inf")


def order_of(kind: str, seed: int) -> orders.Order:
  """Returns one of our orders."""
  key = orders.order_key(seed)
  if kind == "none":
    return orders.NoneOrder()
  if kind == "full":
    return orders.FullOrder(key, _PERM_TYPE.value)
  if kind == "era":
    return orders.EraOrder(_WINDOW, key, _PERM_TYPE.value)
  return orders.BlockOrder(_BLOCK, _WINDOW_BLOCKS, key, _PERM_TYPE.value)


def ours(kind: str, setting: Setting) -> np.ndarray:
  """Returns the rows of one epoch by seed, int64[seeds, rows]."""
  index = np.arange(setting.rows)
  return np.stack(
    [
      order_of(kind, seed).permute(index, 0, setting.rows)
      for seed in range(_SEEDS.value)
    ]
  )


def ideal(kind: str, setting: Setting) -> np.ndarray:
  """Returns the rows of ideal epochs, int64[ideals, rows]."""
  rng = np.random.default_rng(0)
  rows = np.tile(np.arange(setting.rows), (setting.ideals, 1))
  if kind == "none":
    return rows
  if kind == "full":
    return rng.permuted(rows, axis=1)
  if kind == "block":
    blocks = rows.reshape(setting.ideals, -1, _BLOCK)
    order = ideal_blocks(rng, setting, setting.ideals)
    rows = np.take_along_axis(blocks, order[..., None], axis=1)
  windows = rows.reshape(setting.ideals, -1, _WINDOW)
  return rng.permuted(windows, axis=2).reshape(setting.ideals, -1)


def ideal_blocks(
  rng: np.random.Generator, setting: Setting, count: int
) -> np.ndarray:
  """Returns permutations of the blocks, int64[count, blocks]."""
  blocks = np.arange(setting.rows // _BLOCK)
  return rng.permuted(np.tile(blocks, (count, 1)), axis=1)


def displacement(rows: np.ndarray) -> np.ndarray:
  """Returns mean |row - position| / (n - 1) of int64[R, n], float64[R]."""
  count = rows.shape[1]
  return np.abs(rows - np.arange(count)).mean(axis=1) / (count - 1)


def inversions(rows: np.ndarray) -> np.ndarray:
  """Returns the share of pairs out of order of int64[R, n], float64[R].

  Two values are told apart by the highest bit in which they differ: among the
  values that agree above a bit, in order of position, a 1 before a 0 is a pair
  out of order. So each bit needs one stable sort and one running sum.
  """
  repeats, count = rows.shape
  bits = max(int(count - 1).bit_length(), 1)
  values = (rows + (np.arange(repeats)[:, None] << bits)).reshape(-1)
  found = np.zeros(repeats)
  # From the highest bit: each sort refines the one before it.
  for bit in reversed(range(bits)):
    ones = (values >> bit) & 1
    before = np.cumsum(ones) - ones
    group = values >> (bit + 1)
    starts = np.flatnonzero(np.diff(group, prepend=-1))
    sizes = np.diff(np.append(starts, len(values)))
    inside = before - np.repeat(before[starts], sizes)
    found += np.bincount(
      values >> bits, weights=inside * (1 - ones), minlength=repeats
    )
    values = values[np.argsort(values >> bit, kind="stable")]
  return found / (count * (count - 1) / 2)


def rank_correlation(rows: np.ndarray) -> np.ndarray:
  """Returns Spearman's rho of int64[R, n] and positions, float64[R]."""
  centre = (rows.shape[1] - 1) / 2
  position = np.arange(rows.shape[1]) - centre
  return ((rows - centre) @ position) / (position @ position)


def same_block(rows: np.ndarray) -> np.ndarray:
  """Returns how often neighbours share a block, float64[R]."""
  block = rows // _BLOCK
  return (block[:, 1:] == block[:, :-1]).mean(axis=1)


def batch_counts(rows: np.ndarray) -> np.ndarray:
  """Returns rows of each batch by block, int64[R, batches, blocks]."""
  repeats, count = rows.shape
  blocks = count // _BLOCK
  batch = np.arange(repeats * count) // _BATCH
  cell = batch * blocks + (rows // _BLOCK).reshape(-1)
  counts = np.bincount(cell, minlength=repeats * count // _BATCH * blocks)
  return counts.reshape(repeats, -1, blocks)


def batch_variance(rows: np.ndarray, window_blocks: int) -> np.ndarray:
  """Returns the variance of a batch's rows by block, float64[R]."""
  square = (batch_counts(rows) ** 2).sum(axis=2) / window_blocks
  return (square - (_BATCH / window_blocks) ** 2).mean(axis=1)


def windows_of_epochs(seed: int, setting: Setting) -> np.ndarray:
  """Returns the blocks of our windows, int64[epochs, windows, 8]."""
  epoch, index = np.divmod(
    np.arange(setting.epochs * setting.rows), setting.rows
  )
  rows = order_of("block", seed).permute(index, epoch, setting.rows)
  windows = rows.reshape(setting.epochs, -1, _WINDOW) // _BLOCK
  return np.sort(windows, axis=2)[:, :, ::_BLOCK]


def ideal_windows(rng: np.random.Generator, setting: Setting) -> np.ndarray:
  """Returns the blocks of ideal windows, int64[epochs, windows, 8]."""
  blocks = ideal_blocks(rng, setting, setting.epochs)
  return np.sort(blocks.reshape(setting.epochs, -1, _WINDOW_BLOCKS), axis=2)


def meetings(windows: np.ndarray) -> np.ndarray:
  """Returns how often each pair of blocks shares a window, int64[pairs]."""
  epochs, count, size = windows.shape
  blocks = count * size
  member = np.zeros((epochs * count, blocks), np.int64)
  np.put_along_axis(member, windows.reshape(-1, size), 1, axis=1)
  return (member.T @ member)[np.triu_indices(blocks, 1)]


def pair_variance(windows: np.ndarray) -> float:
  """Returns the variance of meetings over the binomial's."""
  epochs, count, size = windows.shape
  share = (size - 1) / (count * size - 1)
  return float(meetings(windows).var() / (epochs * share * (1 - share)))


def window_sets(windows: np.ndarray) -> float:
  """Returns the number of distinct sets of blocks that share a window."""
  return float(len(np.unique(windows.reshape(-1, windows.shape[2]), axis=0)))


def findings_of(kind: str, setting: Setting) -> list[Finding]:
  """Measures one kind of order and its ideal."""
  own = ours(kind, setting)
  best = ideal(kind, setting)
  blocks = {"none": 1, "full": setting.rows // _BLOCK}.get(kind, _WINDOW_BLOCKS)
  metrics: dict[str, Callable[[np.ndarray], np.ndarray]] = {
    "displacement": displacement,
    "inversions": inversions,
    "rank correlation": rank_correlation,
    "same block": same_block,
    "blocks in a batch": lambda rows: (
      (batch_counts(rows) > 0).sum(axis=2).mean(axis=1)
    ),
    "batch variance": lambda rows: batch_variance(rows, blocks),
  }
  found = [
    Finding(kind, name, metric(own), metric(best))
    for name, metric in metrics.items()
  ]
  if kind == "block":
    found += block_findings(setting)
  return found


def block_findings(setting: Setting) -> list[Finding]:
  """Measures which blocks share windows over many epochs."""
  rng = np.random.default_rng(1)
  own = [windows_of_epochs(seed, setting) for seed in range(_SEEDS.value)]
  best = [ideal_windows(rng, setting) for _ in range(setting.ideals)]
  return [
    Finding(
      "block",
      name,
      np.asarray([metric(windows) for windows in own]),
      np.asarray([metric(windows) for windows in best]),
    )
    for name, metric in (
      ("pair variance", pair_variance),
      ("window sets", window_sets),
    )
  ]


def cells_of(finding: Finding, setting: Setting) -> list[str]:
  """Returns a line of the table: means with their standard errors."""
  published = _SEED.get((finding.kind, finding.metric))
  return [
    finding.kind,
    finding.metric,
    f"{published:.4f}" if published is not None and setting.published else "",
    *(
      f"{own.mean():.4f} ± {own.std(ddof=1) / np.sqrt(len(own)):.4f}"
      for own in (finding.ours, finding.ideal)
    ),
    f"{finding.z:+.1f}",
  ]


def plot(path: str, setting: Setting, findings: list[Finding]) -> None:
  """Draws the orders, and where block orders differ from the seed's."""
  import matplotlib as mpl

  mpl.use("Agg")
  from matplotlib import pyplot

  figure, axes = pyplot.subplot_mosaic(
    [["none", "era", "block", "full"], ["same", "same", "batch", "meet"]],
    figsize=(12, 6),
    layout="constrained",
  )
  for kind in ("none", "era", "block", "full"):
    axes[kind].plot(ours(kind, setting)[0], ",", color="C0", alpha=0.6)
    axes[kind].set(title=kind, xlabel="position", ylabel="row")
  shown = [f for f in findings if f.metric == "same block" and f.kind != "none"]
  groups = {
    "published": [_SEED[f.kind, f.metric] for f in shown],
    "ours": [f.ours.mean() for f in shown],
    "ideal": [f.ideal.mean() for f in shown],
  }
  for i, (label, heights) in enumerate(groups.items()):
    place = np.arange(len(shown)) + 0.27 * (i - 1)
    bars = axes["same"].bar(place, heights, 0.25, label=label)
    axes["same"].bar_label(bars, fmt="%.3f")
  axes["same"].set(title="neighbours from the same block", ylim=(0, 0.37))
  axes["same"].set_xticks(range(len(shown)), [f.kind for f in shown])
  axes["same"].legend(loc="upper left")
  windows = windows_of_epochs(0, setting)
  best = ideal_windows(np.random.default_rng(2), setting)
  for label, rows, met in (
    ("ours", ours("block", setting), windows),
    ("ideal", ideal("block", setting), best),
  ):
    counts = batch_counts(rows)
    for name, values in ("batch", counts[counts > 0]), ("meet", meetings(met)):
      heights = np.bincount(values) / len(values)
      axes[name].step(range(len(heights)), heights, where="mid", label=label)
  axes["batch"].axvline(16, color="C3", ls=":", label="affine: 16")
  axes["batch"].set(title="rows of a block in a batch", xlim=(0, 50))
  axes["meet"].set(title="windows two blocks share")
  for name in ("batch", "meet"):
    axes[name].legend(loc="upper right")
  figure.savefig(path, dpi=100)


def quality(_: pathlib.Path) -> Iterator[harness.Table]:
  """Makes the table; the status is 1 if an order is not like its ideal."""
  setting = Setting()
  if harness.SMALL.value:
    setting = Setting(rows=2_048, ideals=100, epochs=16, published=False)
  findings = [
    finding
    for kind in ("none", "full", "era", "block")
    for finding in findings_of(kind, setting)
  ]
  head = ["order", "metric", "published", "ours", "ideal", "z"]
  yield (
    f"shuffle quality, {_PERM_TYPE.value}, mean ± standard error",
    [head, *(cells_of(finding, setting) for finding in findings)],
  )
  if _PLOT.value:
    plot(_PLOT.value, setting, findings)
  worst = max(findings, key=lambda finding: abs(finding.z))
  print(
    f"largest |z|: {abs(worst.z):.1f} ({worst.kind}, {worst.metric}), of"
    f" {_MOST_Z} allowed"
  )
  if abs(worst.z) > _MOST_Z:
    sys.exit(1)


if __name__ == "__main__":
  harness.run({"quality": quality})
