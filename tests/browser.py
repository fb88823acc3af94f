# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""A headless Chromium, driven over a pipe: no port, no other package.

Chromium speaks its DevTools protocol over descriptors 3 and 4, a JSON object
and a NUL a message. Nothing of it reaches a network.
"""

import base64
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import time
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
_FLAGS = (
  "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
  "--no-first-run", "--disable-background-networking",
  "--disable-component-update", "--disable-sync", "--disable-extensions",
  "--disable-default-apps", "--disable-dev-shm-usage", "--hide-scrollbars",
  "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-pipe",
)  # fmt: skip
# Its descriptors are 3 and 4 whatever ours are.
_EXEC = (
  "import fcntl, os, sys; "
  "r, w = (fcntl.fcntl(int(n), fcntl.F_DUPFD, 10) for n in sys.argv[1:3]); "
  "os.dup2(r, 3); os.dup2(w, 4); os.execv(sys.argv[3], sys.argv[3:])"
)
_KEYS = {
  "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40,
  "Enter": 13, "Escape": 27, "Home": 36, "End": 35, "PageDown": 34,
  "PageUp": 33, "Tab": 9,
}  # fmt: skip


def executable() -> str | None:
  """Returns the path of a Chromium, or None."""
  return next((path for name in NAMES if (path := shutil.which(name))), None)


class Browser:
  """One page of one Chromium.

  Attributes:
    errors: What its console and its page complained of.
  """

  def __init__(
    self, profile: pathlib.Path, width: int = 1280, height: int = 800
  ):
    path = executable()
    assert path is not None
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    command = [sys.executable, "-c", _EXEC, str(theirs_in), str(theirs_out)]
    command += [path, *_FLAGS, f"--user-data-dir={profile}", "about:blank"]
    self._process = subprocess.Popen(
      command,
      pass_fds=(theirs_in, theirs_out),
      stdin=subprocess.DEVNULL,
      stdout=subprocess.DEVNULL,
      stderr=subprocess.DEVNULL,
    )
    os.close(theirs_in)
    os.close(theirs_out)
    self._in = os.fdopen(ours_in, "rb", buffering=0)
    self._out = os.fdopen(ours_out, "wb", buffering=0)
    self._left = b""
    self._number = 0
    self._session: str | None = None
    self._events: list[dict[str, Any]] = []
    self.errors: list[str] = []
    try:
      self._attach()
    except BaseException:
      self.close()
      raise
    self.resize(width, height)

  def _attach(self) -> None:
    """Waits for its page, and listens to it."""
    (target,) = (
      own["targetId"]
      for own in self.send("Target.getTargets")["targetInfos"]
      if own["type"] == "page"
    )
    self._session = self.send(
      "Target.attachToTarget", targetId=target, flatten=True
    )["sessionId"]
    for domain in ("Page", "Runtime", "Log", "Network"):
      self.send(f"{domain}.enable")

  def send(self, method: str, **parameters: Any) -> dict[str, Any]:
    """Calls a method of the protocol and returns its result."""
    self._number += 1
    message = {"id": self._number, "method": method, "params": parameters}
    if self._session is not None:
      message["sessionId"] = self._session
    self._out.write(json.dumps(message).encode() + b"\0")
    while True:
      found = self._receive()
      if found.get("id") == self._number:
        if "error" in found:
          raise RuntimeError(f"{method}: {found['error']}")
        return found["result"]

  def _receive(self) -> dict[str, Any]:
    while b"\0" not in self._left:
      part = self._in.read(1 << 20)
      if not part:
        raise RuntimeError("Chromium ended")
      self._left += part
    text, _, self._left = self._left.partition(b"\0")
    found = json.loads(text)
    self._note(found)
    return found

  def _note(self, found: dict[str, Any]) -> None:
    method, own = found.get("method"), found.get("params", {})
    if method == "Runtime.exceptionThrown":
      self.errors.append(json.dumps(own["exceptionDetails"])[:2_000])
    elif method == "Runtime.consoleAPICalled" and own["type"] != "log":
      self.errors.append(json.dumps(own["args"]))
    elif method == "Log.entryAdded":
      self.errors.append(own["entry"]["text"])
    elif method == "Network.requestWillBeSent":
      self._events.append(own)
    elif method == "Page.loadEventFired":
      self._events.append({"loaded": True})

  @property
  def requests(self) -> list[str]:
    """URLs that were asked for since the last `open`."""
    return [own["request"]["url"] for own in self._events if "request" in own]

  def open(self, path: pathlib.Path) -> None:
    """Opens a file and waits until it is loaded."""
    self._events.clear()
    self.errors.clear()
    self.send("Page.navigate", url=path.as_uri())
    while {"loaded": True} not in self._events:
      self._receive()
    self.settle()

  def evaluate(self, script: str) -> Any:
    """Returns the value of an expression in the page; promises are awaited."""
    found = self.send(
      "Runtime.evaluate",
      expression=script,
      returnByValue=True,
      awaitPromise=True,
    )
    if "exceptionDetails" in found:
      raise RuntimeError(json.dumps(found["exceptionDetails"])[:2_000])
    return found["result"].get("value")

  def settle(self) -> None:
    """Waits until what was asked for is drawn."""
    self.evaluate(
      "new Promise(r => requestAnimationFrame(() => requestAnimationFrame(r)))"
    )

  def key(self, name: str) -> None:
    """Presses and releases a key."""
    own: dict[str, Any] = {"key": name}
    if name in _KEYS:
      own["windowsVirtualKeyCode"] = _KEYS[name]
      if name == "Enter":
        own["text"] = "\r"
    else:
      own["text"] = name
    self.send("Input.dispatchKeyEvent", type="keyDown", **own)
    own.pop("text", None)
    self.send("Input.dispatchKeyEvent", type="keyUp", **own)
    self.settle()

  def move(self, x: float, y: float) -> None:
    """Moves the pointer."""
    self.send("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
    self.settle()

  def click(self, x: float, y: float) -> None:
    """Clicks the left button."""
    for kind in ("mousePressed", "mouseReleased"):
      self.send(
        "Input.dispatchMouseEvent",
        type=kind, x=x, y=y, button="left", clickCount=1,
      )  # fmt: skip
    self.settle()

  def resize(self, width: int, height: int) -> None:
    """Sets the size of the window's inside, in CSS pixels."""
    self.send(
      "Emulation.setDeviceMetricsOverride",
      width=width, height=height, deviceScaleFactor=1, mobile=False,
    )  # fmt: skip

  def dark(self, on: bool) -> None:
    """Sets what the system says of its colours."""
    value = "dark" if on else "light"
    self.send(
      "Emulation.setEmulatedMedia",
      features=[{"name": "prefers-color-scheme", "value": value}],
    )
    self.settle()

  def screenshot(self, path: pathlib.Path, whole: bool = False) -> None:
    """Writes what the window, or the whole page, looks like."""
    found = self.send(
      "Page.captureScreenshot", format="png", captureBeyondViewport=whole
    )
    path.write_bytes(base64.b64decode(found["data"]))

  def close(self) -> None:
    """Ends it."""
    with contextlib.suppress(RuntimeError, OSError):
      self.send("Browser.close")
    for _ in range(50):
      if self._process.poll() is not None:
        break
      time.sleep(0.1)
    else:
      self._process.kill()
    self._process.wait()
    self._in.close()
    self._out.close()
