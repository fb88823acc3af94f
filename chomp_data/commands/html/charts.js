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

const CHART = { width: 340, height: 130, left: 34, right: 4, top: 6, bottom: 20 };

function chart(title, note, words, foot, draw) {
  const { width, height } = CHART;
  const svg = makeSvg("svg", { viewBox: `0 0 ${width} ${height}`, role: "img", "aria-label": words });
  draw(svg);
  return make("div", { class: "card chart" },
    make("header", {}, make("h2", {}, title), make("span", { class: "quiet" }, note)), svg, make("div", { class: "legend" }, ...foot));
}

function label(svg, x, y, anchor, text) {
  svg.append(makeSvg("text", { x, y, "text-anchor": anchor }, text));
}

function level(svg, y, text) {
  const { width, left, right } = CHART;
  svg.append(makeSvg("line", { class: "grid", x1: left, x2: width - right, y1: y, y2: y }));
  label(svg, left - 5, y + 3.5, "end", text);
}

const plot = () => ({
  x0: CHART.left, x1: CHART.width - CHART.right, y0: CHART.height - CHART.bottom, y1: CHART.top,
});

function bar(svg, x, y, width, height, fill, words) {
  const rect = makeSvg("rect", { x: x.toFixed(2), y: y.toFixed(2), width: Math.max(width, 0).toFixed(2), height: Math.max(height, 0).toFixed(2) },
    makeSvg("title", {}, words));
  if (fill) rect.setAttribute("fill", fill); else rect.setAttribute("class", "bar");
  svg.append(rect);
}

// Shares of sources at each step, or in groups of steps where there are many.
function sharesChart() {
  const sources = run.sources.length, tokens = unpack(run.history.tokens);
  const all = tokens.length / sources, most = 120;
  const group = Math.ceil(all / most), columns = Math.ceil(all / group);
  const shown = new Set(steps.map((step) => step.step));
  const totals = new Float64Array(sources);
  for (let i = 0; i < tokens.length; i++) totals[i % sources] += tokens[i];
  const whole = totals.reduce((sum, own) => sum + own, 0);
  const last = run.history.first + all - 1;
  const words = run.sources.map((name, i) => `${name} ${percent(totals[i] / whole)}`).join(", ");
  const legend = run.sources.flatMap((name, i) => totals[i] ? [make("span", {}, swatch(sourceColour(i)), named(name), percent(totals[i] / whole))] : []);
  return chart("Tokens by source",
    all === 1 ? `step ${last}` : `steps ${run.history.first} to ${last}`, `Shares of tokens: ${words}`, legend,
    (svg) => {
      const { x0, x1, y0, y1 } = plot();
      for (const share of [0, 0.5, 1]) level(svg, y0 + (y1 - y0) * share, `${100 * share} %`);
      const wide = (x1 - x0) / columns;
      for (let column = 0; column < columns; column++) {
        const sums = new Float64Array(sources);
        const begin = column * group, end = Math.min(begin + group, all);
        for (let step = begin; step < end; step++) for (let s = 0; s < sources; s++) sums[s] += tokens[step * sources + s];
        const total = sums.reduce((sum, own) => sum + own, 0) || 1;
        let y = y0;
        const name = end - begin > 1 ? `steps ${run.history.first + begin} to ${run.history.first + end - 1}` : `step ${run.history.first + begin}`;
        for (let s = 0; s < sources; s++) {
          const high = (y0 - y1) * sums[s] / total;
          y -= high;
          if (high) bar(svg, x0 + column * wide + 0.4, y, Math.min(wide - 0.8, 26), high, sourceColour(s), `${name}: ${run.sources[s]} ${percent(sums[s] / total)}, ${count(sums[s])} tokens`);
        }
        if (end - begin === 1 && all > 1 && shown.has(run.history.first + begin)) {
          svg.append(makeSvg("line", { class: "now", x1: x0 + column * wide + 0.4, x2: x0 + column * wide + Math.min(wide - 0.4, 26.4), y1: y0 + 3, y2: y0 + 3 }));
        }
      }
      label(svg, x0, CHART.height - 4, "start", `step ${run.history.first}`);
      if (all > 1) label(svg, x1, CHART.height - 4, "end", `${last}`);
    });
}

// Spans by length, in bins of powers of two.
function lengthsChart() {
  const longest = Math.max(...steps.map((step) => step.length));
  const bins = new Int32Array(Math.floor(Math.log2(longest)) + 1);
  let spans = 0;
  for (const step of steps) {
    for (const length of step.size) { bins[31 - Math.clz32(length)]++; spans++; }
  }
  const most = Math.max(1, ...bins);
  const sorted = Int32Array.from(steps.flatMap((step) => [...step.size])).sort();
  const foot = spans ? [`median ${count(sorted[spans >> 1])}`, `shortest ${count(sorted[0])}`, `longest ${plural(sorted[spans - 1], "token")}`] : [];
  return chart("Lengths of spans", "tokens, powers of two",
    `Spans by length: ${[...bins].map((own, i) => `${own} from ${2 ** i}`).join(", ")}`, foot.map((text) => make("span", {}, text)), (svg) => {
      const { x0, x1, y0, y1 } = plot();
      level(svg, y0, "0");
      level(svg, y1, count(most));
      const wide = (x1 - x0) / bins.length;
      bins.forEach((own, i) => {
        const high = (y0 - y1) * own / most;
        bar(svg, x0 + i * wide + 1, y0 - high, wide - 2, high, null, `${plural(own, "span")} (${percent(own / spans)}) of ${count(2 ** i)} to ${count(2 ** (i + 1) - 1)} tokens`);
        if (bins.length < 9 || i % 2 === 0) label(svg, x0 + i * wide, CHART.height - 4, "start", count(2 ** i));
      });
    });
}

// How much of each row holds tokens, in the order of rows.
function utilisationChart() {
  const shares = [];
  for (const step of steps) step.used.forEach((used) => shares.push(used / step.length));
  const mean = shares.reduce((sum, own) => sum + own, 0) / shares.length;
  const least = Math.min(...shares), full = shares.filter((own) => own === 1).length;
  return chart("Utilisation of rows", `mean ${percent(mean)}, least ${percent(least)}`,
    `Utilisation of ${shares.length} rows: mean ${percent(mean)}, least ${percent(least)}, ${full} are full`,
    [make("span", {}, `${count(full)} of ${plural(shares.length, "row")} ${full === 1 ? "is" : "are"} full`)], (svg) => {
      const { x0, x1, y0, y1 } = plot();
      for (const share of [0, 0.5, 1]) level(svg, y0 + (y1 - y0) * share, `${100 * share} %`);
      const wide = (x1 - x0) / shares.length;
      if (shares.length <= 64) {
        shares.forEach((own, i) => bar(svg, x0 + i * wide + wide * 0.1, y0 - (y0 - y1) * own, Math.min(wide * 0.8, 26), (y0 - y1) * own, null, `row ${i}: ${percent(own)}`));
      } else {
        let path = `M${x0} ${y0}`;
        shares.forEach((own, i) => {
          const y = (y0 - (y0 - y1) * own).toFixed(1);
          path += `L${(x0 + i * wide).toFixed(1)} ${y}L${(x0 + (i + 1) * wide).toFixed(1)} ${y}`;
        });
        svg.append(makeSvg("path", { class: "area", d: `${path}L${x1} ${y0}Z` }));
      }
      label(svg, x0, CHART.height - 4, "start", "row 0");
      label(svg, x1, CHART.height - 4, "end", count(shares.length - 1));
    });
}

function charts() {
  tiles();
  byId("charts").replaceChildren(sharesChart(), lengthsChart(), utilisationChart());
}
