# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One JAX process that makes iterators in step with others, and may fail.

Run by `agreement_test.py`, never imported by it. Arguments are one JSON object:
process_id, num_processes, port, data, and optionally tries (`config.data` of
iterators that cannot start, with `by` of a transform and the `spec` of a
sharding), built (the pipeline is built first) and then, what the process does
after two steps: 'read' on, 'kill' or 'stop' itself at once, 'linger' and then
kill itself, 'end', 'raise', raise and 'wait', 'seek' another step, 'save' one
step later, 'survive' the death of the last process, or 'catch' the error and do
something else; else it blocks as in a collective. With `reduces` it sums a
batch over all processes before that, and 'reduce' goes on with it; 'barrier'
waits for all of them.
"""

import dataclasses
import hashlib
import json
import os
import signal
import sys
import time

import grain
import jax
import numpy as np

from chomp_data import iterators
from chomp_data import pipeline
from chomp_data.loading import feed
from chomp_data.loading import watching


@dataclasses.dataclass(frozen=True)
class Scale(grain.transforms.Map):
  by: int

  def map(self, element):
    return {**element, "tokens": self.by * element["tokens"]}


def read_until_another_fails(it) -> None:
  """Reads slowly until another process fails, and prints the error."""
  try:
    while True:
      next(it)
      time.sleep(0.05)
  except feed.InputError as error:
    print(f"InputError: {error}", flush=True)


def survive(it, num_processes: int) -> None:
  """Reads until the last process dies, and two steps more without it."""
  read_until_another_fails(it)
  it.reassign(range(num_processes - 1))
  # Others may have read a step more or less.
  it.seek(1_000)
  found = []
  for _ in range(2):
    for shard in next(it)["tokens"].addressable_shards:
      rows = shard.index[0].indices(12)[:2]
      digest = hashlib.sha256(np.ascontiguousarray(shard.data)).hexdigest()
      found.append([it.step - 1, rows, digest])
  print(f"survived {json.dumps(found)}", flush=True)
  # JAX aborts all when the first process goes, and would wait for the one that
  # is gone.
  client, own = watching.client(), jax.process_index()
  client.key_value_set(f"survived/{own}", "yes")
  for process in range(num_processes - 1 if own == 0 else 0):
    client.blocking_key_value_get(f"survived/{process}", 30_000)
  if own == 0:
    time.sleep(2)  # Who said so has yet to end.
  os._exit(0)


def catch(it, seconds: float) -> None:
  """Reads until another process fails, and does not read for a while then."""
  read_until_another_fails(it)
  time.sleep(seconds)
  print("went on", flush=True)
  os._exit(0)


def main() -> None:
  """Runs one process."""
  args = json.loads(sys.argv[1])
  watching.BEAT_S = args["beat_s"]
  jax.distributed.initialize(
    f"127.0.0.1:{args['port']}", args["num_processes"], args["process_id"]
  )
  data, then = args["data"], args.get("then")
  if args.get("built"):
    # JAX may wait for all processes before it tells of its devices.
    data = pipeline.build(data)
  mesh = jax.sharding.Mesh(np.asarray(jax.devices()), ("data",))
  sharding = jax.sharding.NamedSharding(
    mesh, jax.sharding.PartitionSpec("data")
  )
  for other in args.get("tries", ()):
    own = jax.sharding.PartitionSpec(*other.pop("spec", ("data",)))
    try:
      iterators.make_iterator(
        other,
        jax.sharding.NamedSharding(mesh, own),
        operations=[Scale(by) for by in [other.pop("by", None)] if by],
      )
    except Exception as error:
      print(f"{type(error).__name__}: {error}", flush=True)
  if args["process_id"] == 0 and not args.get("built"):
    # One process alone may have others.
    with iterators.make_iterator({**args["data"], "seed": 7}) as it:
      next(it)
  with (
    iterators.make_iterator(data, sharding) as other,
    iterators.make_iterator(data, sharding) as it,
  ):
    next(other)
    for _ in range(2):
      batch = next(it)
    print("two steps", flush=True)
    total = jax.jit(lambda tokens: tokens.sum())
    if args.get("reduces"):
      print(f"sum {int(total(batch['tokens']))}", flush=True)
    if then == "barrier":
      watching.client().wait_at_barrier("all", 1_000_000)
    while then == "reduce":
      int(total(batch["tokens"]))
    if then == "end":
      return
    if then == "linger":
      time.sleep(2 * watching.DEAD_BEATS * watching.BEAT_S)
      print("lingered", flush=True)
    if then == "stop":
      os.kill(os.getpid(), signal.SIGSTOP)
      then = "block"
    if then in ("kill", "linger"):
      os.kill(os.getpid(), signal.SIGKILL)
    if then == "seek":
      it.seek(5 + args["process_id"])
    if then == "save":
      # One process has looked at a batch that the others have not.
      next(it)
    if then in ("save", "saves"):
      it.begin_save()()
    if then in ("raise", "wait"):
      time.sleep(6 * watching.BEAT_S)
      raise ValueError("as of a collective")
    if then == "catch":
      catch(it, 4 * args["data"]["peer_failure_grace_s"])
    if then == "survive":
      survive(it, args["num_processes"])
    while then == "read":
      next(it)
      time.sleep(0.05)
    time.sleep(200)


if __name__ == "__main__":
  try:
    main()
  except ValueError:
    if json.loads(sys.argv[1]).get("then") != "wait":
      raise
    # As for a save that all end together.
    time.sleep(200)
