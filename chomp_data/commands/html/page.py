# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""One self-contained page of HTML: styles, scripts and data in one file.

Nothing is fetched and nothing of the data is ever markup: it is JSON without
a '<', shown as text, and the page's own policy allows no other script.
"""

import base64
import hashlib
import json
import pathlib
from typing import Any

_HERE = pathlib.Path(__file__).parent
# In this order, in one scope.
_SCRIPTS = ("data", "draw", "charts", "strips", "detail", "pictures", "main")


def page(values: dict[str, Any], title: str) -> str:
  """Returns the page.

  Args:
    values: Of `gathering.gathered`.
    title: Its title, any text.
  """
  style = (_HERE / "page.css").read_text()
  parts = [(_HERE / f"{name}.js").read_text() for name in _SCRIPTS]
  script = '(() => {\n"use strict";\n' + "\n".join(parts) + "})();\n"
  data = json.dumps({"title": title, **values}, separators=(",", ":"))
  filled = {
    "STYLE": style,
    "STYLE_HASH": _digest(style),
    "SCRIPT": script,
    "SCRIPT_HASH": _digest(script),
    # The one character by which a script's text could end.
    "DATA": data.replace("<", "\\u003c"),
  }
  text = (_HERE / "page.html").read_text()
  for name, value in filled.items():
    head, mark, tail = text.partition("{{" + name + "}}")
    assert mark, name
    text = head + value + tail
  return text


def _digest(text: str) -> str:
  """Returns what a page's policy calls a script or style."""
  digest = hashlib.sha256(text.encode()).digest()
  return f"sha256-{base64.b64encode(digest).decode()}"
