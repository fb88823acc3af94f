"""The block of docs/torch.md trains, and goes on where it was."""

import pathlib
import re

import numpy as np
import pytest

PAGE = pathlib.Path(__file__).parents[2] / "docs" / "torch.md"


def test_the_block_trains_and_resumes(stdlib_store, tmp_path, monkeypatch):
  pytest.importorskip("torch")
  (tmp_path / "data").mkdir()
  (tmp_path / "data" / "stdlib").symlink_to(stdlib_store)
  monkeypatch.chdir(tmp_path)
  (block,) = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
  names: dict = {}
  exec(block, names)
  losses = names["losses"]
  assert len(losses) == 10
  assert np.isfinite(losses).all()
  assert losses[-1] < losses[0]
  pipe = names["pipe"]
  following = next(names["batches"])
  for name, value in pipe.batch(10).items():
    np.testing.assert_array_equal(following[name], value)


def test_a_state_holds_for_any_number_of_ranks(stdlib_store):
  """As the page says; it needs no torch."""
  import chomp_data

  options = [f"data.sources.stdlib.store={stdlib_store}"]
  pipe = chomp_data.build(
    chomp_data.load_config("packed:runlocal", options).data
  )
  half = pipe.global_batch_size // 2
  ranks = [np.arange(half), np.arange(half, 2 * half)]
  first, second = (iter(pipe.data_loader(rows)) for rows in ranks)
  for _ in range(3):
    next(first)
    next(second)
  state = first.get_state()
  assert state == second.get_state()
  alone = iter(pipe.data_loader())
  alone.set_state(state)
  second.set_state(state)
  whole, part = next(alone), next(second)
  np.testing.assert_array_equal(whole["tokens"], pipe.batch(3)["tokens"])
  np.testing.assert_array_equal(whole["tokens"][half:], part["tokens"])
