# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""An object store in memory, over the protocols of GCS (XML) and of Azure.

    python blob_server.py gs|az PORT

Written from the providers' documentation of their HTTP APIs: objects with
generations and ETags, ranges, conditional writes, listings in pages.
"""

import dataclasses
import email.utils
import hashlib
import http.server
import itertools
import re
import sys
import threading
import time
import urllib.parse
from xml.sax import saxutils

PAGE = 1_000  # objects of a listing


@dataclasses.dataclass
class Blob:
  """An object."""

  data: bytes
  generation: int
  etag: str
  modified: str


class Server(http.server.ThreadingHTTPServer):
  """Holds the objects of all buckets."""

  request_queue_size = 256
  daemon_threads = True

  def __init__(self, port, kind):
    super().__init__(("127.0.0.1", port), Handler)
    self.kind = kind
    self.blobs: dict[tuple[str, str], Blob] = {}
    self.lock = threading.Lock()
    self.generations = itertools.count(int(time.time() * 1e6))


class Handler(http.server.BaseHTTPRequestHandler):
  """Answers one client's requests."""

  protocol_version = "HTTP/1.1"
  disable_nagle_algorithm = True
  server: Server

  def log_message(self, format, *args):
    pass

  def answer(self, status, headers=(), body=b""):
    self.send_response_only(status)
    for name, value in headers:
      self.send_header(name, value)
    if not any(name == "Content-Length" for name, _ in headers):
      self.send_header("Content-Length", str(len(body)))
    self.end_headers()
    if self.command != "HEAD":
      self.wfile.write(body)

  def fail(self, status, code):
    body = f"<Error><Code>{code}</Code><Message>{code}</Message></Error>"
    self.answer(status, (), body.encode())

  @property
  def target(self):
    """The bucket, the object's name and the query."""
    parts = urllib.parse.urlsplit(self.path)
    bucket, _, name = parts.path.removeprefix("/").partition("/")
    query = dict(urllib.parse.parse_qsl(parts.query, keep_blank_values=True))
    return bucket, urllib.parse.unquote(name), query

  def body(self):
    return self.rfile.read(int(self.headers.get("Content-Length") or 0))

  def headers_of(self, blob):
    found = [("ETag", f'"{blob.etag}"'), ("Last-Modified", blob.modified)]
    if self.server.kind == "gs":
      return [*found, ("x-goog-generation", str(blob.generation))]
    return [*found, ("x-ms-blob-type", "BlockBlob")]

  def do_GET(self):
    bucket, name, query = self.target
    if self.path.startswith("/wipe"):
      with self.server.lock:
        self.server.blobs.clear()
      return self.answer(200)
    if not name:
      listed = self.list_gs if self.server.kind == "gs" else self.list_az
      return listed(bucket, query)
    with self.server.lock:
      blob = self.server.blobs.get((bucket, name))
    if blob is None:
      return self.fail(404, "NoSuchKey")
    wanted = self.headers.get("If-Match")
    if wanted and wanted.strip('"') != blob.etag:
      return self.fail(412, "PreconditionFailed")
    headers, data = self.headers_of(blob), blob.data
    asked = self.headers.get("Range") or self.headers.get("x-ms-range")
    size = len(data)
    if not asked:
      return self.answer(200, [*headers, ("Content-Length", str(size))], data)
    first, last = re.fullmatch(r"bytes=(\d*)-(\d*)", asked).groups()
    if first:
      begin, end = int(first), min(int(last or size) + 1, size)
    else:
      begin, end = max(size - int(last), 0), size
    if begin >= size:
      return self.answer(416, [("Content-Range", f"bytes */{size}")])
    span = ("Content-Range", f"bytes {begin}-{end - 1}/{size}")
    return self.answer(206, [*headers, span], data[begin:end])

  do_HEAD = do_GET

  def do_PUT(self):
    bucket, name, _ = self.target
    data = self.body()
    key, server = (bucket, name), self.server
    with server.lock:
      there = server.blobs.get(key)
      wanted = self.headers.get("x-goog-if-generation-match")
      if wanted is not None and wanted != str(there.generation if there else 0):
        return self.fail(412, "PreconditionFailed")
      if self.headers.get("If-None-Match") == "*" and there is not None:
        return self.fail(409, "BlobAlreadyExists")
      wanted = self.headers.get("If-Match")
      if wanted and (there is None or wanted.strip('"') != there.etag):
        return self.fail(412, "ConditionNotMet")
      generation = next(server.generations)
      etag = hashlib.sha256(data + b"%d" % generation).hexdigest()[:32]
      now = email.utils.formatdate(usegmt=True)
      server.blobs[key] = blob = Blob(data, generation, etag, now)
    status = 200 if server.kind == "gs" else 201
    return self.answer(status, self.headers_of(blob))

  def do_DELETE(self):
    bucket, name, _ = self.target
    with self.server.lock:
      there = self.server.blobs.pop((bucket, name), None)
    if there is None:
      return self.fail(404, "NoSuchKey")
    return self.answer(204 if self.server.kind == "gs" else 202)

  def do_POST(self):
    """Azure deletes several blobs with one request of several parts."""
    _, _, query = self.target
    body = self.body()
    if query.get("comp") != "batch":
      return self.fail(400, "InvalidQueryParameterValue")
    answers = []
    for number, path in enumerate(re.findall(rb"DELETE (\S+) HTTP", body)):
      where = urllib.parse.urlsplit(path.decode()).path.removeprefix("/")
      bucket, _, name = where.partition("/")
      key = bucket, urllib.parse.unquote(name)
      with self.server.lock:
        there = self.server.blobs.pop(key, None)
      status = "202 Accepted" if there else "404 Not Found"
      code = "" if there else "x-ms-error-code: BlobNotFound\r\n"
      answers.append(
        "--batch\r\nContent-Type: application/http\r\n"
        f"Content-ID: {number}\r\n\r\nHTTP/1.1 {status}\r\n{code}"
        "Content-Length: 0\r\n\r\n"
      )
    text = "".join(answers) + "--batch--\r\n"
    kind = ("Content-Type", "multipart/mixed; boundary=batch")
    return self.answer(202, [kind], text.encode())

  def page(self, bucket, prefix, after):
    """Returns the names of a page, and whether there are more."""
    with self.server.lock:
      found = sorted(
        (name, blob)
        for (where, name), blob in self.server.blobs.items()
        if where == bucket and name.startswith(prefix) and name > after
      )
    return found[:PAGE], len(found) > PAGE

  def list_gs(self, bucket, query):
    after = query.get("continuation-token") or query.get("start-after") or ""
    found, more = self.page(bucket, query.get("prefix", ""), after)
    items = "".join(
      f"<Contents><Key>{saxutils.escape(name)}</Key>"
      f"<Size>{len(blob.data)}</Size><ETag>&quot;{blob.etag}&quot;</ETag>"
      "<LastModified>2026-01-01T00:00:00.000Z</LastModified></Contents>"
      for name, blob in found
    )
    token = ""
    if more:
      last = saxutils.escape(found[-1][0])
      token = f"<NextContinuationToken>{last}</NextContinuationToken>"
    text = (
      f"<ListBucketResult><IsTruncated>{str(more).lower()}</IsTruncated>"
      f"{token}{items}</ListBucketResult>"
    )
    self.answer(200, [("Content-Type", "application/xml")], text.encode())

  def list_az(self, bucket, query):
    after = query.get("marker") or ""
    found, more = self.page(bucket, query.get("prefix", ""), after)
    items = "".join(
      f"<Blob><Name>{saxutils.escape(name)}</Name><Properties>"
      f"<Last-Modified>{blob.modified}</Last-Modified>"
      f"<Etag>{blob.etag}</Etag><Content-Length>{len(blob.data)}"
      "</Content-Length><Content-Type>application/octet-stream</Content-Type>"
      "</Properties></Blob>"
      for name, blob in found
    )
    last = saxutils.escape(found[-1][0]) if more else ""
    text = (
      f'<?xml version="1.0"?><EnumerationResults><Blobs>{items}</Blobs>'
      f"<NextMarker>{last}</NextMarker></EnumerationResults>"
    )
    self.answer(200, [("Content-Type", "application/xml")], text.encode())


def main():
  _, kind, port = sys.argv
  Server(int(port), kind).serve_forever()


if __name__ == "__main__":
  main()
