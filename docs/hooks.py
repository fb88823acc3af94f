# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""Makes pages of notebooks, for mkdocs: text, code, and the saved outputs."""

import base64
import json
import re

from mkdocs.structure import files as files_lib

_BLOCK = "```{}\n{}\n```\n"


def on_config(config):
  """Names the pages in the navigation: `name.ipynb` is shown as `name.md`."""
  config["nav"] = _renamed(config["nav"])
  return config


def _renamed(nav):
  if isinstance(nav, dict):
    return {title: _renamed(value) for title, value in nav.items()}
  if isinstance(nav, list):
    return [_renamed(value) for value in nav]
  return re.sub(r"\.ipynb$", ".md", nav)


def on_files(files, config):
  """Adds a page for each notebook; the notebook itself can be downloaded."""
  for file in list(files):
    if not file.src_uri.endswith(".ipynb"):
      continue
    name = file.src_uri.removesuffix(".ipynb")
    parts, images = [], []
    for cell in json.loads(file.content_string)["cells"]:
      source = "".join(cell["source"])
      if cell["cell_type"] == "markdown":
        parts.append(source + "\n")
        continue
      parts.append(_BLOCK.format("python", source))
      for output in cell["outputs"]:
        if "text" in output:
          text = "".join(output["text"]).rstrip("\n")
          parts.append(_BLOCK.format("text", text))
        else:
          images.append(base64.b64decode(output["data"]["image/png"]))
          path = f"{name}_{len(images)}.png"
          parts.append(f"![What the cell above draws]({path})\n")
          files.append(
            files_lib.File.generated(config, path, content=images[-1])
          )
    # Not as a link of Markdown, which leads to the page.
    parts.append(
      f'<a href="../{name}.ipynb" download>Download the notebook</a>'
    )
    page = files_lib.File.generated(
      config, f"{name}.md", content="\n".join(parts)
    )
    files.append(page)
  return files


def on_page_markdown(markdown, page, config, files):
  """Lets links to notebooks lead to their pages."""
  return re.sub(r"\]\((\w+)\.ipynb", r"](\1.md", markdown)
