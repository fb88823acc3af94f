# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""XLA compiles each bucket once: counted over an epoch of real training."""

import jax
import pytest

import chomp_data
from chomp_data import pipeline
from chomp_data.reference import decoder
from chomp_data.reference import training
from tests.plans import conftest

_COMPILED = "/jax/core/compile/backend_compile_duration"


@pytest.fixture
def compilations():
  """A list that grows by one whenever XLA compiles."""
  found = []

  def listen(event, duration, **_):
    if event == _COMPILED:
      found.append(duration)

  jax.monitoring.register_event_duration_secs_listener(listen)
  yield found
  if hasattr(jax.monitoring, "unregister_event_duration_listener"):
    jax.monitoring.unregister_event_duration_listener(listen)
  else:  # JAX 0.7
    jax.monitoring.clear_event_listeners()


@pytest.mark.slow
def test_an_epoch_compiles_one_step_a_bucket(text, compilations):
  data = conftest.changed(
    text, epochs=1, document_id=False, buckets__lengths=(16, 64)
  )
  pipe = pipeline.build(data)
  trainer = training.Trainer(
    decoder.DecoderConfig(
      vocab_size=256, max_positions=64, d_model=8, num_layers=1, num_heads=2,
      mlp_dim=8,
    ),
    training.OptimizerOptions(),
    num_steps=pipe.num_steps,
    mesh=training.data_mesh(),
  )  # fmt: skip
  # Placed as the step leaves it: the first bucket compiles once, not twice.
  state = trainer.init(0)
  seen = set()
  with chomp_data.make_iterator(pipe, trainer.batch_sharding) as it:
    for step, batch in enumerate(it):
      jax.block_until_ready(batch)
      before = len(compilations)
      state, _ = trainer.step(state, batch)
      bucket = pipe.bucket_of(step)[1]
      assert len(compilations) - before == (bucket not in seen), step
      seen.add(bucket)
  assert seen == {"16", "64"}
  assert trainer.num_compiled == len(seen)
