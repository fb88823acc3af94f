# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Writes the functions, methods and classes of Python's library as JSON lines.

    python examples/stdlib_documents.py --output=data/text

`functions.jsonl` has the functions of modules, `classes.jsonl` the classes of
at most `--class_bytes` bytes, and `methods.jsonl` the methods of longer
classes, so that no line of code is in two files. A line is
{"id": "json/decoder.py:JSONDecoder.decode", "text": "def decode(..."}.
`make train` prepares a store from each.
"""

import ast
from collections.abc import Iterator
from collections.abc import Sequence
import json
import pathlib
import sysconfig
import textwrap
import warnings

from absl import app
from absl import flags

_OUTPUT = flags.DEFINE_string("output", "data/text", "The directory to write.")
_LIBRARY = flags.DEFINE_string(
  "library",
  sysconfig.get_path("stdlib"),
  "The directory of the Python files to read.",
)
_CLASS_BYTES = flags.DEFINE_integer(
  "class_bytes",
  1_500,
  "The longest class that is one document; of a longer one each method is.",
  0,
)

KINDS = ("functions", "methods", "classes")
# Tests, and files that hold tables and no code.
_LEFT_OUT = {
  "dist-packages",
  "encodings",
  "idle_test",
  "site-packages",
  "test",
  "tests",
}


def documents(source: str, class_bytes: int) -> Iterator[tuple[str, str, str]]:
  """Yields the documents of a Python file: (kind, name, code).

  Args:
    source: The file's text.
    class_bytes: The longest class, in bytes of UTF-8, that is one document.

  Raises:
    SyntaxError: If the text is not Python.
  """
  lines = source.splitlines()

  def code(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    first = min(part.lineno for part in (node, *node.decorator_list))
    return textwrap.dedent("\n".join(lines[first - 1 : node.end_lineno]))

  functions = (ast.FunctionDef, ast.AsyncFunctionDef)
  for node in ast.parse(source).body:
    if isinstance(node, functions):
      yield "functions", node.name, code(node)
    elif isinstance(node, ast.ClassDef):
      text = code(node)
      if len(text.encode()) <= class_bytes:
        yield "classes", node.name, text
        continue
      for method in node.body:
        if isinstance(method, functions):
          yield "methods", f"{node.name}.{method.name}", code(method)


def write(library: pathlib.Path, output: pathlib.Path, class_bytes: int):
  """Writes a file of each kind, and returns how many documents each has."""
  output.mkdir(parents=True, exist_ok=True)
  texts: dict[str, dict[str, str]] = {kind: {} for kind in KINDS}
  for path in sorted(library.rglob("*.py")):
    relative = path.relative_to(library)
    if _LEFT_OUT & set(relative.parts):
      continue
    try:
      with warnings.catch_warnings(action="ignore"):
        file_documents = list(documents(path.read_text(), class_bytes))
    except (SyntaxError, ValueError):
      continue  # Templates and other texts that end in .py.
    for kind, name, text in file_documents:
      # A name that is defined again, as in `if` branches, keeps its first code.
      texts[kind].setdefault(f"{relative.as_posix()}:{name}", text)
  for kind, by_id in texts.items():
    with (output / f"{kind}.jsonl").open("w", encoding="utf-8") as file:
      for identity, text in by_id.items():
        file.write(json.dumps({"id": identity, "text": text}) + "\n")
  return {kind: len(by_id) for kind, by_id in texts.items()}


def main(argv: Sequence[str]) -> None:
  if len(argv) > 1:
    raise app.UsageError(f"Unexpected arguments: {' '.join(argv[1:])}")
  output = pathlib.Path(_OUTPUT.value)
  counts = write(pathlib.Path(_LIBRARY.value), output, _CLASS_BYTES.value)
  for kind, count in counts.items():
    print(f"{output / kind}.jsonl: {count:,} documents")


if __name__ == "__main__":
  app.run(main)
