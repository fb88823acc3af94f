"""A corpus of real text, prepared once a session by the real tool."""

import pathlib
import subprocess
import sys
import sysconfig

import hypothesis
import pytest

ROOT = pathlib.Path(__file__).parents[1]

hypothesis.settings.register_profile(
  "default", deadline=None, derandomize=True, print_blob=True
)
hypothesis.settings.register_profile(
  "nightly", deadline=None, max_examples=5_000
)
hypothesis.settings.load_profile("default")


@pytest.fixture(scope="session")
def stdlib_store(tmp_path_factory):
  """A store of the top of the standard library's sources, as a path."""
  output = tmp_path_factory.mktemp("stdlib") / "store"
  stdlib = sysconfig.get_path("stdlib")
  subprocess.run(
    [
      sys.executable,
      str(ROOT / "tools" / "prepare.py"),
      f"--input={stdlib}/*.py",
      f"--output={output}",
      "--tokenizer=byte",
      "--workers=0",
    ],
    check=True,
    capture_output=True,
  )
  return str(output)
