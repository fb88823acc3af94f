// The page: what pointer and keys do.

function focusOn(number, span) {
  view.focus = [number, span];
  if (view.pinned) view.marked = new Set([steps[number].document[span]]);
  changed();
}

function changed() {
  showDetail();
  byId("said").textContent = spoken();
  strips.draw();
}

function pin() {
  if (!view.focus) return;
  view.pinned = true;
  view.marked = new Set([steps[view.focus[0]].document[view.focus[1]]]);
  changed();
}

function letGo() {
  view.pinned = false;
  view.marked = null;
  byId("found").textContent = "";
  changed();
}

// Places of what is lit, in the order of rows; else of the focus's document.
function litPlaces() {
  const lit = view.marked || (view.focus && new Set([steps[view.focus[0]].document[view.focus[1]]])) || new Set();
  const places = [...lit].flatMap((document) => placesOf.get(document) || []);
  return places.sort((a, b) => a[0] - b[0] || a[1] - b[1]);
}

function toPlace(direction) {
  const places = litPlaces();
  if (!places.length) return;
  const [number, span] = view.focus || [0, -1];
  const after = (own) => own[0] - number || own[1] - span;
  const next = direction > 0 ? places.find((own) => after(own) > 0) || places[0]
    : places.findLast((own) => after(own) < 0) || places[places.length - 1];
  const marked = view.marked;
  view.focus = next;
  view.marked = marked;
  strips.reveal(...next);
  changed();
}

function firstSpan() {
  const number = steps.findIndex((step) => step.row.length);
  return number < 0 ? null : [number, 0];
}

function move(key) {
  if (!view.focus) {
    view.focus = firstSpan();
    if (view.focus) { strips.reveal(...view.focus); focusOn(...view.focus); }
    return;
  }
  let [number, i] = view.focus;
  const step = steps[number];
  const rows = Math.max(1, Math.floor(strips.viewHeight() / strips.rowHeight) - 2);
  if (key === "ArrowRight") i + 1 < step.row.length ? i++ : number + 1 < steps.length && steps[number + 1].row.length && (number++, i = 0);
  else if (key === "ArrowLeft") i ? i-- : number && steps[number - 1].row.length && (number--, i = steps[number].row.length - 1);
  else if (key === "Home") i = step.first[step.row[i]];
  else if (key === "End") i = step.first[step.row[i] + 1] - 1;
  else [number, i] = otherRow(number, i, { ArrowUp: -1, ArrowDown: 1, PageUp: -rows, PageDown: rows }[key]);
  strips.reveal(number, i);
  focusOn(number, i);
}

// The span of another row at the same column, rows without spans passed over.
function otherRow(number, i, by) {
  const column = steps[number].column[i] + Math.floor(steps[number].size[i] / 2);
  const items = strips.items, direction = Math.sign(by);
  let line = strips.lineOf[number] + steps[number].row[i], left = Math.abs(by), found = [number, i];
  while (left > 0 && items[line + direction]) {
    line += direction;
    const item = items[line], step = item.row < 0 ? null : steps[item.step];
    if (!step || step.first[item.row] === step.first[item.row + 1]) continue;
    left--;
    const at = step.first[item.row], end = step.first[item.row + 1];
    const nearest = lastAtMost(step.column.subarray(at, end), column);
    found = [item.step, at + Math.max(0, nearest)];
  }
  return found;
}

// Keys, what they do, how; and whether they work wherever the focus is, but in
// a text field, or on rows alone.
const KEYS = [
  ["ArrowLeft ArrowRight", "← →", "span before, after", move],
  ["ArrowUp ArrowDown", "↑ ↓", "row above, below", move],
  ["Home End", "Home End", "first, last span of the row", move],
  ["PageUp PageDown", "PgUp PgDn", "a screen of rows", move],
  ["Enter Space", "Enter", "pin the document: its other places stay lit", pin],
  ["n p", "n p", "next, previous place of what is lit", (key) => toPlace(key === "n" ? 1 : -1)],
  ["Escape", "Esc", "let go", letGo, true],
  ["/", "/", "find a document", () => byId("find").focus(), true],
  ["c", "c", "colour by source or document", () => choose("colour", view.colour === "source" ? "document" : "source"), true],
  ["l o w", "l o w", "layers: loss, positions, weight", (key) => toggleLayer({ l: "loss", o: "positions", w: "weight" }[key]), true],
  ["+ = - 0", "+ − 0", "wider, narrower, fit (Ctrl and wheel too)", (key) => strips.zoom({ "-": 1 / 1.5, 0: 0 }[key] ?? 1.5)],
  ["t", "t", "light, dark, as the system", nextTheme, true],
  ["?", "?", "these keys", toggleKeys, true],
];

function onKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const typing = event.target.matches("input[type=search]");
  if (typing) {
    if (event.key === "Enter") { toPlace(1); event.preventDefault(); }
    if (event.key === "Escape") { event.target.value = ""; letGo(); byId("strips").focus(); }
    return;
  }
  // Before anything is in focus, keys that scroll scroll the page.
  const inStrips = event.target === byId("strips") || (event.target === document.body && view.focus);
  const name = event.key === " " ? "Space" : event.key;
  const entry = KEYS.find(([keys]) => keys.split(" ").includes(name));
  if (!entry || !(entry[4] || inStrips) || (run.kind !== "text" && !["t", "?"].includes(name))) return;
  event.preventDefault();
  entry[3](name);
}

function toggleKeys() {
  const hidden = !byId("keys").hidden;
  byId("keys").hidden = hidden;
  byId("keys-button").setAttribute("aria-expanded", String(!hidden));
}

const THEMES = { auto: "light dark", light: "light", dark: "dark" };
let themeName = "auto";
function nextTheme() {
  const names = Object.keys(THEMES);
  themeName = names[(names.indexOf(themeName) + 1) % names.length];
  document.documentElement.style.colorScheme = THEMES[themeName];
  themed();
}

function themed() {
  byId("theme").textContent = `Theme: ${themeName}`;
  theme.refresh();
  if (run.kind === "text") { charts(); legend(); changed(); }
}

function find(text) {
  const wanted = text.trim().toLowerCase();
  if (!wanted) { letGo(); return; }
  const marked = new Set();
  for (let d = 0; d < documents.id.length; d++) {
    const exact = wanted.startsWith("#");
    if (exact ? String(documents.number[d]) === wanted.slice(1) : documents.id[d].toLowerCase().includes(wanted)) marked.add(d);
  }
  view.pinned = false;
  view.marked = marked;
  const places = litPlaces().length;
  byId("found").textContent = `${plural(marked.size, "document")}, ${plural(places, "span")}`;
  if (places) { const first = litPlaces()[0]; view.focus = first; strips.reveal(...first); }
  changed();
}

function option(group, kind, name, words, checked, act) {
  const input = make("input", { type: kind, name: group, value: name, onchange: act });
  input.checked = checked;
  byId(group).append(make("label", {}, input, make("span", {}, words)));
}

function choose(group, name) {
  if (group === "colour") view.colour = name; else view.size = name;
  for (const input of byId(group).querySelectorAll("input")) input.checked = input.value === name;
  if (group === "size") strips.layout();
  legend();
  changed();
}

function toggleLayer(name) {
  if (!layerInput(name)) return;
  view.layers[name] = !view.layers[name];
  layerInput(name).checked = view.layers[name];
  strips.layout();
  legend();
}

const layerInput = (name) => byId("layers").querySelector(`input[value="${name}"]`);

function legend() {
  const add = (mark, words) => byId("legend").append(make("span", {}, mark, words));
  byId("legend").replaceChildren();
  if (view.colour === "source") {
    const present = new Set(steps.flatMap((step) => [...new Set(step.source)]));
    run.sources.forEach((name, i) => { if (present.has(i)) add(swatch(sourceColour(i)), named(name)); });
    add(bands(theme.hues[0]), "tints: documents");
  } else add(bands(theme.hues.slice(0, 4).map(([hue]) => hue)), "documents");
  const { loss, positions, weight } = view.layers;
  add(swatch("", "wide filler"), "filler");
  if (steps.some((step) => step.flags.some((own) => own & FLAG.gone))) add(swatch("", "wide gone"), "gone");
  if (loss) add(swatch("", "wide loss"), "loss: the next token is trained on");
  if (positions) add(swatch("", "wide positions"), `positions: 0 to ${count(strips.longest)}`);
  if (weight) add(swatch("", "wide weight"), `weight: 0 to ${Number(greatestWeight().toPrecision(3))}`);
}

function listen() {
  const canvas = byId("strips"), scroller = byId("scroller");
  const place = (event) => {
    const box = canvas.getBoundingClientRect();
    return [event.clientX - box.left, event.clientY - box.top];
  };
  canvas.addEventListener("pointermove", (event) => {
    const hit = strips.hit(...place(event)), before = view.hover;
    view.hover = hit;
    if (hit) showTip(hit, event.clientX, event.clientY); else hideTip();
    if ((hit && hit.span) !== (before && before.span) || (hit && hit.row) !== (before && before.row)) strips.draw();
  });
  canvas.addEventListener("pointerleave", () => { view.hover = null; hideTip(); strips.draw(); });
  canvas.addEventListener("click", (event) => {
    const hit = strips.hit(...place(event));
    if (!hit || hit.span < 0) { letGo(); return; }
    view.focus = [hit.step, hit.span];
    pin();
  });
  scroller.addEventListener("scroll", () => { hideTip(); strips.draw(); }, { passive: true });
  scroller.addEventListener("wheel", (event) => {
    if (!event.ctrlKey) return;
    event.preventDefault();
    strips.zoom(event.deltaY < 0 ? 1.2 : 1 / 1.2, place(event)[0]);
  }, { passive: false });
  byId("overview").addEventListener("click", (event) => {
    const box = byId("overview").getBoundingClientRect();
    scroller.scrollTop = (event.clientY - box.top) / box.height * strips.height - strips.viewHeight() / 2;
  });
  new ResizeObserver(() => strips.layout()).observe(scroller);
  byId("find").addEventListener("input", (event) => find(event.target.value));
}

function start() {
  byId("title").textContent = document.title = run.title;
  byId("summary").textContent = visible(run.run.summary);
  byId("theme").addEventListener("click", nextTheme);
  byId("keys-button").addEventListener("click", toggleKeys);
  byId("key-list").append(...KEYS.map(([, shown, words]) => make("div", {},
    make("dt", {}, ...shown.split(" ").flatMap((key) => [make("kbd", {}, key), " "])), make("dd", {}, words))));
  document.addEventListener("keydown", onKey);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", themed);
  const skipped = steps.find((step) => step.dataStep !== undefined);
  const data = skipped && steps.length === 1 ? `reads data step ${count(skipped.dataStep)}, ` : "";
  const of = run.run.num_steps === null ? "an endless run" : `a run of ${plural(run.run.num_steps, "step")}`;
  byId("subtitle").textContent = `${data}of ${of}, fingerprint ${run.run.fingerprint}`;
  if (run.kind !== "text") { samples(); themed(); return; }
  byId("work").hidden = false;
  const rows = steps.reduce((sum, step) => sum + step.rows, 0);
  view.size = rows > 64 ? "small" : rows > 12 ? "medium" : "large";
  for (const [name, words] of [["source", "Source"], ["document", "Document"]]) {
    option("colour", "radio", name, words, view.colour === name, () => choose("colour", name));
  }
  for (const name of ["small", "medium", "large"]) {
    option("size", "radio", name, name[0].toUpperCase(), view.size === name, () => choose("size", name));
  }
  if (steps.some((step) => step.hasTokens)) {
    for (const [name, words] of [["loss", "Loss"], ["positions", "Positions"], ["weight", "Weight"]]) {
      if (name === "weight" && !steps.some((step) => step.hasWeights)) continue;
      option("layers", "checkbox", name, words, view.layers[name], () => toggleLayer(name));
    }
  } else byId("layers").hidden = true;
  theme.refresh();
  listen();
  strips.layout();
  themed();
  if (run.lit !== null) {
    view.focus = placesOf.get(run.lit)[0];
    pin();
    strips.reveal(...view.focus);
  }
}

// For people at a console, and for tests.
window.inspection = { run, steps, documents, view, strips };
start();
