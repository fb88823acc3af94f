# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Every Python file names its licence, and the package's are the same."""

import pathlib
import tomllib

import chomp_data

ROOT = pathlib.Path(__file__).parents[1]
_LINES = (
  "# SPDX-FileCopyrightText: 2026 The chomp_data Authors\n"
  "# SPDX-License-Identifier: Apache-2.0\n"
)
_FOLDERS = ("benchmarks", "chomp_data", "configs", "examples", "tests", "tools")


def test_every_python_file_begins_with_its_licence():
  files = [path for name in _FOLDERS for path in (ROOT / name).rglob("*.py")]
  assert len(files) > 500
  without = [
    str(path.relative_to(ROOT))
    for path in files
    if _LINES not in path.read_text()[: 2 * len(_LINES)]
  ]
  assert without == []


def test_the_project_names_its_licence_version_and_files():
  project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
  assert project["license"] == "Apache-2.0"
  assert set(project["license-files"]) == {"LICENSE", "NOTICE"}
  assert "The chomp_data Authors" in (ROOT / "NOTICE").read_text()
  citation = (ROOT / "CITATION.cff").read_text()
  assert f"version: {chomp_data.__version__}\n" in citation
  changelog = (ROOT / "CHANGELOG.md").read_text()
  assert f"## {chomp_data.__version__}" in changelog
