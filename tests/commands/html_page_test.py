# SPDX-FileCopyrightText: 2026 The chomp_data Authors
# SPDX-License-Identifier: Apache-2.0
"""The page of inspect_batches --html: its data, and what Chromium shows."""

import base64
import json
import re

import hypothesis
from hypothesis import strategies as st
import numpy as np
import pytest

from chomp_data import stores
from chomp_data.commands.html import gathering
from chomp_data.commands.html import packing
from chomp_data.commands.html import texts
from chomp_data.prepare import tokenizers
from chomp_data.stores import samples_array_record
from examples import drawings
from tests import browser
from tests import in_process
from tests import laws

BYTE = tokenizers.make_tokenizer(tokenizers.TokenizerSpec("byte"))
# What would act if anything of a document were taken for markup.
EVIL = (
  "</script><script>document.title='owned'</script><img src=x"
  " onerror=\"document.title='owned'\">{{DATA}} <!-- \u2028\u202e\x1b[31m"
)
EVIL_ID = "</script><b onclick=alert(1)>&amp;'\"\u202e.txt"

needs_chromium = pytest.mark.skipif(
  browser.executable() is None,
  reason="no Chromium is installed (Debian: apt-get install chromium)",
)


def unpacked(own):
  data = base64.b64decode(own["data"])
  return np.frombuffer(data, f"<{own['type']}")


@laws.examples(60)
@hypothesis.given(seed=st.integers(0, 2**32 - 1))
def test_lines_and_levels_are_the_values(seed):
  rng = np.random.default_rng(seed)
  rows, length = rng.integers(1, 5), rng.integers(1, 9)
  values = rng.integers(0, 3, (rows, length))
  if rng.integers(2):
    values = np.cumsum(values, axis=1)
  own = {k: unpacked(v) for k, v in packing.lines(values, length).items()}
  at = np.arange(values.size)
  i = np.searchsorted(own["begin"], at, "right") - 1
  found = own["value"][i] + own["slope"][i].astype(int) * (at - own["begin"][i])
  assert found.tolist() == values.reshape(-1).tolist()
  assert set(range(0, values.size, length)) <= set(own["begin"].tolist())
  own = packing.levels(values.astype(np.float32), length)
  begin, value = unpacked(own["begin"]), unpacked(own["value"])
  found = value[np.searchsorted(begin, at, "right") - 1]
  assert found.tolist() == values.reshape(-1).tolist()


@pytest.mark.parametrize("kind", ["byte", "bpe", "sentencepiece"])
def test_tokens_and_what_is_joined_spell_the_text(kind, tmp_path):
  lines = ["The naïve café — 猫が好き 😀!", "x = [1, 2]  # \u2603\n\ty"] * 3
  if kind == "byte":
    tokenizer = BYTE
  elif kind == "bpe":
    tokenizers_library = pytest.importorskip("tokenizers")
    made = tokenizers_library.Tokenizer(tokenizers_library.models.BPE())
    made.pre_tokenizer = tokenizers_library.pre_tokenizers.ByteLevel(
      add_prefix_space=False
    )
    made.decoder = tokenizers_library.decoders.ByteLevel()
    made.train_from_iterator(
      ["The cat is in the cafe"] * 9,
      tokenizers_library.trainers.BpeTrainer(
        vocab_size=270,
        show_progress=False,
        initial_alphabet=tokenizers_library.pre_tokenizers.ByteLevel.alphabet(),
      ),
    )
    made.save(str(tmp_path / "t.json"))
    spec = tokenizers.TokenizerSpec(str(tmp_path / "t.json"))
    tokenizer = tokenizers.make_tokenizer(spec)
  else:
    sentencepiece = pytest.importorskip("sentencepiece")
    sentencepiece.SentencePieceTrainer.train(
      sentence_iterator=iter(["the cat is in the cafe and sat on it"] * 50),
      model_prefix=str(tmp_path / "m"),
      vocab_size=300,
      byte_fallback=True,
      hard_vocab_limit=False,
      minloglevel=2,
    )
    spec = tokenizers.TokenizerSpec(str(tmp_path / "m.model"))
    tokenizer = tokenizers.make_tokenizer(spec)
  parts = [tokenizer.encode_batch([text]).tokens for text in lines]
  tokens = np.concatenate([[0], *parts])
  end = np.cumsum([len(part) for part in parts]) + 1
  begin = end - [len(part) for part in parts]
  own = texts.Texts(tokenizer.decode)
  joins = {at: (n, i) for at, n, i in own.add(tokens, begin, end)}
  table = own.table()
  single = dict(
    zip(unpacked(table["ids"]).tolist(), table["texts"], strict=True)
  )
  for part, low, high in zip(parts, begin, end, strict=True):
    spelled, at = "", low
    while at < high:
      count, number = joins.get(at, (1, None))
      spelled += (
        single[int(tokens[at])] if number is None else table["joined"][number]
      )
      at += count
    assert spelled.removeprefix(" ") == tokenizer.decode(part)


@pytest.fixture(scope="module")
def store(tmp_path_factory):
  """Texts, one of them of what acts as markup; weights of some."""
  rng = np.random.default_rng(0)
  words = ["alpha", "beta", "naïve", "猫", "delta\n", "{}", "<b>", "&amp;"]
  documents, levels = [], []
  for number in range(60):
    text = " ".join(rng.choice(words, 5 + number % 17))
    if number % 10 == 3:
      text = EVIL + text
    data = np.frombuffer(text.encode(), np.uint8)
    documents.append(data)
    levels.append(np.repeat([0, 2], [4, len(data) - 4]))
  ids = [EVIL_ID if i % 10 == 3 else f"file-{i}.txt" for i in range(60)]
  return stores.write_store(
    tmp_path_factory.mktemp("page") / "texts",
    documents,
    ids=ids,
    tokenizer_info=BYTE.info,
    levels=(0.0, 1.0, 0.5),
    label_levels=levels,
  ).path


@pytest.fixture(scope="module")
def chromium(tmp_path_factory):
  opened = browser.Browser(tmp_path_factory.mktemp("profile"))
  yield opened
  opened.close()


def write(path, store, *flags):
  return in_process.run_tool(
    "inspect_batches",
    f"--dataset_mix=first={store}:2 second={store}:1",
    f"--html={path}",
    *flags,
    check=True,
  )


def small(path, store, *flags):
  write(
    path,
    store,
    "--config.data.seq_len=256",
    "--config.data.global_batch_size=8",
    *flags,
  )
  return path


def where(row, column):
  """A script: the page's coordinates of a column of a row of step 0."""
  return (
    "(() => { const s = inspection.strips, c ="
    " document.getElementById('strips').getBoundingClientRect();"
    f" return [c.left + s.x({column} + 0.5), c.top +"
    f" s.top[s.lineOf[0] + {row}] + 3 -"
    " document.getElementById('scroller').scrollTop]; })()"
  )


def text_of(chromium, selector):
  return chromium.evaluate(f"document.querySelector({selector!r}).innerText")


@needs_chromium
def test_the_page_shows_a_step_by_pointer_and_by_keyboard(
  chromium, store, tmp_path
):
  path = small(tmp_path / "page.html", store, "--step=2", "--count=1")
  records = [
    json.loads(line)
    for line in in_process.run_tool(
      "inspect_batches",
      f"--dataset_mix=first={store}:2 second={store}:1",
      "--config.data.seq_len=256",
      "--config.data.global_batch_size=8",
      "--format=json",
      "--step=2",
      check=True,
    ).stdout.splitlines()
  ]
  chromium.open(path)
  assert chromium.errors == []
  assert chromium.requests == [path.as_uri()]
  assert chromium.evaluate("document.title") == "Step 2"
  assert chromium.evaluate("inspection.strips.drawn") == 8
  # Each strip is drawn: its colours, from the top down, are not the paper's.
  paper, *found = chromium.evaluate(
    "(() => { const s = inspection.strips, c ="
    " document.getElementById('strips'), w = c.width, d ="
    " c.getContext('2d').getImageData(0, 0, w, c.height).data;"
    " const at = (x, y) => d.slice(4 * (w * y + x), 4 * (w * y + x) + 3)"
    ".join(); return [at(1, 1), ...[...s.top].map(y =>"
    " at(Math.round(s.x(3)), Math.round(y + 5)))]; })()"
  )
  assert len(found) == 8
  assert all(colour != paper for colour in found)
  # The pointer tells what JSON tells.
  for row, which in ((0, 0), (0, -1), (5, 0)):
    span = records[row]["spans"][which]
    column = span["column"] + 5
    chromium.move(*chromium.evaluate(where(row, column)))
    told = text_of(chromium, "#tip")
    assert f"{span['source']} #{span['document']}" in told
    assert f"column {column}," in told.replace("\n", " ")
    assert f"token {records[row]['tokens'][column]}," in told
    assert f"position {records[row]['positions'][column]}," in told
    trained = records[row]["loss_mask"][column]
    assert ("not trained on" in told) is (not trained)
    assert f"weight {records[row]['loss_weight'][column]:g}" in told
  # Arrow keys go from span to span, and the panel follows.
  chromium.evaluate("document.getElementById('strips').focus()")
  spans = [(r["row"], own) for r in records for own in r["spans"]]
  chromium.key("ArrowRight")
  for row, span in spans[:4]:
    told = text_of(chromium, "#detail")
    assert re.search(rf"Row\n{row} of step 2", told)
    assert f"{span['source']} #{span['document']} of" in told
    last = span["column"] + span["length"] - 1
    assert f"Columns\n{span['column']} to {last}" in told
    chromium.key("ArrowRight")
  chromium.key("ArrowDown")
  chromium.key("Home")
  assert chromium.evaluate(
    "inspection.steps[0].column[inspection.view.focus[1]]"
  ) == 0  # fmt: skip
  said = text_of(chromium, "#said")
  assert said.startswith("Row ")
  assert chromium.errors == []


@needs_chromium
@pytest.mark.slow
def test_a_document_is_lit_wherever_it_is(chromium, store, tmp_path):
  path = small(tmp_path / "page.html", store, "--count=9")
  chromium.open(path)
  # One of the first step that is in several places.
  document, places = chromium.evaluate(
    "(() => { const n = new Map(); inspection.steps.forEach(s =>"
    " s.document.forEach(d => n.set(d, (n.get(d) || 0) + 1)));"
    " return [...n].filter(([d]) => inspection.steps[0].document.includes(d))"
    ".sort((a, b) => b[1] - a[1])[0]; })()"
  )
  assert places > 1
  row, column = chromium.evaluate(
    "(() => { const s = inspection.steps[0]; const i ="
    f" s.document.indexOf({document});"
    " return [s.row[i], s.column[i] + 2]; })()"
  )
  before = chromium.evaluate(where(row, column))
  chromium.click(*before)
  assert f"In what is shown {places} times" in text_of(chromium, "#detail")
  assert "Pinned" in text_of(chromium, "#said")
  lit = "[...inspection.view.marked]"
  assert chromium.evaluate(lit) == [document]
  focus = "JSON.stringify(inspection.view.focus)"
  visited = {chromium.evaluate(focus)}
  chromium.evaluate("document.getElementById('strips').focus()")
  for _ in range(places - 1):
    chromium.key("n")
    visited.add(chromium.evaluate(focus))
  assert len(visited) == places
  chromium.key("Escape")
  assert chromium.evaluate("inspection.view.marked") is None
  # Found by number, too.
  chromium.key("/")
  number = chromium.evaluate(f"inspection.documents.number[{document}]")
  for character in f"#{number}":
    chromium.key(character)
  assert document in chromium.evaluate(lit)
  assert re.match(r"\d documents?, \d+ spans?", text_of(chromium, "#found"))
  assert chromium.errors == []
  # A page that is made for one document begins with it.
  name = chromium.evaluate(
    f"inspection.run.sources[inspection.documents.source[{document}]]"
  )
  small(path, store, "--count=9", f"--document={name}/#{number}")
  chromium.open(path)
  assert f"{name} #{number} of" in text_of(chromium, "#detail")
  assert chromium.evaluate("[...inspection.view.marked].length") == 1
  told = text_of(chromium, "#detail")
  assert re.search(r"In the run never before; next at step \d+\.", told)
  assert chromium.errors == []


@needs_chromium
@pytest.mark.slow
def test_what_is_gone_is_hatched_and_told(chromium, store, tmp_path):
  flags = [
    "inspect_batches",
    f"--dataset_mix=first={store}:2 second={store}:1",
    "--config.data.seq_len=256",
    "--config.data.global_batch_size=8",
    "--config.data.skip=((0, 1),)",
  ]

  def rows():
    done = in_process.run_tool(*flags, "--format=json", check=True)
    return [json.loads(line) for line in done.stdout.splitlines()]

  span = rows()[4]["spans"][1]
  gone = {"source": span["source"], "document": span["document"]}
  (tmp_path / "gone.jsonl").write_text(json.dumps({**gone, "length": 9}))
  named = f"{span['source']}/#{span['document']}"
  flags.append(f"--config.data.tombstones=((2, '{tmp_path}/gone.jsonl'),)")
  assert rows()[0]["data_step"] == 2
  found = [
    (own["start"], own["length"])
    for row in rows()
    for own in row["spans"]
    if own.get("gone")
  ]
  assert found == [(0, 9)]
  shown = in_process.run_tool(*flags, "--rows=8", check=True).stdout
  assert "step 0 (data step 2) row 4 of 8" in shown
  assert "tokens 0..8 (gone)" in shown
  path = tmp_path / "page.html"
  in_process.run_tool(
    *flags, f"--document={named}", f"--html={path}", check=True
  )
  chromium.open(path)
  assert text_of(chromium, "#subtitle").startswith("reads data step 2, of a")
  assert "positions are gone" in text_of(chromium, "#tiles")
  assert "gone" in text_of(chromium, "#legend")
  assert "not read, not trained on" in text_of(chromium, "#detail")
  x, y = chromium.evaluate(where(4, span["column"] + 3))
  chromium.move(x, y)
  assert "gone" in text_of(chromium, "#tip")
  chromium.key("ArrowRight")
  assert "Tokens\n9 to" in text_of(chromium, "#detail")
  assert chromium.errors == []


@needs_chromium
@pytest.mark.slow
def test_dark_light_and_layers_are_drawn(chromium, store, tmp_path):
  path = small(tmp_path / "page.html", store)
  ground = "getComputedStyle(document.body).backgroundColor"
  pixels = "document.getElementById('strips').toDataURL()"
  chromium.dark(False)
  chromium.open(path)
  light, drawn = chromium.evaluate(ground), chromium.evaluate(pixels)
  chromium.dark(True)
  dark = chromium.evaluate(ground)
  chromium.settle()
  assert dark != light
  assert chromium.evaluate(pixels) != drawn
  chromium.evaluate("document.getElementById('strips').focus()")
  chromium.key("t")  # light, whatever the system says
  assert chromium.evaluate(ground) == light
  assert chromium.evaluate(pixels) == drawn
  chromium.key("t")
  assert chromium.evaluate(ground) == dark
  chromium.dark(False)
  # A page of labels opens with the layer of what is trained on.
  assert "loss: the next token is trained on" in text_of(chromium, "#legend")
  for key in "llow":
    before = chromium.evaluate(pixels)
    chromium.key(key)
    assert chromium.evaluate(pixels) != before, key
  assert "weight: 0 to 1" in text_of(chromium, "#legend")
  # Each has its track below a row's strip, here at the end of a long span.
  paper, *tracks = chromium.evaluate(
    "(() => { const s = inspection.strips, own = inspection.steps[0];"
    " const i = own.size.indexOf(Math.max(...own.size)), c ="
    " document.getElementById('strips'), w = c.width, d ="
    " c.getContext('2d').getImageData(0, 0, w, c.height).data;"
    " const x = Math.round(s.x(own.column[i] + own.size[i] - 4));"
    " const at = (x, y) => d.slice(4 * (w * y + x), 4 * (w * y + x) + 3)"
    ".join(); const top = s.top[own.row[i]];"
    " return [at(1, 1), at(x, top + 27 + 1), at(x, top + 32 + 13),"
    " at(x, top + 49 + 13)]; })()"
  )
  assert len({paper, *tracks}) == 3  # what is trained on and weighs, is ink
  assert tracks[0] == tracks[2] != paper
  assert chromium.errors == []


@needs_chromium
def test_text_and_ids_are_never_markup(chromium, store, tmp_path):
  path = small(tmp_path / "page.html", store, "--count=2")
  chromium.open(path)
  step, span = chromium.evaluate(
    "(() => { for (const [n, s] of inspection.steps.entries()) for (const"
    " [i, d] of s.document.entries()) if (inspection.documents.number[d] % 10"
    " === 3 && s.start[i] === 0) return [n, i]; })()"
  )
  # Its row is reached by keys, and it is told in the panel and at the pointer.
  chromium.evaluate(f"inspection.view.focus = [{step}, {max(span - 1, 1)}]")
  chromium.evaluate("document.getElementById('strips').focus()")
  chromium.key("ArrowRight" if span > 1 else "ArrowLeft")
  told = text_of(chromium, "#detail")
  assert "<b onclick=alert(1)>&amp;'\"\ufffd.txt" in told
  assert "</script><script>document.title='owned'</script><img src=x" in told
  assert "{{DATA}}" in told
  assert "\u202e" not in told
  assert "\x1b" not in told
  chromium.settle()
  assert chromium.evaluate("document.title") == "Steps 0 to 1"
  assert chromium.evaluate("document.querySelectorAll('img').length") == 0
  assert chromium.errors == []
  assert chromium.requests == [path.as_uri()]


@needs_chromium
@pytest.mark.slow
def test_a_thousand_rows_are_drawn_without_lag(chromium, store, tmp_path):
  path = tmp_path / "page.html"
  write(
    path,
    store,
    "--config.data.seq_len=2048",
    "--config.data.global_batch_size=1024",
    "--history=1",
  )
  chromium.open(path)
  paint = "performance.getEntriesByName('first-contentful-paint')[0].startTime"
  assert chromium.evaluate(paint) < 5_000
  chromium.evaluate("document.getElementById('strips').focus()")
  for key in ("l", "o", "ArrowDown", "Enter"):
    chromium.key(key)
  drawn = chromium.evaluate(
    "(() => { const from = performance.now(); for (let i = 0; i < 20; i++) {"
    " document.getElementById('scroller').scrollTop += 150;"
    " inspection.strips.paint(); } return (performance.now() - from) / 20; })()"
  )
  assert drawn < 100  # milliseconds; some 3 on two quiet cores
  chromium.key("PageDown")
  assert chromium.evaluate("inspection.strips.drawn") < 200
  assert chromium.errors == []


@needs_chromium
@pytest.mark.slow
def test_pictures_of_arrays_are_shown(chromium, tmp_path):
  places = {name: tmp_path / name for name in drawings.DATASETS}
  for name, place in places.items():
    samples_array_record.write_samples(place, drawings.samples(name, 40))
  path = tmp_path / "page.html"
  flags = [
    "inspect_batches",
    "--config=configs/resolution_buckets.py:runlocal",
    *(f"--config.data.sources.{n}.store={p}" for n, p in places.items()),
  ]
  in_process.run_tool(*flags, f"--html={path}", check=True)
  records = [
    json.loads(line)
    for line in in_process.run_tool(
      *flags, "--format=json", check=True
    ).stdout.splitlines()
  ]
  chromium.open(path)
  captions = chromium.evaluate(
    "[...document.querySelectorAll('figcaption')].map(e => e.textContent)"
  )
  assert len(captions) == len(records)
  for caption, record in zip(captions, records, strict=True):
    assert f"sample_id {record['sample_id']}" in caption
  shape = records[0]["pixels"]["shape"]
  own = records[1]
  named = f"--document={own['source']}/#{own['sample_id']}"
  in_process.run_tool(*flags, f"--html={path}", named, check=True)
  chromium.open(path)
  lit = "[...document.querySelectorAll('figure')].map(e => e.matches('.lit'))"
  assert chromium.evaluate(lit) == [
    other["sample_id"] == own["sample_id"] for other in records
  ]
  assert chromium.evaluate(
    "(() => { const c = document.querySelector('figure canvas'); return"
    " [c.height, c.width]; })()"
  ) == shape[:2]  # fmt: skip
  assert chromium.errors == []


def test_a_page_that_would_be_too_large_is_an_error(
  store, tmp_path, monkeypatch
):
  monkeypatch.setattr(gathering, "MOST_POSITIONS", 16 * 512)
  flags = [
    "inspect_batches",
    f"--dataset_mix={store}",
    f"--html={tmp_path / 'x.html'}",
    "--config.data.global_batch_size=16",
    "--plan_only",
  ]
  in_process.run_tool(*flags, check=True)
  (tmp_path / "x.html").unlink()
  ran = in_process.run_tool(*flags, "--count=2")
  assert ran.returncode == 1
  last = ran.stderr.strip().splitlines()[-1]
  assert last.startswith("error: `--html` must be of at most 8,192 positions,")
  assert "got 16,384 in 2 steps" in last
  assert not (tmp_path / "x.html").exists()
