# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A bucket in memory that speaks as much of S3 as reading a store needs.

    python benchmarks/object_server.py DIRECTORY

It prints its port. Objects that nobody has written are the files below the
directory: /BUCKET/NAME. `POST /settings` takes {"delay_s", "slow_share",
"slow_s"}, forgets what was counted, and returns {"requests", "bytes"} before.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import hashlib
import http.server
import json
import os
import pathlib
import random
import subprocess
import sys
import threading
import time
from typing import Any
import urllib.parse
import urllib.request

import numpy as np

_objects: dict[str, bytes] = {}
_settings = {"delay_s": 0.0, "slow_share": 0.0, "slow_s": 0.0}
_counts = {"requests": 0, "bytes": 0}
_lock = threading.Lock()


def _object(path: str) -> bytes | memoryview | None:
  """Returns an object, or None if there is none."""
  data = _objects.get(path)
  file = pathlib.Path(sys.argv[1], urllib.parse.unquote(path).lstrip("/"))
  if data is None and file.is_file():
    # A range of a large file must not cost all of it.
    return np.memmap(file, np.uint8, "r").data if file.stat().st_size else b""
  return data


class _Handler(http.server.BaseHTTPRequestHandler):
  protocol_version = "HTTP/1.1"
  # Else each answer waits 40 ms for an acknowledgement.
  disable_nagle_algorithm = True

  def do_PUT(self) -> None:
    data = self.rfile.read(int(self.headers["Content-Length"]))
    _objects[self.path.partition("?")[0]] = data
    self._answer(200, b"", data)

  def do_POST(self) -> None:
    data = self.rfile.read(int(self.headers["Content-Length"]))
    with _lock:
      before = json.dumps(_counts).encode()
      _counts.update(requests=0, bytes=0)
      _settings.update(json.loads(data))
    self._answer(200, before)

  def do_GET(self) -> None:
    slow = random.random() < _settings["slow_share"]
    time.sleep(_settings["slow_s"] if slow else _settings["delay_s"])
    data = _object(self.path.partition("?")[0])
    part, status, headers = data or b"", 200, []
    if data is None:
      part, status = b"<Error><Code>NoSuchKey</Code></Error>", 404
    elif wanted := self.headers.get("Range"):
      low, high = wanted.removeprefix("bytes=").split("-")
      if low:
        begin, end = int(low), min(int(high or len(data)), len(data) - 1) + 1
      else:
        begin, end = max(len(data) - int(high), 0), len(data)
      part, status = data[begin:end], 206
      span = f"bytes {begin}-{end - 1}/{len(data)}"
      headers = [("Content-Range", span)]
    with _lock:
      _counts["requests"] += 1
      _counts["bytes"] += len(part)
    self._answer(status, part, data or b"", headers)

  def _answer(
    self, status: int, body: Any, of: Any = b"", headers: Any = ()
  ) -> None:
    self.send_response_only(status)
    # Its size tells an object of this benchmark from the next one.
    self.send_header(
      "ETag", hashlib.md5(b"%d" % len(of)).hexdigest().join('""')
    )
    for name, value in headers:
      self.send_header(name, value)
    self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    self.wfile.write(body)

  def log_message(self, format: str, *args: object) -> None:
    pass


class _Server(http.server.ThreadingHTTPServer):
  request_queue_size = 256
  daemon_threads = True

  def handle_error(self, request: object, client_address: object) -> None:
    pass  # A client that has what it wants leaves.


@contextlib.contextmanager
def started(directory: str) -> Iterator[Callable[..., dict[str, int]]]:
  """Starts the server in a process of its own, and sends clients to it.

  Args:
    directory: Of objects.

  Yields:
    A function of settings, which returns what was counted before.
  """
  process = subprocess.Popen(
    [sys.executable, __file__, directory],
    stdin=subprocess.PIPE,
    stdout=subprocess.PIPE,
    text=True,
  )
  assert process.stdout is not None
  url = f"http://127.0.0.1:{int(process.stdout.readline())}"
  os.environ |= {
    "AWS_ENDPOINT_URL_S3": url,
    "AWS_REGION": "us-east-1",
    "AWS_ACCESS_KEY_ID": "benchmark",
    "AWS_SECRET_ACCESS_KEY": "benchmark",
    "AWS_EC2_METADATA_DISABLED": "true",
  }

  def settings(**changes: float) -> dict[str, int]:
    request = urllib.request.Request(
      f"{url}/settings", json.dumps(changes).encode(), method="POST"
    )
    with urllib.request.urlopen(request) as answer:
      return json.loads(answer.read())

  try:
    yield settings
  finally:
    process.kill()
    process.wait()


def main() -> None:
  server = _Server(("127.0.0.1", 0), _Handler)
  print(server.server_address[1], flush=True)
  # It ends with whoever started it.
  threading.Thread(target=server.serve_forever, daemon=True).start()
  sys.stdin.read()


if __name__ == "__main__":
  main()
