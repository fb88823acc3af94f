# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Pictures of several sizes: the same every time, and one can learn them."""

import json
import pathlib
import sys

import numpy as np
import pytest

from chomp_data import errors
from chomp_data.stores import samples
from examples import drawings
from tests import in_process

ROOT = pathlib.Path(__file__).parents[2]
FIELDS = {"pixels": samples.ArrayField(("height", "width", 3), "uint8")}


@pytest.mark.parametrize("dataset", drawings.DATASETS)
def test_pictures_are_of_their_size_and_named_by_their_label(dataset):
  sizes = ((32, 48), (64, 40))
  drawn = list(drawings.samples(dataset, 40, sizes=sizes))
  assert len(drawn) == 40
  for arrays, values in drawn:
    size = values["height"], values["width"]
    assert size in sizes
    assert arrays["pixels"].shape == (*size, 3)
    assert arrays["pixels"].dtype == np.uint8
    assert drawings.NAMES[values["label"]] == values["name"]
    # Ink on paper.
    assert np.ptp(arrays["pixels"].astype(int), axis=(0, 1)).max() > 40
  own = drawings.DIGITS if dataset == "digits" else drawings.PLOTS
  assert {values["name"] for _, values in drawn} <= set(own)
  assert len({values["name"] for _, values in drawn}) > 3
  assert {(v["height"], v["width"]) for _, v in drawn} == set(sizes)


@pytest.mark.parametrize("dataset", drawings.DATASETS)
def test_a_picture_depends_on_its_number_and_seed_alone(dataset):
  def drawn(count, seed=0):
    return [
      (arrays["pixels"].tobytes(), values)
      for arrays, values in drawings.samples(dataset, count, seed=seed)
    ]

  assert drawn(20)[:7] == drawn(7) == drawn(7)
  assert len({pixels for pixels, _ in drawn(20)}) == 20
  assert drawn(7, seed=1) != drawn(7)


def test_a_nearest_mean_tells_digits_better_than_chance():
  drawn = list(drawings.samples("digits", 600, sizes=((32, 32),)))
  pixels = np.stack([arrays["pixels"].mean(-1) for arrays, _ in drawn])
  is_ink = pixels < (pixels.max((1, 2)) + pixels.min((1, 2)))[:, None, None] / 2
  # Where digits stand and how large they are is drawn by lot: their frame.
  marks = np.stack([framed(own) for own in is_ink])
  labels = np.asarray([values["label"] for _, values in drawn])
  means = np.stack([marks[:400][labels[:400] == k].mean(0) for k in range(10)])
  distances = ((marks[400:, None] - means) ** 2).sum((2, 3))
  assert (distances.argmin(1) == labels[400:]).mean() > 0.6


def framed(is_ink):
  rows, columns = np.flatnonzero(is_ink.any(1)), np.flatnonzero(is_ink.any(0))
  y = np.linspace(rows[0], rows[-1], 12).round().astype(int)
  x = np.linspace(columns[0], columns[-1], 12).round().astype(int)
  return is_ink[np.ix_(y, x)].astype(float)


@pytest.mark.parametrize(
  ("arguments", "message"),
  [
    ({"dataset": "cats"}, "one of 'digits', 'plots', got 'cats'"),
    ({"count": 0}, "`count` must be at least 1, got 0"),
    ({"sizes": ()}, r"`sizes` must hold one size or more, each once, got \[\]"),
    ({"sizes": ((32, 32), (32, 32))}, "each once"),
    ({"sizes": ((8, 32),)}, r"16 to 1024 pixels, got \(8, 32\)"),
    ({"sizes": ((32, 2_000),)}, r"got \(32, 2000\)"),
  ],
)
def test_bad_arguments_are_errors(arguments, message):
  arguments = {"dataset": "digits", "count": 3, **arguments}
  with pytest.raises(errors.PrepareError, match=message):
    list(drawings.samples(**arguments))


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
  monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
  with pytest.raises(errors.PrepareError, match="the extra `plots`"):
    list(drawings.samples("plots", 1))


def run_tool(*flags):
  return in_process.run_tool("examples/prepare_images.py", *flags)


def test_the_tool_writes_both_formats_once(tmp_path):
  pytest.importorskip("pyarrow")
  flags = (
    f"--output={tmp_path / 'out'}",
    "--count=digits=25,plots=15",
    "--sizes=32x32,32x48",
    "--samples_per_file=10",
  )
  result = run_tool(*flags)
  assert result.returncode == 0, result.stderr
  assert f"{tmp_path}/out/arrow/plots: 15 pictures" in result.stdout
  for name, count in (("digits", 25), ("plots", 15)):
    expected = list(drawings.samples(name, count, sizes=((32, 32), (32, 48))))
    for kind in ("array_record", "arrow"):
      store = samples.open_samples(
        tmp_path / "out" / kind / name, fields=FIELDS
      )
      assert store.num_samples == count
      for i, (arrays, values) in enumerate(expected):
        np.testing.assert_array_equal(
          store.read([i])["pixels"][0], arrays["pixels"]
        )
        found = store.metadata([i])
        assert {key: own[0] for key, own in found.items()} == values
  again = run_tool(*flags)
  assert again.returncode == 0
  assert again.stdout.count("nothing to do") == 4
  other = run_tool(*flags, "--seed=1")
  assert other.returncode == 1
  assert "must hold the pictures of these flags or not exist" in other.stderr
  assert "Traceback" not in other.stderr
  options = json.loads((tmp_path / "out/arrow/digits.json").read_text())
  assert options["count"] == 25
  # Flags are checked before they are compared with what is there.
  wrong = run_tool(*flags, "--sizes=8x8")
  assert wrong.returncode == 1
  assert "16 to 1024 pixels" in wrong.stderr
  (tmp_path / "out/arrow/digits.json").write_text("{")
  damaged = run_tool(*flags)
  assert damaged.returncode == 1
  assert "got a damaged" in damaged.stderr
  assert "Traceback" not in damaged.stderr


def test_a_flag_that_is_given_again_adds_to_it(tmp_path):
  result = run_tool(
    f"--output={tmp_path / 'out'}",
    "--count=digits=5",
    "--count=plots=0",
    "--sizes=32x32",
    "--sizes=16x16",
    "--format=array_record",
    "--format=array_record",
  )
  assert result.returncode == 0, result.stderr
  assert [path.name for path in tmp_path.glob("out/*/*/")] == ["digits"]
  store = samples.open_samples(
    tmp_path / "out/array_record/digits", fields=FIELDS
  )
  assert store.num_samples == 5
  assert set(store.sizes()[0].tolist()) <= {16, 32}


@pytest.mark.parametrize(
  ("flags", "message"),
  [
    (["--count=digits=0,plots=0"], "`--count` must be above 0 for one dataset"),
    (["--count=digits=0", "--count=plots=0"], "must be above 0 for one"),
    (["--count=digits=1", "--count=digits=2"], "each dataset once, got 'digi"),
    (["--sizes=32x32", "--sizes=32x32"], "each once, got"),
    (["--format=arrow", "--format=zip"], "got 'zip'"),
    (["--count=cats=3"], "`--count` must be <dataset>=<number> of digits"),
    (["--sizes=32"], "`--sizes` must be heights x widths, as 32x48, got '32'"),
    (["--sizes=8x8"], "16 to 1024 pixels"),
    (["--format=zip"], "`--format` must be of array_record, arrow, got 'zip'"),
    (["more"], "Unexpected arguments: more"),
  ],
)
def test_bad_flags_are_one_line(tmp_path, flags, message):
  result = run_tool(f"--output={tmp_path / 'out'}", *flags)
  assert result.returncode == 1
  assert message in result.stderr + result.stdout
  assert "Traceback" not in result.stderr
