# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The end of a run: a record, one table, and a picture."""

import json
import math
import types

from etils import epath
import numpy as np

from chomp_data.audit import coverage as coverage_lib
from chomp_data.reference import report

_HISTORY = [
  {
    "step": step,
    "train/loss": loss,
    "train/loss/web": loss,
    "tokens/web": 900 * step,
    "train/loss/code": None,
    "tokens/code": 0,
  }
  for step, loss in ((10, 5.5), (20, 4.25))
]


def _coverage(source, lengths):
  count = len(lengths)
  zeros = np.zeros(count, np.int64)
  return coverage_lib.Coverage(
    source=source,
    document=np.arange(count),
    length=np.asarray(lengths, np.int64),
    rows=zeros,
    tokens=zeros,
    distinct=zeros,
    columns=zeros,
  )


def _record(rows, tokens, share, intended):
  return {
    "rows": rows,
    "tokens": tokens,
    "share": share,
    "intended_share": intended,
    "epochs": 0.5,
  }


def _sources(kind="rows"):
  pipe = types.SimpleNamespace(
    run_options=types.SimpleNamespace(kind=kind), seq_len=1_000
  )
  records = {
    "code": _record(0, 0, 0.0, 0.1),
    "web": _record(20, 18_000, 1.0, 0.9),
  }
  read = [_coverage("code", []), _coverage("web", [100, 500, 3_000])]
  return report.sources(pipe, records, read, _HISTORY)


def test_rows_are_compared_with_rows_of_one_document():
  web, code = _sources()
  assert (web["name"], web["documents"], web["loss"]) == ("web", 3, 4.25)
  assert web["filled"] == 18_000 / 20_000
  assert web["filled_alone"] == (100 + 500 + 1_000) / 3_000
  assert (code["filled"], code["filled_alone"]) == (None, None)
  assert math.isnan(code["loss"])


def test_rows_of_several_lengths_have_no_utilisation():
  assert [source["filled"] for source in _sources("length")] == [None] * 2


def test_the_table_has_a_line_a_source_and_the_loss():
  lines = report.lines(_sources(), _HISTORY)
  assert [line.split() for line in lines[:3]] == [
    [
      "source",
      "tokens",
      "share",
      "wanted",
      "epochs",
      "loss",
      "documents",
      "filled",
    ],
    ["web", "18,000", "100.00%", "90.00%", "0.5", "4.2500", "3", "90.0%"],
    ["code", "0", "0.00%", "10.00%", "0.5", "-", "0", "-"],
  ]
  assert lines[3].startswith("With one document in each row, 53.3% of")
  assert lines[4] == (
    "Training loss: 5.50 nats per token at step 10, 4.25 at step 20."
  )


def test_the_picture_is_drawn_with_gaps_and_without_utilisation(tmp_path):
  for kind in ("rows", "length"):
    path = tmp_path / f"{kind}.png"
    assert report.draw(str(path), _sources(kind), _HISTORY)
    assert path.read_bytes().startswith(b"\x89PNG")
  assert not report.draw(str(tmp_path / "none.png"), _sources(), [])
  assert not (tmp_path / "none.png").exists()


def test_fields_that_are_not_given_again_are_kept(tmp_path):
  path = epath.Path(tmp_path) / "metrics.json"
  report.write_json(path, {"loss": 1.5, "step": 3})
  report.write_json(path, {"step": 3, "evaluation": {}})
  assert json.loads(path.read_text()) == {
    "loss": 1.5,
    "step": 3,
    "evaluation": {},
  }
  assert [p.name for p in tmp_path.iterdir()] == ["metrics.json"]


def test_a_loss_over_no_token_is_null(tmp_path):
  path = epath.Path(tmp_path) / "metrics.json"
  report.write_json(path, {"text": [{"loss": float("nan")}]})
  assert "NaN" not in path.read_text()
  assert json.loads(path.read_text()) == {"text": [{"loss": None}]}
