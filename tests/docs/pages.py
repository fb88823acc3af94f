# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Blocks of the documentation: read, and run as a reader would run them."""

from collections.abc import Callable
from collections.abc import Iterator
import dataclasses
import functools
import pathlib
import re
import shlex
import subprocess
from typing import Any

from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]
DOCS = ROOT / "docs"
# api.md and options.md are made of docstrings.
NAMES = (
  "README.md",
  *sorted({own.name for own in DOCS.glob("*.md")} - {"api.md", "options.md"}),
)
# They take a config, whose 'runlocal' trains a small model for a few steps.
_TRAINERS = (
  "train",
  "examples/dpo.py",
  "examples/own_trainer.py",
  "examples/sft.py",
  "examples/train_buckets.py",
)


@dataclasses.dataclass(frozen=True)
class Block:
  """What stands between two fences.

  Attributes:
    language: What the first fence says, or ''.
    text: Its lines.
  """

  language: str
  text: str


def text(page: str) -> str:
  """Returns a page."""
  return ((ROOT if page == "README.md" else DOCS) / page).read_text()


def blocks(page: str, *languages: str) -> list[Block]:
  """Returns the blocks of a page, in order; of some languages, if any."""
  found = re.findall(r"^```(\w*)\n(.*?)^```$", text(page), re.DOTALL | re.M)
  own = [Block("sh" if name == "bash" else name, text) for name, text in found]
  return [
    block for block in own if not languages or block.language in languages
  ]


def prose(page: str) -> str:
  """Returns a page without its blocks."""
  return re.sub(r"^```.*?^```$", "", text(page), flags=re.DOTALL | re.M)


def captions(page: str) -> list[str]:
  """Returns the commands that made a page's pictures, as captions say them."""
  found = re.findall(r"`(chomp-inspect\s[^`]*html=[^`]*)`", prose(page))
  return [" ".join(own.split()) for own in found]


def lines(block: str) -> Iterator[str]:
  """Yields the commands of a block of sh, without comments."""
  for line in block.replace("\\\n", " ").splitlines():
    # A `#` within a word begins none.
    line = re.sub(r"(^|\s)#\s.*", "", line)
    if line.strip():
      yield " ".join(line.split())


def tool(line: str) -> tuple[str, list[str]] | None:
  """Returns a command's tool, as `run_tool` takes it, and its arguments."""
  words = [own for own in shlex.split(line) if not re.match("[A-Z_]+=", own)]
  if words[:1] == ["python"] and words[1].endswith(".py"):
    return re.sub(r"^tools/(\w+)\.py$", r"\1", words[1]), words[2:]
  if words and words[0].startswith("chomp-"):
    name = words[0].removeprefix("chomp-").replace("-", "_")
    return {"inspect": "inspect_batches"}.get(name, name), words[1:]
  return None


def run_line(line: str) -> subprocess.CompletedProcess[str]:
  """Runs a command; `|| test $? = N` says how it ends.

  A trainer takes its config's 'runlocal', and `prepare` no other processes.
  """
  line, _, expected = line.partition(" || test $? = ")
  found = tool(line)
  assert found, f"pages.py cannot run {line!r}: say why in blocks_test.py"
  name, words = found
  if name in _TRAINERS and not re.search("--write_(chats|pairs)=", line):
    words = _small(words)
  words = [re.sub(r"^--workers=\d+$", "--workers=0", own) for own in words]
  done = in_process.run_tool(name, *words, cwd=pathlib.Path.cwd())
  assert done.returncode == int(expected or 0), (line, done.stderr[-2_000:])
  return done


def run(
  page: str,
  names: dict[str, Any],
  found: dict[str, subprocess.CompletedProcess[str]],
  change: Callable[[str], str],
  skipped: Callable[[str], bool],
) -> None:
  """Runs all blocks of sh and Python of a page, in its order.

  Args:
    page: Its file.
    names: What its Python finds and leaves.
    found: Takes what came of each command that ran.
    change: Changes the text of a block.
    skipped: Whether a command is left out.
  """
  for block in blocks(page, "sh", "python"):
    own = change(block.text)
    if block.text in _examples():
      continue  # It runs as a command.
    if block.language == "python":
      exec(compile(own, page, "exec"), names)
      continue
    for line in lines(own):
      if not skipped(line):
        found[line] = run_line(line)


@functools.cache
def _examples() -> frozenset[str]:
  """Returns the texts of the files in examples/, without their licence."""
  texts = [own.read_text() for own in ROOT.glob("examples/*.py")]
  return frozenset(re.sub(r"(?m)\A(# SPDX-.*\n)*", "", own) for own in texts)


def _small(words: list[str]) -> list[str]:
  if not any(own.startswith("--config=") for own in words):
    return ["--config=packed:runlocal", *words]
  if "--config=mine.py" in words:  # A page's own, which has no `runlocal`.
    return [*words, "--config.model.num_layers=1"]
  return [re.sub(r"^(--config=[^:]+)$", r"\1:runlocal", own) for own in words]
