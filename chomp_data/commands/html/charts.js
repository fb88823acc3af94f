// Totals and three charts. Each chart says in words what it draws.

function tiles() {
  let positions = 0, used = 0, spans = 0, trained = 0, gone = 0;
  for (const step of steps) {
    positions += step.rows * step.length;
    spans += step.row.length;
    step.row.forEach((_, i) => {
      if (step.flags[i] & FLAG.gone) gone += step.size[i]; else used += step.size[i];
    });
    if (step.hasTokens) for (const byte of step.mask) for (let b = byte; b; b &= b - 1) trained++;
  }
  const all = [
    [plural(steps.reduce((sum, step) => sum + step.rows, 0), "row"), steps.length > 1 ? `of ${steps.length} steps` : "of this step"],
    [count(positions), "positions"],
    [percent(used / positions, 2), "hold a token"],
  ];
  if (!run.plan_only) all.push([percent(trained / positions, 2), "are trained on"]);
  all.push([plural(documents.id.length, "document"), `in ${plural(spans, "span")}`]);
  if (gone) all.push([count(gone), "positions are gone"]);
  byId("tiles").replaceChildren(
    ...all.map(([value, what]) => make("div", { class: "card tile" }, make("b", {}, value), make("span", {}, what))));
}

const CHART = { width: 340, height: 130, x0: 34, x1: 336, y0: 110, y1: 6 };
const HALVES = [[0, "0 %"], [0.5, "50 %"], [1, "100 %"]];

// Columns of stacked parts, [share of the height, words, colour], over levels;
// labels are below the axis, at a share of its width.
function chart({ title, note, words, foot, levels, columns, labels }) {
  const { width, height, x0, x1, y0, y1 } = CHART;
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  const line = (type, from, to, y) => svg.append(makeSvg("line", { class: type, x1: from, x2: to, y1: y, y2: y }));
  const text = (x, y, anchor, label) => svg.append(makeSvg("text", { x, y, "text-anchor": anchor }, label));
  for (const [share, label] of levels) {
    const y = y0 + (y1 - y0) * share;
    line("grid", x0, x1, y);
    text(x0 - 5, y + 3.5, "end", label);
  }
  const wide = (x1 - x0) / columns.length, gap = wide > 5 ? Math.min(0.2 * wide, 4) : 0.1 * wide;
  columns.forEach(({ parts, now }, i) => {
    const x = x0 + i * wide + gap / 2;
    let y = y0;
    for (const [share, told, colour] of parts) {
      const high = (y0 - y1) * share, box = { x, y: y -= high, width: wide - gap, height: high };
      for (const name of Object.keys(box)) box[name] = box[name].toFixed(2);
      if (high) svg.append(makeSvg("rect", { ...box, [colour ? "fill" : "class"]: colour || "bar" }, makeSvg("title", {}, told)));
    }
    if (now) line("now", x, x + wide - gap, y0 + 3);
  });
  for (const [share, anchor, label] of labels) text(x0 + share * (x1 - x0), height - 4, anchor, label);
  return make("div", { class: "card chart" },
    make("header", {}, make("h2", {}, title), make("span", { class: "quiet" }, note)), svg, make("div", { class: "legend" }, ...foot));
}

const summed = (values) => values.reduce((sum, own) => sum + own, 0);

// [begin, end) of at most 120 groups of as many numbers below `all`.
function groups(all) {
  const size = Math.ceil(all / 120);
  return Array.from({ length: Math.ceil(all / size) }, (_, i) => [i * size, Math.min((i + 1) * size, all)]);
}

// What the numbers `begin` to `end - 1` are called.
const ranged = (one, begin, end) => end - begin > 1 ? `${one}s ${begin} to ${end - 1}` : `${one} ${begin}`;

// Shares of sources at each step, or in groups of steps where there are many.
function sharesChart() {
  const { first } = run.history, sources = run.sources.length, tokens = unpack(run.history.tokens);
  const all = tokens.length / sources, shown = new Set(steps.map((step) => step.step));
  const sums = (begin, end) => run.sources.map((_, s) => summed(tokens.slice(begin * sources, end * sources).filter((_, i) => i % sources === s)));
  const totals = sums(0, all), whole = summed(totals);
  return chart({
    title: "Tokens by source",
    note: ranged("step", first, first + all),
    words: `Shares of tokens: ${run.sources.map((name, i) => `${name} ${percent(totals[i] / whole)}`).join(", ")}`,
    foot: run.sources.flatMap((name, i) => totals[i] ? [make("span", {}, swatch(sourceColour(i)), named(name), percent(totals[i] / whole))] : []),
    levels: HALVES,
    columns: groups(all).map(([begin, end]) => {
      const own = sums(begin, end), total = summed(own) || 1, name = ranged("step", first + begin, first + end);
      return {
        now: end - begin === 1 && all > 1 && shown.has(first + begin),
        parts: own.map((value, s) => [value / total, `${name}: ${run.sources[s]} ${percent(value / total)}, ${count(value)} tokens`, sourceColour(s)]),
      };
    }),
    labels: all === 1 ? [[0.5, "middle", `step ${first}`]] : [[0, "start", `step ${first}`], [1, "end", `${first + all - 1}`]],
  });
}

// Spans by length, in bins of powers of two.
function lengthsChart() {
  const sizes = Int32Array.from(steps.flatMap((step) => [...step.size])).sort(), spans = sizes.length;
  const bins = new Array(Math.floor(Math.log2(strips.longest)) + 1).fill(0);
  for (const length of sizes) bins[31 - Math.clz32(length)]++;
  const most = Math.max(1, ...bins);
  const foot = spans ? [`median ${count(sizes[spans >> 1])}`, `shortest ${count(sizes[0])}`, `longest ${plural(sizes[spans - 1], "token")}`] : [];
  return chart({
    title: "Lengths of spans",
    note: "tokens, powers of two",
    words: `Spans by length: ${bins.map((own, i) => `${own} from ${2 ** i}`).join(", ")}`,
    foot: foot.map((text) => make("span", {}, text)),
    levels: [[0, "0"], [1, count(most)]],
    columns: bins.map((own, i) => ({
      parts: [[own / most, `${plural(own, "span")} (${percent(own / spans)}) of ${count(2 ** i)} to ${count(2 ** (i + 1) - 1)} tokens`]],
    })),
    labels: bins.flatMap((_, i) => bins.length < 9 || i % 2 === 0 ? [[i / bins.length, "start", count(2 ** i)]] : []),
  });
}

// How much of each row holds tokens, or of groups of rows where there are many.
function utilisationChart() {
  const shares = steps.flatMap((step) => [...step.used].map((used) => used / step.length)), rows = shares.length;
  const average = (begin, end) => summed(shares.slice(begin, end)) / (end - begin);
  const mean = percent(average(0, rows)), full = shares.filter((own) => own === 1).length;
  const least = percent(shares.reduce((low, own) => Math.min(low, own), 1));
  return chart({
    title: "Utilisation of rows",
    note: `mean ${mean}, least ${least}`,
    words: `Utilisation of ${rows} rows: mean ${mean}, least ${least}, ${full} are full`,
    foot: [make("span", {}, `${count(full)} of ${plural(rows, "row")} ${full === 1 ? "is" : "are"} full`)],
    levels: HALVES,
    columns: groups(rows).map(([begin, end]) => ({
      parts: [[average(begin, end), `${ranged("row", begin, end)}: ${percent(average(begin, end))}`]],
    })),
    labels: rows === 1 ? [[0.5, "middle", "row 0"]] : [[0, "start", "row 0"], [1, "end", count(rows - 1)]],
  });
}

function charts() {
  tiles();
  byId("charts").replaceChildren(sharesChart(), lengthsChart(), utilisationChart());
}
