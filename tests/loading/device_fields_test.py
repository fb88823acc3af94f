# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Fields made on devices are the host's, bit for bit, whatever is read."""

import functools
import itertools
import json
import logging as std_logging

import grain
import hypothesis
from hypothesis import strategies as st
import jax
import numpy as np
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data import process_input
from chomp_data.loading import device_fields
from chomp_data.testing import stores as testing_stores
from chomp_data.transforms import formats
from tests import laws
from tests.loading import compilations
from tests.loading import processes
from tests.loading import sharding_test
from tests.sources import labelled
from tests.sources import small_configs

SEQ_LEN = 24
ROWS = {
  "sequential": {"kind": "sequential", "add_bos": True, "add_eos": True},
  "ffd": {"kind": "bin", "packing_buffer_docs": 7, "add_eos": True},
  "columns": {
    "kind": "bin",
    "packing_buffer_docs": 7,
    "packing_algorithm": "exact",
    "reset_positions": False,
    "trailing_filler_in_segment": True,
  },
  "splice": {"kind": "multi_splice", "num_docs": 5, "content_length": 9},
  "rolled": {
    "kind": "splice",
    "doc_index": 3,
    "content_start_mode": "cyclic_roll",
    "eos_before_document": True,
  },
  "windows": {"kind": "windows", "stride": 5},
}
FORMATS = tuple(formats.FORMATS)


@pytest.fixture(scope="module")
def corpora(tmp_path_factory):
  """Text without labels, of wide ids too, with levels, and with weights."""
  root, out = tmp_path_factory.mktemp("corpora"), {}
  rng, sizes = np.random.default_rng(0), []
  for name, table, weighs in (
    ("text", None, False),
    ("masked", (0.0, 1.0), False),
    ("chats", labelled.LEVELS, True),
  ):
    make_store = functools.partial(testing_stores.make_store, root / name)
    lengths = np.exp(rng.normal(2.4, 1.0, 60)).astype(int) + 2
    sizes.append(lengths)
    out[name] = labelled.make(
      make_store, lengths.tolist(), table=table, weights=weighs, bos_id=2
    ).path
  documents = [rng.integers(3, 100_000, n) for n in lengths]
  testing_stores.make_store(
    root / "wide", documents, vocab_size=100_000, bos_id=2
  )
  out["wide"] = str(root / "wide")
  lines = [
    {"source": "text", "document": n, "start": n % 2, "length": size // 2}
    for n, size in enumerate(sizes[0].tolist())
    if n % 3
  ]
  lines += [{"source": "text", "document": n} for n in range(0, 60, 6)]
  (root / "gone.jsonl").write_text("\n".join(map(json.dumps, lines)))
  out["gone"] = str(root / "gone.jsonl")
  return out


def config(corpora, rows=("ffd",), names=("text",), **changes):
  changes = {
    "seq_len": SEQ_LEN, "remainder": "pad", "document_id": True, **changes,
  }  # fmt: skip
  if len(names) > 1:
    changes["mix"] = mixed(names)
  stores = {name: corpora[name] for name in names}
  return small_configs.of_rows(stores, [ROWS[kind] for kind in rows], **changes)


def mixed(names):
  weights = dict.fromkeys(names, 1)
  return {"weights": weights, "allow_tokenizer_differences": True}


def in_buckets(corpora, names=("text", "chats"), **changes):
  return {
    "epochs": 1,
    "remainder": "pad",
    "buckets": {"kind": "length", "lengths": (8, 24), "tokens_per_batch": 96},
    "sources": {name: {"store": corpora[name]} for name in names},
    "mix": mixed(names),
    **changes,
  }


def check_on_host(data, most=12):
  """What travels is fewer bytes, and NumPy widens it into the host's batch."""
  pipe = pipeline.build(data)
  narrow = device_fields.Narrow.of(pipe.run_plan)
  for step in range(min(most, pipe.num_steps or most)):
    batch = pipe.batch(step)
    widths = {n: v.shape[1] for n, v in batch.items() if v.ndim == 2}
    sent = narrow.narrow(batch, widths)
    whole, fewer = (
      sum(value.nbytes for value in own.values()) for own in (batch, sent)
    )
    assert fewer < whole
    # Columns of stores travel as they are.
    made = sent | device_fields.widen(
      {n: value for n, value in sent.items() if n not in narrow.in_full}, np
    )
    assert set(made) == set(batch)
    for name, value in batch.items():
      assert made[name].dtype == value.dtype, name
      found = np.ascontiguousarray(made[name]).tobytes()
      assert found == np.ascontiguousarray(value).tobytes(), (step, name)


def test_numbers_that_16_bits_do_not_hold_are_refused():
  narrow = device_fields.Narrow(tokens=True, columns=True)
  edges = np.asarray([[-256, -100, -1, 0, 65_279]], np.int32)
  sent = narrow.narrow({"labels": edges}, {"labels": 5})
  assert sent["labels"].dtype == np.uint16
  np.testing.assert_array_equal(device_fields.widen(sent, np)["labels"], edges)
  for beyond in (-257, 65_280):
    wrong = {"labels": np.asarray([[beyond]], np.int32)}
    with pytest.raises(ValueError, match=rf"'labels' must hold .*{beyond}"):
      narrow.narrow(wrong, {"labels": 1})


@laws.examples(25)
@hypothesis.given(data=st.data())
def test_what_travels_is_any_run(corpora, data):
  draw = data.draw
  form = draw(st.sampled_from(FORMATS))
  names = ("text", "masked", "chats", "wide")
  some = draw(st.lists(st.sampled_from(names), min_size=1, unique=True))
  changes = {
    "batch_format": form,
    "lookahead": formats.FORMATS[form].lookahead and draw(st.booleans()),
    "train_on_eos": draw(st.booleans()),
    "document_id": draw(st.booleans()),
  }
  if "text" in some and draw(st.booleans()):
    changes["tombstones"] = ((2, corpora["gone"]),)
  if draw(st.integers(0, 3)) == 0:
    return check_on_host(in_buckets(corpora, some, **changes))
  changes["mask_boundary_loss"] = draw(st.booleans())
  if draw(st.booleans()):
    changes["global_batch_size"] = None
    changes["batch_size_schedule"] = ((0, 3), (4, 5))
  kinds = st.lists(st.sampled_from(sorted(ROWS)), min_size=1, max_size=3)
  check_on_host(config(corpora, draw(kinds), some, **changes))


# Of four devices, as if each two were a process's.
LAYOUTS = ["contiguous", "interleaved", "shared", "sequence", "columns"]
RUNS = {
  "mix": lambda c: config(
    c, ("columns", "splice"), ("text", "chats"), batch_format="levanter"
  ),
  "chomp": lambda c: config(
    c, ("sequential",), ("text", "chats"), batch_format="chomp",
    mask_boundary_loss=False, tombstones=((1, c["gone"]),),
  ),
  "axlearn": lambda c: config(
    c, ("rolled",), ("wide",), batch_format="axlearn", lookahead=True
  ),
  "balanced": lambda c: config(c, balance="attention"),
  "buckets": lambda c: in_buckets(c),
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("run", RUNS)
def test_arrays_and_shardings_are_the_hosts(corpora, run):
  """One program a batch shape, however many batches."""
  (found,) = processes.call(
    "tests.loading.device_fields_test:compared",
    [
      {
        "data": RUNS[run](corpora),
        "layouts": LAYOUTS,
        "steps": 12 if run == "buckets" else 3,
      }
    ],
    num_devices=4,
  )
  shapes = 2 if run == "buckets" else 1
  assert found == {layout: [[], shapes] for layout in LAYOUTS}


def compared(data, layouts, steps):
  """Returns what differs, and how often programs were compiled, by layout."""
  # Here: it lets all processes that import it have workers.
  from tests.loading import distributed_worker

  out = {}
  for layout in layouts:
    wrong = []
    sharding = distributed_worker.make_sharding(layout, 2)
    with (
      compilations.of("_widened") as compiled,
      chomp_data.make_iterator(
        {**data, "device_fields": "never"}, sharding
      ) as host,
      chomp_data.make_iterator(
        {**data, "device_fields": "always"}, sharding
      ) as made,
    ):
      for batch in itertools.islice(host, steps):
        step, other = host.step - 1, next(made)
        if {n: placed(v) for n, v in batch.items()} != {
          n: placed(v) for n, v in other.items()
        }:
          wrong.append(step)
    out[layout] = [wrong, len(compiled)]
  return out


def placed(value):
  """Returns all of an array: what is where, and as what."""
  pieces = {
    shard.device: np.asarray(shard.data).tobytes()
    for shard in value.addressable_shards
  }
  return pieces, value.dtype, value.shape, value.sharding, value.committed


@pytest.mark.slow
@pytest.mark.parametrize(
  ("layout", "workers"),
  [("sequence", 0), ("contiguous", 1)],
)
def test_two_processes_hold_the_same(corpora, layout, workers):
  data = config(
    corpora, ("sequential",), ("text", "chats"), batch_format="chomp",
    device_fields="always", worker_count=workers, epochs=1,
  )  # fmt: skip
  steps = sharding_test.run(data, layout, 2)
  sharding_test.check(data, steps, 0, pipeline.build(data).num_steps)


def batches(data, step=0, count=3, **options):
  with chomp_data.make_iterator(data, step=step, **options) as iterator:
    return [jax.device_get(next(iterator)) for _ in range(count)]


def same(found, wanted):
  for own, other in zip(found, wanted, strict=True):
    assert own.keys() == other.keys()
    for name, value in own.items():
      np.testing.assert_array_equal(value, other[name], name)
      assert value.dtype == other[name].dtype


def test_a_state_of_either_continues_the_other(corpora):
  """Also with two sizes: each has a program, and only one."""
  data = config(corpora, global_batch_size=None, certificate="tokens")
  data["batch_size_schedule"] = ((0, 3), (4, 5))
  host, made = ({**data, "device_fields": own} for own in ("never", "always"))
  wanted = batches(host, count=12)
  states = []
  for first, then in ((host, made), (made, host)):
    with chomp_data.make_iterator(first) as iterator:
      for step in range(3):
        same([jax.device_get(next(iterator))], wanted[step : step + 1])
      states.append(json.loads(iterator.get_state()))
      state = iterator.get_state()
    with (
      compilations.of("_widened") as compiled,
      chomp_data.make_iterator(then) as iterator,
    ):
      iterator.set_state(state)
      same([jax.device_get(next(iterator)) for _ in range(9)], wanted[3:])
      # Batches are of two sizes.
      assert len(compiled) == 2 * (then is made)
  assert states[0] == states[1]


class Doubled(grain.transforms.Map):
  """A user's, of batches on the host."""

  def map(self, element):
    return {**element, "tokens": np.asarray(element["tokens"]) * 2}


@pytest.mark.filterwarnings("default")
def test_a_transform_on_the_host_has_fields_made_there_and_says_so(
  corpora, caplog
):
  host, made = (
    config(corpora, device_fields=own) for own in ("never", "always")
  )
  device_fields.warn_once.cache_clear()
  wanted = batches(host, operations=[Doubled()])
  with caplog.at_level(std_logging.WARNING, logger="absl"):
    for _ in range(2):
      same(batches(made, operations=[Doubled()]), wanted)
  told = [own for own in caplog.messages if "sent in full" in own]
  assert len(told) == 1
  assert "Doubled" in told[0]


def test_a_format_of_others_is_made_on_the_host(corpora, monkeypatch, caplog):
  class Own(Doubled):
    pass

  monkeypatch.setitem(formats.FORMATS, "own", formats.Format(Own))
  device_fields.warn_once.cache_clear()
  made = config(corpora, device_fields="always", batch_format="own")
  with caplog.at_level(std_logging.WARNING, logger="absl"):
    same(batches(made), batches({**made, "device_fields": "never"}))
  assert "not made for devices" in caplog.text


def test_fields_are_made_on_the_host_by_default_on_any_platform(
  corpora, monkeypatch
):
  """No accelerator has run the program that makes fields on devices."""

  sharding = jax.sharding.SingleDeviceSharding(jax.devices()[0])

  def on_devices(**options):
    made = process_input.of_pipeline(
      chomp_data.build(config(corpora, **options)),
      process_input.DeviceLayout.of(sharding, None),
      (),
    )
    return isinstance(made.placement, device_fields.NarrowPlacement)

  assert not on_devices(device_fields="auto")
  # As if the CPU devices were accelerators.
  monkeypatch.setattr(device_fields, "on_accelerators", lambda sharding: True)
  assert on_devices(device_fields="auto")
  assert not on_devices()


def test_what_jax_is_told_to_refuse_elsewhere_is_no_matter(corpora):
  made = config(corpora, batch_format="maxtext", device_fields="always")
  wanted = batches({**made, "device_fields": "never"})
  before = {
    "jax_numpy_dtype_promotion": "strict",
    "jax_numpy_rank_promotion": "raise",
    "jax_transfer_guard": "disallow",
  }
  found = {name: getattr(jax.config, name) for name in before}
  try:
    for name, value in before.items():
      jax.config.update(name, value)
    with chomp_data.make_iterator(made) as iterator:
      made = [next(iterator) for _ in range(3)]
  finally:
    for name, value in found.items():
      jax.config.update(name, value)
  same(jax.device_get(made), wanted)
