# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""What `prepare` writes is what it wrote: arrays, tables, ids, metadata."""

import json
import pathlib
import tempfile

import pytest

from tests import in_process
from tests.golden import measuring

EXPECTED = measuring.HERE / "prepared.json"
KINDS = {
  "plain": ("--input=text.jsonl",),
  "meta": ("--input=text.jsonl", "--meta_keys=kind,place"),
  "chats": (
    "--input=chats.jsonl",
    "--messages_key=messages",
    "--chat_template=chatml.jinja",
  ),
  "zstd": ("--input=text.jsonl", "--compression=zstd"),
}


_CHATML = (
  "{% for m in messages %}<|im_start|>{{ m.role }}\n{% if m.role =="
  " 'assistant' %}{% generation %}{{ m.content }}<|im_end|>{% endgeneration %}"
  "{% else %}{{ m.content }}<|im_end|>{% endif %}\n{% endfor %}"
)


def write_inputs(root):
  (root / "chatml.jinja").write_text(_CHATML)
  with open(root / "text.jsonl", "w") as file:
    for i in range(300):
      text = f"document {i} " * (i * 7919 % 97)
      record = {"id": f"d{i}", "text": text, "kind": "ab"[i % 2], "place": "x"}
      file.write(json.dumps(record) + "\n")
  with open(root / "chats.jsonl", "w") as file:
    for i in range(60):
      turns = [
        {"role": "user", "content": f"question {i} " * (i % 5 + 1)},
        {"role": "assistant", "content": f"answer {i} " * (i % 7 + 1)},
      ]
      file.write(json.dumps({"id": f"c{i}", "messages": turns}) + "\n")


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
  root = tmp_path_factory.mktemp("prepared")
  write_inputs(root)
  return root


def hashes(root, kind, output):
  """Returns the hash of the store, and of its arrays and files by name."""
  in_process.run_tool(
    "prepare", *KINDS[kind], f"--output={output}", "--tokenizer=byte",
    "--workers=0", cwd=root, check=True,
  )  # fmt: skip
  manifest = json.loads((output / "manifest.json").read_text())
  return {
    "arrays": {
      name: array["sha256"] for name, array in manifest["arrays"].items()
    },
    "files": {name: file["sha256"] for name, file in manifest["files"].items()},
  }


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_has_the_bytes_that_it_had(kind, inputs, tmp_path):
  """`python -m tests.golden.prepared_test` writes them anew, on purpose."""
  wanted = json.loads(EXPECTED.read_text())[kind]
  found = hashes(inputs, kind, tmp_path / "store")
  if kind == "zstd":
    # Of what is compressed a version of the library decides the bytes.
    found = {part: sorted(names) for part, names in found.items()}
    wanted = {part: sorted(names) for part, names in wanted.items()}
  assert found == wanted


def main() -> None:
  with tempfile.TemporaryDirectory() as directory:
    root = pathlib.Path(directory)
    write_inputs(root)
    found = {kind: hashes(root, kind, root / kind) for kind in KINDS}
  EXPECTED.write_text(json.dumps(found, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
  main()
