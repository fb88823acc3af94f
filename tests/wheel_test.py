# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The wheel needs no checkout: commands and configs run from it."""

import os
import pathlib
import shutil
import subprocess
import sys
import zipfile

import pytest

ROOT = pathlib.Path(__file__).parents[1]
COMMANDS = {
  "chomp-prepare", "chomp-diff", "chomp-inspect",
  "chomp-losses", "chomp-stores", "chomp-simulate", "chomp-trace",
  "chomp-train", "chomp-verify-run",
}  # fmt: skip


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
  """A wheel of the working tree; the build leaves nothing in it."""
  directory = tmp_path_factory.mktemp("wheel")
  source = directory / "source"
  skipped = shutil.ignore_patterns("__pycache__")
  for name in ("chomp_data", "configs"):
    shutil.copytree(ROOT / name, source / name, symlinks=True, ignore=skipped)
  for name in ("pyproject.toml", "README.md", "LICENSE"):
    shutil.copy(ROOT / name, source)
  command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps"]
  command += ["--no-build-isolation", "--wheel-dir", directory, source]
  subprocess.run(command, check=True)
  (made,) = directory.glob("*.whl")
  return made


@pytest.mark.slow
def test_the_wheel_holds_the_package_its_types_and_the_configs(wheel):
  names = set(zipfile.ZipFile(wheel).namelist())
  package = {
    str(path.relative_to(ROOT))
    for ending in ("py", "html", "css", "js")
    for path in (ROOT / "chomp_data").rglob(f"*.{ending}")
  }
  configs = {
    f"chomp_data/configs/{path.name}" for path in ROOT.glob("configs/*.py")
  }
  of_package = {own for own in names if ".dist-info/" not in own}
  types = {"chomp_data/py.typed", "chomp_data/__init__.pyi"}
  assert of_package == package | configs | types
  (entries,) = (own for own in names if own.endswith("entry_points.txt"))
  text = zipfile.ZipFile(wheel).read(entries).decode()
  found = {line.split(" = ")[0] for line in text.splitlines() if "=" in line}
  assert found == COMMANDS


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_commands_of_the_wheel_run_in_an_empty_directory(wheel, tmp_path):
  installed, empty = tmp_path / "installed", tmp_path / "empty"
  zipfile.ZipFile(wheel).extractall(installed)
  empty.mkdir()
  environment = {**os.environ, "PYTHONPATH": str(installed)}

  def run(command, *flags):
    code = (
      "import importlib.metadata, chomp_data, sys;"
      f"assert chomp_data.__file__.startswith({str(installed)!r});"
      "found = importlib.metadata.distribution('chomp_data').entry_points;"
      "sys.argv = sys.argv[1:];"
      "found.select(name=sys.argv[0])[sys.argv[0]].load()()"
    )
    return subprocess.run(
      [sys.executable, "-c", code, command, *flags],
      cwd=empty,
      env=environment,
      capture_output=True,
      text=True,
    )

  corpus = pathlib.Path(os.__file__).parent / "json"
  done = run("chomp-prepare", f"--input={corpus}/*.py", "--output=data/stdlib")
  assert done.returncode == 0, done.stderr
  shown = run("chomp-inspect", "--config=packed:runlocal", "--format=json")
  assert shown.returncode == 0, shown.stderr
  assert '"source": "stdlib"' in shown.stdout
  shown = run("chomp-inspect", "--config=packed:runlocal", "--html=page.html")
  assert shown.returncode == 0, shown.stderr
  assert (empty / "page.html").read_text().startswith("<!doctype html>")
  helped = run("chomp-train", "--help")
  assert "chomp-train --config=splice_multi" in helped.stdout
  names = "block_shuffle, context_parallel, fill_in_the_middle, "
  assert names in helped.stdout
