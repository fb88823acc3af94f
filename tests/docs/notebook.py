# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Runs the tutorial notebook and saves its outputs.

    python -m tests.docs.notebook

Cells run in order in one fresh process, as Jupyter runs them: with commands
(`!`), `%%writefile`, and the figures that matplotlib has at the end of a cell.
"""

import base64
import contextlib
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
from typing import Any

ROOT = pathlib.Path(__file__).parents[2]
NOTEBOOK = ROOT / "docs" / "tutorial.ipynb"


def executed(directory: pathlib.Path) -> dict[str, Any]:
  """Returns the notebook with new outputs.

  Args:
    directory: Where its cells run, and write.

  Raises:
    RuntimeError: If a cell fails.
  """
  with tempfile.NamedTemporaryFile("w+") as file:
    done = subprocess.run(
      [sys.executable, "-m", "tests.docs.notebook", str(NOTEBOOK), file.name],
      cwd=directory,
      env={
        **os.environ,
        "MPLBACKEND": "agg",
        "PATH": f"{pathlib.Path(sys.executable).parent}:{os.environ['PATH']}",
        "PYTHONPATH": str(ROOT),
        "COLUMNS": "88",
      },
      capture_output=True,
      text=True,
      check=False,
    )
    if done.returncode:
      raise RuntimeError(done.stderr)
    return json.load(file)


def _run(notebook: dict[str, Any]) -> None:
  """Runs the cells in this process, and adds their outputs."""
  sys.path.insert(0, "")
  names: dict[str, Any] = {"__name__": "__main__"}
  count = 0
  for cell in notebook["cells"]:
    if cell["cell_type"] == "code":
      count += 1
      cell["execution_count"] = count
      cell["outputs"] = _outputs("".join(cell["source"]), names)


def _outputs(source: str, names: dict[str, Any]) -> list[dict[str, Any]]:
  printed = io.StringIO()
  with contextlib.redirect_stdout(printed):
    first, _, rest = source.partition("\n")
    if first.startswith("%%writefile "):
      path = pathlib.Path(first.removeprefix("%%writefile "))
      path.write_text(rest + "\n")
      print(f"Writing {path}")
    elif source.startswith("!"):
      for line in source.splitlines():
        print(_command(line.removeprefix("!")), end="")
    else:
      exec(compile(source, "cell", "exec"), names)
  text = printed.getvalue()
  stream = {
    "output_type": "stream",
    "name": "stdout",
    "text": text.splitlines(keepends=True),
  }
  return [*([stream] if text else []), *_figures()]


def _command(line: str) -> str:
  return subprocess.run(
    line, shell=True, check=True, stdout=subprocess.PIPE, text=True
  ).stdout


def _figures() -> list[dict[str, Any]]:
  """Returns the open figures as outputs, and closes them."""
  plt = sys.modules.get("matplotlib.pyplot")
  if plt is None:
    return []
  outputs = []
  for number in plt.get_fignums():
    image = io.BytesIO()
    plt.figure(number).savefig(image, format="png", dpi=100)
    data = base64.b64encode(image.getvalue()).decode()
    outputs.append(
      {
        "output_type": "display_data",
        "data": {"image/png": data},
        "metadata": {},
      }
    )
  plt.close("all")
  return outputs


def _main(arguments: list[str]) -> None:
  if arguments:
    path, output = map(pathlib.Path, arguments)
    notebook = json.loads(path.read_text())
    _run(notebook)
  else:
    output = NOTEBOOK
    with tempfile.TemporaryDirectory() as directory:
      notebook = executed(pathlib.Path(directory))
  text = json.dumps(notebook, indent=1, ensure_ascii=False)
  output.write_text(text + "\n")


if __name__ == "__main__":
  _main(sys.argv[1:])
