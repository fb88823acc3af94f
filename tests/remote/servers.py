# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Object stores on loopback: moto for S3, `blob_server` for GCS and Azure.

Between a store and its client stands a proxy that counts requests, makes them
slow, and makes them fail. It also makes conditional writes to moto, which has
a race, one after the other.
"""

from collections.abc import Callable
from collections.abc import Iterator
import contextlib
import dataclasses
import http.client
import http.server
import os
import pathlib
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.parse
import urllib.request

BUCKET = "bucket"
RESET = -1  # a status of `Proxy.fault`
_START_S = 60.0
_BLOBS = str(pathlib.Path(__file__).parent / "blob_server.py")
_HOP = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclasses.dataclass
class Request:
  """What a client asked.

  Attributes:
    method: 'GET', 'PUT', ...
    target: Path and query.
    name: The object, without its bucket, or '' where none is named.
    number: How many requests came before.
    begin: The first byte that was asked for, or None.
  """

  method: str
  target: str
  name: str
  number: int
  begin: int | None


class Proxy:
  """Forwards requests, and does to them what a test says.

  Attributes:
    url: Where clients find it.
    requests: What came since `clear`.
    fault: Returns an HTTP status to answer a request with instead, `RESET` to
      reset its connection, or None.
    damage: Returns the body of an answer to a read, damaged or as it is.
    cut: Returns after how many bytes of the body of an answer to a read its
      connection is closed, or None.
    lost: Returns whether a request is carried out, and its connection reset
      instead of an answer.
    delay_s: Returns how long the answer to a request takes longer.
    bytes_out: Bytes of answers since `clear`.
    keep: Answers to reads are kept, so that the store behind is asked once.
  """

  def __init__(self, upstream: int, keep: bool = False):
    """Begins to serve a store that listens at a port of loopback."""
    self.requests: list[Request] = []
    self.fault: Callable[[Request], int | None] = lambda request: None
    self.damage: Callable[[Request, bytes], bytes] = lambda request, body: body
    self.cut: Callable[[Request, int], int | None] = lambda request, size: None
    self.lost: Callable[[Request], bool] = lambda request: False
    self.delay_s: Callable[[Request], float] = lambda request: 0.0
    self.bytes_out = 0
    self.keep = keep
    self._kept: dict[tuple[str, str | None], tuple] = {}
    self._upstream = upstream
    self._lock = threading.Lock()
    self._creating = threading.Lock()
    proxy = self

    class Handler(http.server.BaseHTTPRequestHandler):
      protocol_version = "HTTP/1.1"
      # Else each answer waits 40 ms for an acknowledgement.
      disable_nagle_algorithm = True

      def _serve(self) -> None:
        proxy.serve(self)

      do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _serve

      def log_message(self, format: str, *args: object) -> None:
        pass

    class Server(http.server.ThreadingHTTPServer):
      request_queue_size = 256
      daemon_threads = True

      def handle_error(self, request: object, client_address: object) -> None:
        pass  # A client that was killed.

    self._server = Server(("127.0.0.1", 0), Handler)
    self.port = self._server.server_address[1]
    self.url = f"http://127.0.0.1:{self.port}"
    threading.Thread(target=self._server.serve_forever, daemon=True).start()

  def close(self) -> None:
    """Stops serving."""
    self._server.shutdown()
    self._server.server_close()

  def clear(self) -> None:
    """Forgets what came and what was to be done to it."""
    with self._lock:
      self.requests = []
      self.bytes_out = 0
      self.fault = lambda request: None
      self.damage = lambda request, body: body
      self.cut = lambda request, size: None
      self.lost = lambda request: False
      self.delay_s = lambda request: 0.0

  def reads(self, part: str = "") -> list[Request]:
    """Returns requests for the contents of objects with a part in the name."""
    return [
      own
      for own in self.requests
      if own.method == "GET" and own.name and part in own.name
    ]

  def serve(self, handler: http.server.BaseHTTPRequestHandler) -> None:
    size = int(handler.headers.get("Content-Length") or 0)
    body = handler.rfile.read(size)
    wanted = handler.headers.get("Range")
    begin = None
    if wanted:
      begin = int(wanted.removeprefix("bytes=").partition("-")[0] or -1)
    with self._lock:
      request = Request(
        handler.command,
        handler.path,
        _name(handler.path),
        len(self.requests),
        begin,
      )
      self.requests.append(request)
    delay = self.delay_s(request)
    if delay:
      time.sleep(delay)
    status = self.fault(request)
    if status == RESET:
      _reset(handler)
      return
    if status is not None:
      _answer(handler, status, [], b"<Error><Code>Injected</Code></Error>")
      return
    key = (handler.path, wanted)
    answer = self._kept.get(key) if handler.command == "GET" else None
    if answer is None:
      answer = self.forward(handler, body)
      if self.keep and handler.command == "GET" and answer[0] < 300:
        self._kept[key] = answer
    if self.lost(request):
      _reset(handler)
      return
    if handler.command == "GET" and answer[0] in (200, 206):
      answer = answer[0], answer[1], self.damage(request, answer[2])
      cut = self.cut(request, len(answer[2]))
      if cut is not None:
        size = [("Content-Length", str(len(answer[2])))]
        _answer(handler, answer[0], answer[1] + size, answer[2][:cut])
        _reset(handler)
        return
    with self._lock:
      self.bytes_out += len(answer[2])
    _answer(handler, *answer)

  def forward(
    self, handler: http.server.BaseHTTPRequestHandler, body: bytes
  ) -> tuple[int, list[tuple[str, str]], bytes]:
    conditions = {"If-None-Match", "If-Match"} & set(handler.headers)
    if handler.command == "GET" or not conditions:
      return self._ask(handler.command, handler.path, handler.headers, body)
    with self._creating:
      return self._ask(handler.command, handler.path, handler.headers, body)

  def _ask(self, method: str, target: str, headers, body: bytes):
    connection = http.client.HTTPConnection("127.0.0.1", self._upstream)
    try:
      kept = {k: v for k, v in headers.items() if k.lower() not in _HOP}
      connection.request(method, target, body, kept)
      answer = connection.getresponse()
      data = answer.read()
      dropped = _HOP - ({"content-length"} if method == "HEAD" else set())
      pairs = [p for p in answer.getheaders() if p[0].lower() not in dropped]
      return answer.status, pairs, data
    finally:
      connection.close()


def _answer(handler, status: int, headers, body: bytes) -> None:
  handler.send_response_only(status)
  for name, value in headers:
    handler.send_header(name, value)
  if status not in (204, 304) and "Content-Length" not in dict(headers):
    handler.send_header("Content-Length", str(len(body)))
  handler.end_headers()
  if handler.command != "HEAD" and status not in (204, 304):
    handler.wfile.write(body)


def _reset(handler) -> None:
  """Closes a connection with a reset, as a host that dies does."""
  handler.wfile.flush()
  linger = struct.pack("ii", 1, 0)
  handler.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
  handler.connection.close()
  handler.close_connection = True


def _name(target: str) -> str:
  """Returns the object that a request is about."""
  path = urllib.parse.urlsplit(target).path
  return urllib.parse.unquote(path.removeprefix("/").partition("/")[2])


def moto_server() -> str | None:
  """Returns moto's server program, or None where it is not installed.

  It may have an environment of its own: `make test` makes one, because moto
  needs older versions of packages than others here.
  """
  roots = [pathlib.Path(sys.executable).parent]
  roots.append(pathlib.Path(__file__).parents[2] / ".venv-moto" / "bin")
  for root in roots:
    if (root / "moto_server").exists():
      return str(root / "moto_server")
  return os.environ.get("MOTO_SERVER") or shutil.which("moto_server")


def environment(
  s3: str | None = None, gs: str | None = None, az: str | None = None
) -> dict[str, str]:
  """Returns the variables with which servers are found, by scheme."""
  found = {"AWS_EC2_METADATA_DISABLED": "true"}
  if s3 is not None:
    found |= {
      "AWS_ENDPOINT_URL_S3": s3,
      "AWS_ACCESS_KEY_ID": "test",
      "AWS_SECRET_ACCESS_KEY": "test",
      "AWS_REGION": "us-east-1",
    }
  if gs is not None:
    found |= {"STORAGE_EMULATOR_HOST": gs, "GOOGLE_BEARER_TOKEN": "test"}
  if az is not None:
    found |= {
      "AZURE_STORAGE_ENDPOINT": az,
      "AZURE_STORAGE_ACCOUNT_NAME": "account",
      "AZURE_STORAGE_ACCOUNT_KEY": "dGVzdA==",
    }
  return found


@contextlib.contextmanager
def s3(keep: bool = False) -> Iterator[Proxy]:
  """Serves a bucket over S3's protocol, behind a proxy."""
  program = moto_server()
  assert program is not None
  with _running([program, "-H", "127.0.0.1", "-p"], [], keep) as proxy:
    url = f"{proxy.url}/{BUCKET}"
    urllib.request.urlopen(urllib.request.Request(url, method="PUT")).close()
    yield proxy


@contextlib.contextmanager
def gcs(keep: bool = False) -> Iterator[Proxy]:
  """Serves buckets over GCS's protocol, behind a proxy."""
  with _running([sys.executable, _BLOBS, "gs"], [], keep) as proxy:
    yield proxy


@contextlib.contextmanager
def azure(keep: bool = False) -> Iterator[Proxy]:
  """Serves containers over Azure's protocol, behind a proxy."""
  with _running([sys.executable, _BLOBS, "az"], [], keep) as proxy:
    yield proxy


@contextlib.contextmanager
def _running(
  command: list[str], more: list[str], keep: bool
) -> Iterator[Proxy]:
  with socket.socket() as probe:
    probe.bind(("127.0.0.1", 0))
    port = probe.getsockname()[1]
  process = subprocess.Popen(
    [*command, str(port), *more],
    stdout=subprocess.DEVNULL,
    stderr=subprocess.DEVNULL,
  )
  proxy = None
  try:
    until = time.monotonic() + _START_S
    while True:
      try:
        socket.create_connection(("127.0.0.1", port), 1.0).close()
        break
      except OSError:
        assert process.poll() is None, "the server ended at its start"
        assert time.monotonic() < until, "the server does not listen"
        time.sleep(0.05)
    proxy = Proxy(port, keep)
    yield proxy
  finally:
    if proxy is not None:
      proxy.close()
    process.kill()
    process.wait()
