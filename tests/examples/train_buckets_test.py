"""The classifier of pictures trains, resumes, and compiles each size once."""

import pathlib
import re
import subprocess
import sys

from chomp_data.prepare import images
from chomp_data.stores import samples_array_record

ROOT = pathlib.Path(__file__).parents[2]


def run(tmp_path, stores, *args):
  done = subprocess.run(
    [
      sys.executable,
      str(ROOT / "examples" / "train_buckets.py"),
      f"--config={ROOT}/configs/resolution_buckets.py:runlocal",
      f"--workdir={tmp_path / 'run'}",
      *(
        f"--config.data.sources.{name}.store={path}"
        for name, path in stores.items()
      ),
      *args,
    ],
    capture_output=True,
    text=True,
    timeout=200,
  )
  assert done.returncode == 0, done.stderr[-3000:]
  return done.stdout


def test_the_example_trains_and_resumes(tmp_path):
  stores = {name: tmp_path / name for name in images.DATASETS}
  for name, path in stores.items():
    samples_array_record.write_samples(path, images.samples(name, 80))
  first = run(tmp_path, stores, "--config.train.num_steps=6")
  assert "4 static shapes (resolution), by pixels" in first
  assert "resumed" not in first
  out = run(tmp_path, stores)
  assert "resumed at step 6" in out
  assert re.search(r"step 12: digits: \d+ batches, loss [\d.]+", out)
  histogram = re.search(r"histogram: (.*)", out)[1]
  assert "'digits'" in histogram
  assert "'64x64'" in histogram
  compiled = int(re.search(r"compiled: (\d+) shapes", out)[1])
  assert 1 <= compiled <= 4
