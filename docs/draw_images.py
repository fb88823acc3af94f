# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Draws the diagrams of the guides: `python docs/draw_images.py`.

Each is an SVG with a white panel, which reads in a light and a dark theme.
"""

import html
import pathlib

IMAGES = pathlib.Path(__file__).parent / "images"
BLUE, ORANGE, GREEN, RED, TEAL = (
  "#4c78a8",
  "#e07b00",
  "#3f8f45",
  "#c9403f",
  "#2d8f8a",
)
GREY, LIGHT, DARK = "#8a8f98", "#e8eaee", "#1a1a1a"


class Drawing:
  """An SVG of boxes, text and arrows, in pixels."""

  def __init__(self, width: int, height: int, label: str):
    self._parts = [
      f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}"'
      f' width="{width}" height="{height}" font-family="system-ui, sans-serif"'
      f' role="img" aria-label="{html.escape(label)}">'
      '<defs><marker id="arrow" viewBox="0 0 8 8" refX="7" refY="4"'
      ' markerWidth="7" markerHeight="7" orient="auto">'
      f'<path d="M0 0L8 4L0 8z" fill="{DARK}"/></marker></defs>'
      f'<rect width="{width}" height="{height}" rx="8" fill="#fff"/>'
    ]

  def text(self, x, y, text, size=13, fill=DARK, anchor="start", bold=False):
    """Writes a line whose baseline begins (or is centred) at x, y."""
    weight = ' font-weight="bold"' if bold else ""
    self._parts.append(
      f'<text x="{x}" y="{y}" font-size="{size}" fill="{fill}"'
      f' text-anchor="{anchor}"{weight}>{html.escape(str(text))}</text>'
    )

  def box(self, x, y, width, height, text="", fill=BLUE, ink="#fff", size=13):
    """Draws a box with centred lines of text."""
    self._parts.append(
      f'<rect x="{x}" y="{y}" width="{width}" height="{height}" rx="4"'
      f' fill="{fill}"/>'
    )
    lines = str(text).split("\n")
    first = y + height / 2 - (len(lines) - 1) * (size + 3) / 2 + size * 0.36
    for i, line in enumerate(lines):
      self.text(
        x + width / 2, first + i * (size + 3), line, size, ink, "middle"
      )

  def arrow(self, x0, y0, x1, y1, dash=False):
    """Draws an arrow."""
    style = ' stroke-dasharray="4 3"' if dash else ""
    self._parts.append(
      f'<line x1="{x0}" y1="{y0}" x2="{x1}" y2="{y1}" stroke="{DARK}"'
      f' stroke-width="1.5" marker-end="url(#arrow)"{style}/>'
    )

  def save(self, name: str) -> None:
    """Writes it to docs/images."""
    text = "\n".join([*self._parts, "</svg>\n"])
    (IMAGES / f"{name}.svg").write_text(text)


def labels():
  """A chat, the levels of its tokens, and what its row trains on."""
  own = Drawing(640, 190, "From the text of a chat to the loss mask of its row")
  words = ["BOS", "user:", "2 + 2?", "asst:", "4", ".", "EOS"]
  levels = ["", "0", "0", "0", "1", "1", ""]
  mask = [0, 0, 0, 1, 1, 1, 0]
  for y, name in ((40, "row"), (90, "level in store"), (140, "loss_mask")):
    own.text(18, y + 20, name, bold=True)
  for i, word in enumerate(words):
    x = 140 + i * 69
    added = word in ("BOS", "EOS")
    fill = GREY if added else (GREEN if levels[i] == "1" else BLUE)
    own.box(x, 40, 62, 30, word, fill)
    if levels[i]:
      own.box(
        x, 90, 62, 30, levels[i], LIGHT if levels[i] == "0" else GREEN,
        DARK if levels[i] == "0" else "#fff",
      )  # fmt: skip
    else:
      own.text(x + 31, 110, "added", 12, GREY, "middle")
    own.box(
      x, 140, 62, 30, mask[i], GREEN if mask[i] else LIGHT,
      "#fff" if mask[i] else DARK,
    )  # fmt: skip
  own.text(
    140, 26, "loss_mask is 1 where the next token has a level that weighs", 12
  )
  own.save("labels")


def stores():
  """What a store holds, what is beside it, and what takes its place."""
  own = Drawing(680, 300, "A store, its side indexes and other corpora")
  own.text(20, 28, "data/web (the store: written once)", 15, bold=True)
  rows = (
    ("manifest.json", "tokenizer, hash, checksums of all chunks", GREY),
    ("tokens", "chunk 0 | chunk 1 | chunk 2 | ...", BLUE),
    ("offsets, ids", "where documents begin, their names", BLUE),
    ("labels, weights, columns", "optional", GREEN),
  )
  for i, (name, text, fill) in enumerate(rows):
    own.box(20, 40 + i * 38, 170, 30, name, fill)
    own.text(200, 60 + i * 38, text, 12)
  own.text(20, 222, "data/web.index (can be deleted)", 15, bold=True)
  own.box(20, 234, 170, 30, "ffd-4f1c..., sums-...", ORANGE)
  own.text(200, 254, "answers that took a pass over all documents", 12)
  own.text(480, 28, "in its place", 15, bold=True)
  for i, name in enumerate(
    ("several stores", "Megatron", "Levanter", "ArrayRecord", "a Grain source")
  ):
    own.box(480, 40 + i * 38, 180, 30, name, TEAL)
  own.save("stores")


def targets():
  """Targets of a row, and columns in three layouts."""
  own = Drawing(680, 250, "Targets of a row, and columns cut over two devices")
  own.text(20, 26, "num_targets=2: document b continues", 14, bold=True)
  table = (
    ("tokens", "a1 a2 a3 b1 b2 b3"),
    ("targets", "a2 a3 . b2 b3 b4"),
    ("targets_2", "a3 . . b3 b4 b5"),
  )
  for r, (name, row) in enumerate(table):
    own.text(20, 60 + r * 34, name, 12)
    for i, word in enumerate(row.split()):
      fill = LIGHT if word == "." else (BLUE if word[0] == "a" else ORANGE)
      ink = DARK if word == "." else "#fff"
      own.box(90 + i * 40, 42 + r * 34, 36, 26, word, fill, ink, 12)
  own.text(20, 164, "The last column has targets too, from the next row.", 12)
  own.text(380, 26, "8 columns on 2 devices", 14, bold=True)
  layouts = (
    ("contiguous", "0 1 2 3 4 5 6 7"),
    ("dual_chunk_swap", "0 1 6 7 2 3 4 5"),
    ("striped", "0 2 4 6 1 3 5 7"),
  )
  for r, (name, row) in enumerate(layouts):
    own.text(380, 56 + r * 66, name, 12)
    for i, column in enumerate(row.split()):
      own.box(
        380 + i * 34 + (i > 3) * 12, 62 + r * 66, 30, 26, column,
        GREEN if i < 4 else RED, size=12,
      )  # fmt: skip
  own.text(380, 242, "device 0", 12, GREEN)
  own.text(528, 242, "device 1", 12, RED)
  own.save("targets")


def processes():
  """One global batch on four hosts, and on three."""
  own = Drawing(640, 230, "Rows of global batches by host")
  colours = (BLUE, ORANGE, GREEN, TEAL)
  parts = (
    (40, "step 7 on four hosts", 84, [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]),
    (140, "step 8 on three: one was lost", 96, [0] * 4 + [1] * 4 + [2] * 4),
  )
  for y, title, first, hosts in parts:
    own.text(20, y - 12, title, 14, bold=True)
    for i, host in enumerate(hosts):
      own.box(20 + i * 50, y, 46, 34, first + i, colours[host])
    for host in sorted(set(hosts)):
      places = [i for i, h in enumerate(hosts) if h == host]
      x = 20 + (places[0] + places[-1] + 1) * 25
      own.text(x, y + 52, f"host {host}", 12, colours[host], "middle")
  own.text(
    20, 218, "Row numbers follow from the step alone, whoever reads them.", 12
  )
  own.save("processes")


def object_store():
  """How chunks come from a bucket to a batch."""
  own = Drawing(680, 190, "How chunks of a store in a bucket are read")
  own.box(20, 40, 110, 60, "plan of the\nnext steps", GREY)
  own.box(180, 40, 110, 60, "chunks they\nneed, in order", GREY)
  own.box(340, 40, 130, 60, "memory\nshuffle_cache_bytes", BLUE, size=12)
  own.box(530, 40, 130, 60, "rows of this\nprocess", GREEN)
  own.box(180, 130, 110, 44, "bucket", ORANGE)
  own.box(340, 130, 130, 44, "local disk\ncache_dir", TEAL, size=12)
  own.arrow(130, 70, 178, 70)
  own.arrow(290, 70, 338, 70)
  own.arrow(470, 70, 528, 70)
  own.arrow(290, 152, 338, 152)
  own.arrow(405, 130, 405, 102)
  own.arrow(235, 100, 235, 128, dash=True)
  own.text(245, 119, "up to 32 requests", 12)
  own.text(478, 158, "checked, retried, hedged", 12)
  own.text(20, 26, "Reading ahead", 15, bold=True)
  own.save("object_store")


def prepare():
  """How prepare makes a store."""
  own = Drawing(680, 200, "How inputs become a store")
  for x, title in (
    (20, "inputs"), (180, "pieces, 32 MiB"), (350, "parts"), (520, "store"),
  ):  # fmt: skip
    own.text(x, 28, title, 15, bold=True)
  own.box(20, 44, 110, 62, "a.jsonl", BLUE)
  own.box(20, 116, 110, 26, "b.parquet", BLUE)
  for i in range(4):
    own.box(180, 44 + i * 25, 110, 20, f"piece {i}", GREY, size=12)
  for i in range(2):
    own.box(350, 50 + i * 50, 110, 36, f"part {i}", ORANGE)
  own.box(520, 44, 140, 26, "tokens/ shard 0", GREEN, size=12)
  own.box(520, 76, 140, 26, "tokens/ shard 1", GREEN, size=12)
  own.box(520, 108, 140, 30, "manifest.json", RED, size=12)
  own.arrow(130, 75, 178, 75)
  own.arrow(130, 129, 178, 129)
  own.arrow(290, 68, 348, 68)
  own.arrow(290, 118, 348, 118)
  own.arrow(460, 68, 518, 60)
  own.arrow(460, 118, 518, 92)
  own.text(180, 165, "workers, in any number", 12)
  own.text(350, 165, "kept when killed", 12)
  own.text(520, 165, "last: now it is complete", 12, RED)
  own.save("prepare")


def edits():
  """Steps of a run with a skip, larger batches and a tombstone."""
  own = Drawing(680, 210, "Data steps, run steps and edits")
  own.text(20, 40, "data steps", 12, bold=True)
  own.text(20, 102, "run steps", 12, bold=True)
  x, run = 110, 0
  for step in range(9):
    width = 46 if step < 6 else 78
    skipped = step in (3, 4)
    fill = LIGHT if skipped else (GREEN if step >= 6 else BLUE)
    own.box(x, 22, width, 30, step, fill, GREY if skipped else "#fff")
    if not skipped:
      own.box(x, 84, width, 30, run, fill)
      own.arrow(x + width / 2, 54, x + width / 2, 80)
      run += 1
    x += width + 4
  own.text(236, 134, "skip = ((3, 4),)", 12)
  own.text(416, 134, "batch_size_schedule = ((0, 8), (6, 16))", 12, GREEN)
  own.box(110, 160, 40, 26, "doc 41", BLUE, size=10)
  own.box(154, 160, 60, 26, "padding", LIGHT, DARK, 11)
  own.box(218, 160, 50, 26, "doc 43", BLUE, size=10)
  own.text(280, 178, "tombstones: document 42 is padding; no row moves", 12)
  own.save("edits")


if __name__ == "__main__":
  for draw in (
    labels, stores, targets, processes, object_store, prepare, edits,
  ):  # fmt: skip
    draw()
