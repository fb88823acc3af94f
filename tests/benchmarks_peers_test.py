# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""benchmarks/peers.py on a corpus of a few hundred documents.

Other loaders are in an environment of their own; ours, stock Grain and the raw
gather are always here.
"""

import sys

import pytest

from tests import benchmarks_test

pytestmark = pytest.mark.slow
number = benchmarks_test.number
_SMALL = ("--documents=400", "--repeats=2", "--resume_step=5")


@pytest.fixture(scope="module")
def tables(tmp_path_factory):
  return benchmarks_test.run(
    "peers",
    tmp_path_factory.mktemp("peers"),
    *_SMALL,
    "--loaders=gather,chomp,grain_stock,lit",
    "--kind=one source",
    "--kind=packed, ffd",
    "--peers_python=no/such/python",
  )


def test_speeds_are_below_the_raw_gather(tables):
  speeds = [line for line in tables[0] if line["how"] != "not installed"]
  assert [(line["loader"].split(" ")[0], line["what"]) for line in speeds] == [
    ("raw", "one source"),
    ("Grain", "one source"),
    ("chomp_data", "packed, ffd"),
  ]
  # In CPU time: on a busy machine either may wait while the other runs.
  gather, *others = (number(line["Mtokens / CPU s"]) for line in speeds)
  assert all(0 < other < gather for other in others)
  assert all(number(line["of the raw gather"]) > 0 for line in speeds[1:])


def test_ours_resumes_and_loses_only_what_fills_no_batch(tables):
  ours = tables[1][0]
  assert ours["loader"].startswith("chomp_data")
  assert ours["the batch that was to come"] == "yes"
  # 280 documents are 18 batches; of a last one at most 7 rows are left out.
  assert number(ours["left out"]) < 100 * 7 / (18 * 8)
  assert "segment_ids" in ours["fields"].split(", ")


def test_ranks_of_ours_hold_the_rows_of_one(tables):
  ours, grain = (
    line["two ranks hold the rows of one, step by step"]
    for line in tables[2][:2]
  )
  assert ours == "yes"
  # Grain shards documents before it packs them: the comparison can say no.
  assert grain.startswith("no (")


def test_what_is_not_installed_is_said_and_not_measured(tables):
  for table in tables:
    (line,) = (line for line in table if "LitData" in line.values())
    assert "not installed" in line.values()
    assert not any(own[:1].isdigit() for own in line.values())


# A peer that has every module, and ends after some replies.
_PEER = """#!{python}
import json, sys
if sys.argv[1] == "-c":
  sys.exit()
about = {{"version": "1.0", "kinds": {{"one source": "`Peer`"}}}}
for reply in [about, *[{{"found": 1.0}}] * 9][:{replies}]:
  print(json.dumps(reply), flush=True)
  sys.stdin.readline()
sys.exit("room for no token")
"""


@pytest.mark.parametrize(
  ("replies", "told"),
  [(0, "does not start"), (1, "does not start"), (2, "failed"), (3, "failed")],
)
def test_a_peer_that_ends_is_told_and_the_others_are_compared(
  tmp_path, replies, told
):
  peer = tmp_path / "python"
  peer.write_text(_PEER.format(python=sys.executable, replies=replies))
  peer.chmod(0o755)
  (lines,) = benchmarks_test.run(
    "peers",
    tmp_path,
    *_SMALL,
    "--parts=speed",
    "--loaders=gather,lit",
    "--kind=one source",
    f"--peers_python={peer}",
  )
  speeds = {line["loader"]: line["Mtokens / CPU s"] for line in lines}
  assert number(speeds.pop("raw gather")) > 0
  (line,) = (line for line in lines if line["loader"] != "raw gather")
  assert line["loader"].startswith("LitData")
  assert line["how"] == f"{told}: room for no token"
  assert not line["Mtokens / CPU s"]
