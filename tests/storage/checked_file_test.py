# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Files with a checksum of every page."""

import contextlib

import google_crc32c
from hypothesis import given
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.storage import checked_file

PAGE = 64


def written(path, values):
  """A file of values, and the checksums of its pages."""
  path.write_bytes(values.tobytes())
  return checked_file.page_sums(values.tobytes(), PAGE)


def opened(path, values, crc32c):
  return checked_file.CheckedFile(
    path, values.dtype, crc32c, page_bytes=PAGE, remedy="Restore it."
  )


def flip(path, position):
  data = bytearray(path.read_bytes())
  data[position] ^= 1
  path.write_bytes(data)


@given(st.binary(max_size=300), st.integers(1, 70), st.data())
def test_sums_of_pieces_are_those_of_pages(data, page_bytes, draw):
  cuts = draw.draw(st.lists(st.integers(0, len(data))).map(sorted))
  sums = checked_file.PageSums(page_bytes)
  for low, high in zip([0, *cuts], [*cuts, len(data)], strict=True):
    sums.update(data[low:high])
  assert sums.crc32c() == [
    google_crc32c.value(data[low : low + page_bytes])
    for low in range(0, len(data), page_bytes)
  ]
  assert sums.num_bytes == len(data)


def test_the_first_page_that_differs_is_named():
  data = bytes(range(200))
  sums = checked_file.page_sums(data, PAGE)
  differs = checked_file.first_difference
  assert differs(data, sums, PAGE) is None
  assert differs(data[:130] + b"x" + data[131:], sums, PAGE) == 2
  assert differs(data[:-1], sums, PAGE) == 3
  assert differs(data + bytes(PAGE), sums, PAGE) == 3
  assert differs(data[: 2 * PAGE], sums, PAGE) == 2


@pytest.mark.parametrize("dtype", [np.uint8, np.uint16, np.int64])
@pytest.mark.parametrize("size", [0, 1, 32, 33, 500])
def test_reads_what_was_written(tmp_path, dtype, size):
  values = np.sort(np.arange(size) * 7 % 250).astype(dtype)
  file = opened(tmp_path / "a", values, written(tmp_path / "a", values))
  assert len(file) == size
  assert np.array_equal(file.read(), values)
  at = np.arange(size)[::-3]
  assert np.array_equal(file.gather(at), values[at])
  some = np.asarray([0, 3, 249, 10**6])
  if size:
    expected = np.searchsorted(values.astype(np.int64), some, "right")
    assert np.array_equal(file.search(some), expected)


@given(
  steps=st.lists(st.integers(0, 9), max_size=60),
  dtype=st.sampled_from((np.int64, np.uint32)),
  draw=st.data(),
)
def test_what_is_damaged_is_an_error_or_was_not_read(
  tmp_path_factory, steps, dtype, draw
):
  path = tmp_path_factory.mktemp("a") / "file"
  values = np.cumsum(steps).astype(dtype)
  crc32c = written(path, values)
  is_altered = len(values) and draw.draw(st.booleans())
  if is_altered:
    flip(path, draw.draw(st.integers(0, values.nbytes - 1)))
  file = opened(path, values, crc32c)
  numbers = st.integers(0, max(0, len(values) - 1))
  at = np.asarray(draw.draw(st.lists(numbers)) if steps else [], np.int64)
  asked = np.asarray(draw.draw(st.lists(st.integers(0, 2**40))), np.int64)
  asked = np.concatenate([asked, values.astype(np.int64)])
  start, stop = sorted([draw.draw(numbers), draw.draw(numbers)])
  failing = [stores.StoreError] if is_altered else []
  with contextlib.suppress(*failing):
    assert np.array_equal(file.gather(at), values[at])
  with contextlib.suppress(*failing):
    file.check(at, np.full(len(at), len(values)))
    assert not len(at) or np.array_equal(
      file.values[at.min() :], values[at.min() :]
    )
  with contextlib.suppress(*failing):
    assert np.array_equal(file.read(start, stop), values[start:stop])
  if steps:
    expected = np.searchsorted(values.astype(np.int64), asked, "right")
    with contextlib.suppress(*failing):
      assert np.array_equal(file.search(asked), expected)


def test_an_altered_page_is_an_error_and_only_that_one(tmp_path):
  values = np.arange(100, dtype=np.uint16)
  crc32c = written(tmp_path / "a", values)
  flip(tmp_path / "a", 70)
  file = opened(tmp_path / "a", values, crc32c)
  assert file.read(0, 32)[-1] == 31
  assert file.read(64)[0] == 64
  message = (
    r"a: page 1 must have crc32c [0-9a-f]{8}, got [0-9a-f]{8} \(bytes 64 \.\."
    r" 127\)\. Restore it\."
  )
  for _ in range(2):
    with pytest.raises(stores.StoreError, match=message):
      file.read(31, 33)
  with pytest.raises(stores.StoreError, match=message):
    file.gather(np.asarray([0, 40]))
  with pytest.raises(stores.StoreError, match=message):
    file.search(np.asarray([34]))
  file.check(np.asarray([0, 64]), np.asarray([32, 100]))
  with pytest.raises(stores.StoreError, match=message):
    file.check(np.asarray([70, 0]), np.asarray([72, 100]))


def test_a_page_is_verified_once(tmp_path):
  values = np.arange(100, dtype=np.uint16)
  file = opened(tmp_path / "a", values, written(tmp_path / "a", values))
  file.read(0, 3)
  with open(tmp_path / "a", "r+b") as out:
    out.write(b"\1")
  assert file.read(0, 1) == 1


def test_a_file_without_checksums_is_read_as_it_is(tmp_path):
  values = np.arange(100, dtype=np.uint16)
  written(tmp_path / "a", values)
  file = opened(tmp_path / "a", values, None)
  file.check(np.asarray([0]), np.asarray([100]))
  assert np.array_equal(file.read(), values)


def test_a_file_of_another_size_is_refused(tmp_path):
  values = np.arange(100, dtype=np.uint16)
  crc32c = written(tmp_path / "a", values)
  with pytest.raises(
    stores.StoreError, match="must hold 99 values of uint16 in 198 bytes, got"
  ):
    checked_file.CheckedFile(
      tmp_path / "a", np.uint16, None, size=99, remedy="Restore it."
    )
  with pytest.raises(stores.StoreError, match="must be of 3 pages of 64"):
    opened(tmp_path / "a", values, crc32c[1:])
  (tmp_path / "a").write_bytes(b"123")
  with pytest.raises(stores.StoreError, match="in 2 bytes, got 3 "):
    opened(tmp_path / "a", values, None)
  with pytest.raises(stores.StoreError, match="none: must be readable"):
    opened(tmp_path / "none", values, None)


@given(st.lists(st.binary(max_size=100)), st.integers(0, 300))
def test_a_writer_continues_a_file(tmp_path_factory, pieces, kept):
  path = tmp_path_factory.mktemp("a") / "file"
  data = b"".join(pieces)
  path.write_bytes(data[:kept] + b"beyond")
  kept = min(kept, len(data))
  writer = checked_file.CheckedWriter(path, kept, PAGE)
  writer.write(data[kept:])
  writer.close()
  assert path.read_bytes() == data
  assert writer.sums.crc32c() == checked_file.page_sums(data, PAGE)
  pages = []
  sums = checked_file.sums_of(path, PAGE, pages.append)
  assert b"".join(pages) == data
  assert sums.crc32c() == writer.sums.crc32c()


def test_a_writer_refuses_to_continue_a_shorter_file(tmp_path):
  (tmp_path / "a").write_bytes(b"123")
  with pytest.raises(ValueError, match="must have 4 bytes, got fewer"):
    checked_file.CheckedWriter(tmp_path / "a", 4)
