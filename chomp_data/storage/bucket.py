# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A prefix of a bucket in S3, Google Cloud Storage or Azure Blob Storage.

Requests go through obstore; `requests` retries, hedges and counts them. Servers
other than Amazon's are named in AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, with
AWS_REGION, as for Amazon's own tools; servers other than Google's in
STORAGE_EMULATOR_HOST; other than Microsoft's in AZURE_STORAGE_ENDPOINT.
"""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
import contextlib
import dataclasses
import datetime
import errno
import io
import os
import re
import threading
import time
from typing import Any
import urllib.error
import urllib.request

from chomp_data import errors
from chomp_data.storage import checksums
from chomp_data.storage import credentials
from chomp_data.storage import object_files
from chomp_data.storage import paths
from chomp_data.storage import relative_names
from chomp_data.storage import requests
from chomp_data.storage import storage
from chomp_data.threads import together

# By the scheme of a URL: the name of obstore's class.
STORES: dict[str, str] = {
  "s3": "S3Store",
  "gs": "GCSStore",
  "az": "AzureStore",
}

# Names of buckets. Amazon's are names of hosts; servers other than Amazon's
# also take names of the former rule.
_NAMING = {
  "s3": (
    re.compile(
      r"(?!\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]"
    ),
    "3 to 63 lower-case letters, digits, dots and hyphens that begin and end"
    " with a letter or digit, without two dots in a row, and no IP address",
  ),
  "s3 elsewhere": (
    re.compile(r"[A-Za-z0-9._-]{3,255}"),
    "3 to 255 letters, digits, dots, hyphens and underscores",
  ),
  "gs": (
    re.compile(
      r"(?!\d+\.\d+\.\d+\.\d+$)(?!.*\.\.)(?!goog)(?=.{3,222}$)"
      r"[a-z0-9]([a-z0-9_-]{0,61}[a-z0-9_])?"
      r"(\.[a-z0-9_-]{1,63})*(?<![._-])"
    ),
    "3 to 63 (with dots 222) lower-case letters, digits, hyphens, underscores"
    " and dots that begin and end with a letter or digit, no IP address, and"
    " not beginning with 'goog'",
  ),
  "az": (
    re.compile(r"\$root|(?!.*--)[a-z0-9][a-z0-9-]{1,61}[a-z0-9]"),
    "3 to 63 lower-case letters, digits and hyphens that begin and end with a"
    " letter or digit, without two hyphens in a row",
  ),
}

# Objects that are deleted at once.
_DELETED_TOGETHER = 32

# Objects of one page of a listing.
_PAGE = 1_000

# Reads of more bytes take long because of them.
_HEDGED_BYTES = 8 * 2**20

_REGION_TIMEOUT_S = 5.0


# Variables that decide which server is asked, and with which credentials.
_VARIABLES = (
  "AWS_",
  "AZURE_",
  "CLOUDSDK_",
  "GCE_",
  "GOOGLE_",
  "HOME",
  "STORAGE_",
)


@dataclasses.dataclass(frozen=True)
class _Client:
  """What the storages of one bucket share in a process: connections, tokens.

  Attributes:
    store: obstore's.
    credentials: With which requests are signed.
    retries: Retries the requests.
    hedging: Says when reads are sent again.
  """

  store: Any
  credentials: credentials.Credentials
  retries: requests.Retries
  hedging: requests.Hedging


_clients: dict[Any, _Client] = {}
_clients_lock = threading.Lock()


class BucketStorage(storage.Storage):
  """The objects of a bucket whose names begin with a prefix."""

  def __init__(self, path: str):
    """Sends no request.

    Args:
      path: A URL of a scheme of `STORES`.

    Raises:
      StoreError: If it is another one, or names no bucket.
    """
    scheme, _, rest = path.partition("://")
    bucket, _, prefix = rest.partition("/")
    if scheme not in STORES or not bucket:
      raise errors.StoreError(
        f"`path` must be a directory, s3://BUCKET/PATH, gs://BUCKET/PATH or"
        f" az://CONTAINER/PATH, got {path!r}. Correct it, or copy what is there"
        " to one of these."
      )
    naming = "s3 elsewhere" if scheme == "s3" and _s3_endpoint() else scheme
    pattern, rule = _NAMING[naming]
    if not pattern.fullmatch(bucket):
      raise errors.StoreError(
        f"`path` must name a bucket of {rule}, got {bucket!r} in {path!r}."
        " Correct it."
      )
    self._scheme = scheme
    self._bucket = bucket
    self._prefix = prefix.strip("/")
    self.path: str = f"{scheme}://{bucket}/{self._prefix}".rstrip("/")
    self._opened: _Client | None = None

  def __getstate__(self) -> dict[str, Any]:
    return {"path": self.path}

  def __setstate__(self, state: dict[str, Any]) -> None:
    self.__init__(state["path"])

  def head(self, name: str) -> storage.ObjectInfo | None:
    """Returns an object's size and version, by one request."""
    import obstore

    try:
      meta = self._call(
        "read", name, lambda store: obstore.head_async(store, self._key(name))
      )
    except FileNotFoundError:
      return None
    return self._info(meta)

  def read(
    self,
    name: str,
    start: int = 0,
    stop: int | None = None,
    *,
    check: storage.Check | None = None,
    version: int | str | None = None,
    sent: requests.Requests | None = None,
  ) -> tuple[bytes, storage.ObjectInfo]:
    """Returns bytes of an object and its metadata, by one request."""
    import obstore

    options: Any = {}
    if start < 0:
      options["range"] = {"suffix": -start}
    elif stop is not None:
      options["range"] = (start, stop)
    elif start:
      options["range"] = {"offset": start}

    async def answer(store: Any) -> tuple[Any, bytes]:
      size = None
      if start < 0 and self._scheme == "az":
        # Azure knows no ranges from the end.
        meta = await obstore.head_async(store, self._key(name))
        options["range"] = (max(meta["size"] + start, 0), meta["size"])
        size = meta["size"]
      result = await obstore.get_async(store, self._key(name), options=options)
      if size is not None and result.meta["size"] != size:
        raise requests.DamagedAnswer(
          errors.StoreError(
            f"{self.url(name)} must be one object, got one of {size} bytes and"
            f" one of {result.meta['size']}. Start again once it is written."
          )
        )
      return result, bytes(await result.bytes_async())

    def checked(answer: tuple[Any, bytes]) -> tuple[bytes, storage.ObjectInfo]:
      result, data = answer
      info = self._info(result.meta)
      if version not in (None, info.version, info.etag):
        # Listings of GCS name ETags, which are in quotation marks.
        is_etag = str(version).startswith('"')
        raise errors.StoreError(
          f"{self.url(name)} must be the object of version {version} that was"
          f" opened, got {info.etag if is_etag else info.version}: it was"
          " replaced meanwhile. Put it back, or start again."
        )
      if start >= 0 and stop is not None and info.size < stop:
        raise errors.StoreError(
          f"{self.url(name)} must have at least {stop} bytes, got {info.size}."
          " It is not the object that was written; get it again."
        )
      first, last = result.range
      self._check(name, data, last - first, check)
      return data, info

    counted = requests.Requests()
    try:
      small = stop is None or stop - start <= _HEDGED_BYTES
      return self._call("read", name, answer, counted, checked, hedges=small)
    finally:
      if sent is not None:
        sent.add(counted)

  def open_file(
    self,
    name: str,
    size: int,
    *,
    until: int | None = None,
    buffered: bool = True,
  ) -> io.BufferedIOBase | io.RawIOBase:
    """Returns an object as a file, each range of which is a request."""
    file = object_files.ObjectFile(self, name, size, until)
    return io.BufferedReader(file, object_files.RANGE) if buffered else file

  def open_ends(self, name: str, size: int) -> io.BufferedReader:
    """Returns an object as a file whose ends are a request each."""
    ends = object_files.ObjectEnds(self, name, size)
    return io.BufferedReader(ends, object_files.END)

  def put(self, name: str, data: bytes, *, create: bool = False) -> bool:
    """Writes an object, or only if there is none of that name."""
    import obstore

    sent = requests.Requests(bytes_written=len(data))
    mode = "create" if create else "overwrite"
    try:
      self._call(
        "write",
        name,
        lambda store: obstore.put_async(
          store, self._key(name), data, mode=mode, use_multipart=False
        ),
        sent,
      )
    except requests.Refused:
      # A try whose answer was lost may have written it.
      return bool(sent.retries) and self.holds(name, data)
    return True

  def replace(
    self, name: str, data: bytes, info: storage.ObjectInfo
  ) -> storage.ObjectInfo | None:
    """Writes an object in the place of one version of it only.

    Args:
      name: The object.
      data: What no other process writes there.
      info: The version, as `read` returned it.

    Returns:
      The version that was written; None if another one is there.
    """
    import obstore

    sent = requests.Requests(bytes_written=len(data))
    version: Any = {"e_tag": f'"{info.version}"'}
    if self._scheme == "gs":
      version = {"version": str(info.version)}
    try:
      written = self._call(
        "write",
        name,
        lambda store: obstore.put_async(
          store, self._key(name), data, mode=version, use_multipart=False
        ),
        sent,
      )
    except (requests.Refused, FileNotFoundError):
      if not sent.retries:
        return None
      try:
        there, info = self.read(name)
      except FileNotFoundError:
        return None
      return info if there == data else None
    return self._info({**written, "path": self._key(name), "size": len(data)})

  def list(self, prefix: str = "") -> Iterator[storage.ObjectInfo]:
    """Yields the objects below a prefix, ascending, page by page.

    A page is a request. After one that failed the listing continues behind the
    last name that was yielded.
    """
    import obstore

    folder = self._key(prefix).rpartition("/")[0]
    last, after, pages = "", "", None

    async def next_page(store: Any) -> Any:
      nonlocal after, pages
      if pages is None:
        after = last
        pages = obstore.list(
          store, folder or None, offset=after or None, chunk_size=_PAGE
        )
      try:
        return await pages.__anext__()
      except StopAsyncIteration:
        return []
      except BaseException:
        pages = None  # A stream that failed does not continue.
        raise

    while metas := self._call("list", prefix, next_page):
      for meta in metas:
        info = self._info(meta)
        # A server may ignore where a listing continues.
        if meta["path"] > after and info.name.startswith(prefix):
          yield info
      last = max(last, metas[-1]["path"])

  def delete(self, names: Iterable[str]) -> None:
    """Deletes objects, some at once."""
    import obstore

    def delete(name: str) -> None:
      with contextlib.suppress(FileNotFoundError):
        self._call(
          "delete",
          name,
          lambda store: obstore.delete_async(store, self._key(name)),
        )

    together.for_all(delete, sorted(names), _DELETED_TOGETHER)

  def _check(
    self, name: str, data: bytes, size: int, check: storage.Check | None
  ) -> None:
    """Raises DamagedAnswer unless an answer is what was written."""
    try:
      if len(data) != size:
        raise errors.StoreError(
          f"{self.url(name)} must be answered with {size} bytes, got"
          f" {len(data)}. Check the server, or what lies between."
        )
      if check is not None:
        check(data)
    except ValueError as error:
      raise requests.DamagedAnswer(
        error, (len(data), checksums.crc32c(data))
      ) from error

  def _call(
    self,
    what: str,
    name: str,
    request: Callable[[Any], Any],
    sent: requests.Requests | None = None,
    checked: Callable[[Any], Any] = lambda answer: answer,
    hedges: bool = True,
  ) -> Any:
    """Returns the checked answer of a request, retried.

    Args:
      what: 'read', 'write', 'list' or 'delete'.
      name: The object.
      request: Makes the coroutine that sends it, from obstore's store.
      sent: Counts; new ones by default.
      checked: Returns what an answer means, or raises.
      hedges: Whether a read is sent a second time where it takes long.

    Raises:
      FileNotFoundError: If there is no such object.
      requests.Refused: If a condition of a write does not hold.
      StoreError: If it fails for another reason.
    """
    sent = requests.Requests() if sent is None else sent
    if relative_names.leaves_address(name):
      raise errors.StoreError(
        f"objects of {self.path} must have names without parts '.' and '..',"
        f" got {relative_names.brief(name)}. Rename the object."
      )
    client = self._client

    hedging = client.hedging if what == "read" and hedges else None

    def ask() -> Any:
      began, num_sent = time.monotonic(), sent.requests
      after_s = None if hedging is None else hedging.after_s()
      try:
        answer = requests.run(
          lambda: requests.hedged(
            lambda: _awaited(request, client.store), after_s, sent
          ),
          requests.TIMEOUT_S,
        )
        if hedging is not None:
          hedging.add(time.monotonic() - began, sent.requests - num_sent)
      except FileNotFoundError:
        raise self._missing(name) from None
      except Exception as error:
        if type(error).__name__ in ("AlreadyExistsError", "PreconditionError"):
          raise requests.Refused from error
        raise
      if what == "read" and isinstance(answer, tuple):
        sent.bytes_read += len(answer[1])
      return checked(answer)

    return client.retries.call(
      ask,
      sent,
      f"{what} of {self.url(name)}",
      lambda error, seconds: self._error(what, name, error, seconds),
    )

  def _info(self, meta: Any) -> storage.ObjectInfo:
    version = meta["version"]
    if self._scheme != "gs":
      version = (meta["e_tag"] or "").strip('"')
    name = meta["path"].removeprefix(f"{self._prefix}/" if self._prefix else "")
    etag = meta["e_tag"] or str(meta.get("last_modified"))
    return storage.ObjectInfo(name, meta["size"], version, etag)

  def _missing(self, name: str) -> FileNotFoundError:
    return FileNotFoundError(errno.ENOENT, "no object", self.url(name))

  @property
  def _client(self) -> _Client:
    """The client of the bucket, opened once in a process."""
    if self._opened is None:
      variables = {
        name: value
        for name, value in os.environ.items()
        if name.startswith(_VARIABLES)
      }
      key = self._scheme, self._bucket, frozenset(variables.items())
      with _clients_lock:
        if key not in _clients:
          _clients[key] = self._open()
        self._opened = _clients[key]
    return self._opened

  def _open(self) -> _Client:
    import obstore.store

    signing = credentials.find(self._scheme)
    endpoint = {"s3": _s3_endpoint, "gs": _gcs_endpoint, "az": _azure_endpoint}[
      self._scheme
    ]()
    config = {**signing.config}
    if endpoint:
      config["base_url" if self._scheme == "gs" else "endpoint"] = endpoint
    if self._scheme == "s3":
      config["region"] = (
        os.environ.get("AWS_REGION")
        or os.environ.get("AWS_DEFAULT_REGION")
        or (None if endpoint else region_of(self._bucket))
        or "us-east-1"
      )
    no_delay = datetime.timedelta(milliseconds=1)
    try:
      store = getattr(obstore.store, STORES[self._scheme])(
        self._bucket,
        config=config,
        credential_provider=signing.provider,
        client_options={
          "allow_http": True,
          "timeout": datetime.timedelta(seconds=requests.TIMEOUT_S),
        },
        # Retries are ours, to be counted and to end in an error with the URL.
        retry_config={
          "max_retries": 0,
          "retry_timeout": no_delay,
          "backoff": {
            "init_backoff": no_delay,
            "max_backoff": no_delay,
            "base": 2,
          },
        },
      )
    except Exception as error:
      raise errors.StoreError(
        f"{self.path} must be below a bucket that can be opened, got"
        f" {requests.reason_of(error)}. {signing.advice('read')}"
      ) from error
    return _Client(store, signing, requests.Retries(), requests.Hedging())

  def _key(self, name: str) -> str:
    """Returns the name of an object in the bucket."""
    return f"{self._prefix}/{name}" if self._prefix else name

  def _error(
    self, what: str, name: str, error: Exception, seconds: float
  ) -> errors.StoreError:
    """Returns what is raised for a request that failed."""
    fix = "Check the network and the server."
    kind, status = type(error).__name__, requests.status_of(error)
    if status in (401, 403) or kind in (
      "PermissionDeniedError",
      "UnauthenticatedError",
    ):
      fix = self._client.credentials.advice(what)
    elif requests.is_bad_name(error):
      fix = "Rename the object: no part of a name may be empty, '.' or '..'."
    elif status == 404:
      fix = f"Check that the bucket {self._bucket!r} exists."
    verb = {"read": "readable", "list": "listable", "delete": "deletable"}
    return errors.AccessError(
      f"{self.url(name)} must be {verb.get(what, 'writable')}, got"
      f" {requests.reason_of(error).rstrip('.')} ({seconds:.1f} s). {fix}"
    )


async def _awaited(request: Callable[[Any], Any], store: Any) -> Any:
  """Awaits a request that is made in the thread of the event loop."""
  return await request(store)


def region_of(bucket: str) -> str | None:
  """Returns the region of a bucket of Amazon's, or None if it is unknown."""
  request = urllib.request.Request(
    f"https://s3.amazonaws.com/{bucket}", method="HEAD"
  )
  try:
    with urllib.request.urlopen(request, timeout=_REGION_TIMEOUT_S) as answer:
      return answer.headers.get("x-amz-bucket-region")
  except urllib.error.HTTPError as error:  # Refused answers have it, too.
    return error.headers.get("x-amz-bucket-region")
  except OSError:
    return None


def _s3_endpoint() -> str | None:
  """Returns the server of S3, None for Amazon's."""
  endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get(
    "AWS_ENDPOINT_URL"
  )
  return endpoint.rstrip("/") if endpoint else None


def _gcs_endpoint() -> str | None:
  """Returns the server of GCS, None for Google's."""
  # The second is what TensorStore reads, which read buckets here before.
  endpoint = os.environ.get("STORAGE_EMULATOR_HOST") or os.environ.get(
    "TENSORSTORE_GCS_HTTP_URL"
  )
  if endpoint and not paths.is_url(endpoint):
    endpoint = f"http://{endpoint}"
  return endpoint.rstrip("/") if endpoint else None


def _azure_endpoint() -> str | None:
  """Returns the server of Azure Blob Storage, None for Microsoft's."""
  endpoint = os.environ.get("AZURE_STORAGE_ENDPOINT")
  return endpoint.rstrip("/") if endpoint else None
