// What is said of a span: beside the pointer, and in the panel.

const EXCERPT = 48; // tokens on each side of the pointer
const MOST_TEXT = 20000; // tokens of a span that the panel shows
const MOST_PLACES = 500;

function tokensOf(step, i) {
  const part = partOf(step.flags[i]);
  const added = (step.flags[i] & FLAG.bos ? 1 : 0) + (step.flags[i] & FLAG.eos ? 1 : 0) + (part ? 1 : 0);
  const stored = step.size[i] - added, start = step.start[i];
  const more = [step.flags[i] & FLAG.bos ? "BOS" : "", step.flags[i] & FLAG.eos ? "EOS" : ""].filter(Boolean);
  const range = stored ? `${count(start)} to ${count(start + stored - 1)}` : "none";
  return (part ? `${part} ` : "") + range + more.map((name) => ` + ${name}`).join("");
}

const columnsOf = (step, i) => `${count(step.column[i])} to ${count(step.column[i] + step.size[i] - 1)}`;
const numberOf = (document) => `${visible(run.sources[documents.source[document]])} #${documents.number[document]}`;

function placeSelf(tip, x, y) {
  tip.hidden = false;
  const own = tip.getBoundingClientRect();
  const left = Math.min(x + 14, window.innerWidth - own.width - 8);
  const top = y + 18 + own.height > window.innerHeight ? y - own.height - 12 : y + 18;
  tip.style.transform = `translate(${Math.max(4, left)}px, ${Math.max(4, top)}px)`;
}

function showTip(hit, x, y) {
  const tip = byId("tip"), step = steps[hit.step];
  if (hit.span < 0) {
    tip.replaceChildren(make("b", {}, "filler"), `row ${hit.row}, column ${count(hit.column)}`);
    placeSelf(tip, x, y);
    return;
  }
  const i = hit.span, document = step.document[i];
  const gone = step.flags[i] & FLAG.gone;
  const parts = [
    make("b", {}, named(documents.id[document])),
    make("span", { class: "quiet" }, `${numberOf(document)}, tokens ${tokensOf(step, i)} of ${count(documents.length[document])}, columns ${columnsOf(step, i)}`),
  ];
  if (gone) parts.push(make("div", {}, "gone: not read, not trained on"));
  else if (step.hasTokens) {
    const at = hit.row * step.length + hit.column;
    const facts = [`column ${count(hit.column)}`, `token ${step.tokens[at]}`, `position ${count(step.valueAt("positions", hit.row, hit.column))}`,
      step.trained(hit.row, hit.column) ? "trained on" : "not trained on"];
    if (step.hasWeights) facts.push(`weight ${Number(step.valueAt("loss_weight", hit.row, hit.column).toPrecision(4))}`);
    parts.push(make("div", { class: "quiet" }, facts.join(", ")), excerpt(step, i, hit.column));
  }
  tip.replaceChildren(...parts);
  placeSelf(tip, x, y);
}

function excerpt(step, i, column) {
  const begin = Math.max(step.column[i], column - EXCERPT);
  const end = Math.min(step.column[i] + step.size[i], column + EXCERPT);
  const code = make("code");
  let before = begin > step.column[i] ? "… " : "", own = "", after = "";
  step.texts(i, begin, end, (text, at) => {
    if (at < column) before += text;
    else if (at === column || !own) own = text;
    else after += text;
  });
  const flat = (text) => visible(text).replace(/\n/g, "↵");
  // A character of several tokens began before the column.
  if (!own) { own = before.slice(-1); before = before.slice(0, -1); }
  code.append(flat(before), make("mark", {}, flat(own)), flat(after) + (end < step.column[i] + step.size[i] ? " …" : ""));
  return code;
}

function hideTip() { byId("tip").hidden = true; }

function fact(list, name, value) {
  list.append(make("dt", {}, name), make("dd", {}, value));
}

function showDetail() {
  const panel = byId("detail");
  if (!view.focus) {
    panel.replaceChildren(make("h2", {}, "Nothing in focus"),
      make("p", { class: "quiet" }, "Point at a span to read it. Click it, or move with the arrow keys, and it is told here; a click or Enter lights the other places of its document."));
    return;
  }
  const [number, i] = view.focus, step = steps[number], row = step.row[i], document = step.document[i];
  const begin = step.column[i], end = begin + step.size[i], gone = step.flags[i] & FLAG.gone;
  const facts = make("dl", { class: "facts" });
  fact(facts, "Document", `${numberOf(document)} of ${plural(documents.length[document], "token")}`);
  fact(facts, "Tokens", `${tokensOf(step, i)} (${count(step.size[i])})`);
  fact(facts, "Row", `${row} of step ${step.step}${step.bucket ? `, bucket ${step.bucket}` : ""}`);
  fact(facts, "Columns", columnsOf(step, i));
  fact(facts, "Segment", String(step.segment[i]));
  if (gone) fact(facts, "Gone", "not read, not trained on");
  else if (step.hasTokens) {
    const trained = step.trainedOf(row, begin, end);
    fact(facts, "Trained on", `${count(trained)} of ${plural(step.size[i], "token")}`);
    fact(facts, "Positions", `${count(step.valueAt("positions", row, begin))} to ${count(step.valueAt("positions", row, end - 1))}`);
    if (step.hasWeights) {
      let low = Infinity, high = -Infinity;
      step.lines("loss_weight", row, (from, to, value) => {
        if (to > begin && from < end && value > 0) { low = Math.min(low, value); high = Math.max(high, value); }
      });
      if (high > 0) fact(facts, "Weights", low === high ? `${Number(low.toPrecision(4))}` : `${Number(low.toPrecision(4))} to ${Number(high.toPrecision(4))}`);
    }
  }
  const children = [
    make("h2", {}, swatch(spanColour(step, i)), named(documents.id[document])), facts,
  ];
  children.push(...placesList(number, i, document));
  if (step.hasTokens && !gone) {
    children.push(make("h3", {}, "Text"), spanText(step, i));
    if (step.trainedOf(row, begin, end) < step.size[i] - 1) children.push(make("p", { class: "quiet" }, "Dimmed: not a target of the loss."));
  } else if (!step.hasTokens) children.push(make("p", { class: "quiet" }, "Made with --plan_only: no token was read."));
  panel.replaceChildren(...children);
}

// A span's text; what is no target of the loss is dimmed, as in the terminal.
function spanText(step, i) {
  const block = make("pre", { class: "text", tabindex: "0" });
  const row = step.row[i], begin = step.column[i], end = begin + Math.min(step.size[i], MOST_TEXT);
  let text = "", lit = null;
  const flush = () => {
    if (text) block.append(make("span", lit ? {} : { class: "off" }, visible(text)));
    text = "";
  };
  step.texts(i, begin, end, (own, column) => {
    const target = column > 0 && step.trained(row, column - 1) === 1;
    if (target !== lit) { flush(); lit = target; }
    text += own;
  });
  flush();
  if (end < begin + step.size[i]) block.append(` … ${count(begin + step.size[i] - end)} tokens more`);
  return block;
}

function placesList(number, i, document) {
  const places = placesOf.get(document);
  const heading = make("h3", {}, places.length === 1 ? "In what is shown only here" : `In what is shown ${count(places.length)} times`);
  const list = make("ul", { class: "places" });
  if (places.length > 1) {
    for (const [other, span] of places.slice(0, MOST_PLACES)) {
      const step = steps[other];
      const where = steps.length > 1 ? `step ${step.step}, row ${step.row[span]}` : `row ${step.row[span]}`;
      const button = make("button", { type: "button", onclick: () => { focusOn(other, span); strips.reveal(other, span); } },
        where, make("i", {}, `tokens ${tokensOf(step, span)}`));
      if (other === number && span === i) button.setAttribute("aria-current", "true");
      list.append(make("li", {}, button));
    }
  }
  const found = [heading, list];
  const elsewhere = run.visits[document];
  if (elsewhere) {
    const before = elsewhere.before ? `${plural(elsewhere.before, "time")} before, last at step ${count(elsewhere.last)}` : "never before";
    const after = elsewhere.next === null ? "never after" : `next at step ${count(elsewhere.next)}`;
    found.push(make("p", { class: "quiet" }, `In the run ${before}; ${after}.`));
  }
  return found;
}

function spoken() {
  if (!view.focus) return "";
  const [number, i] = view.focus, step = steps[number], document = step.document[i];
  return `Row ${step.row[i]}, columns ${columnsOf(step, i)}: ${visible(documents.id[document])}, ${numberOf(document)}, tokens ${tokensOf(step, i)}.`
    + (view.pinned ? ` Pinned, ${plural(placesOf.get(document).length, "place")}.` : "");
}
