# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The JSON record is whole, plain JSON, and keeps what it is not given."""

import json

from etils import epath

from chomp_data.reference import report


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
