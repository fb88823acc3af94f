// Rows as strips, on one canvas of the size of the window: only the rows in
// view are drawn, so a thousand rows cost as much as twenty.

const AXIS = 22, GUTTER = 62, RIGHT = 58, HEADING = 26;
// Heights in pixels by the choice of size.
const SIZES = {
  small: { strip: 6, gap: 1, loss: 2, positions: 5, weight: 5 },
  medium: { strip: 13, gap: 4, loss: 3, positions: 9, weight: 9 },
  large: { strip: 26, gap: 7, loss: 4, positions: 16, weight: 16 },
};

const view = {
  colour: run.sources && run.sources.length > 1 ? "source" : "document",
  layers: { loss: Boolean(run.labelled) && !run.plan_only, positions: false, weight: false },
  size: "medium",
  zoom: 1,
  focus: null,   // [step number, span]
  hover: null,   // { step, row, column, span }
  pinned: false, // whether the focus's document stays lit
  marked: null,  // documents that stay lit, or null
};

const strips = {
  items: [],      // { step, row } by line; row -1 is a step's heading
  top: null,      // Float64Array, where each begins
  height: 0,
  width: 0,       // of the window
  longest: 1,     // positions of the longest rows

  layout() {
    const size = SIZES[view.size], layers = view.layers;
    let row = size.strip + size.gap;
    for (const name of Object.keys(layers)) if (layers[name]) row += size[name] + 1;
    this.items = [];
    const tops = [];
    let y = AXIS + 3;
    steps.forEach((step, number) => {
      if (steps.length > 1) {
        this.items.push({ step: number, row: -1 });
        tops.push(y);
        y += HEADING;
      }
      for (let r = 0; r < step.rows; r++) {
        this.items.push({ step: number, row: r });
        tops.push(y);
        y += row;
      }
    });
    this.rowHeight = row;
    this.top = Float64Array.from(tops);
    this.height = y + 4;
    this.longest = Math.max(...steps.map((step) => step.length));
    this.lineOf = steps.map((_, number) => this.items.findIndex((item) => item.step === number && item.row === 0));
    const scroller = byId("scroller");
    this.resize(scroller);
    this.draw();
  },

  viewHeight() {
    const most = Math.max(384, 0.66 * window.innerHeight);
    return Math.min(this.height, most);
  },

  plotWidth() { return Math.max(60, this.width - GUTTER - RIGHT); },
  fullWidth() { return view.zoom === 1 ? 1 : GUTTER + RIGHT + this.plotWidth() * view.zoom; },

  resize(scroller) {
    const canvas = byId("strips"), ratio = window.devicePixelRatio || 1;
    this.width = scroller.clientWidth;
    const high = this.viewHeight();
    if (canvas.width !== Math.round(this.width * ratio) || canvas.height !== Math.round(high * ratio)) {
      canvas.width = Math.round(this.width * ratio);
      canvas.height = Math.round(high * ratio);
      canvas.style.width = `${this.width}px`;
      canvas.style.height = `${high}px`;
    }
    byId("spacer").style.height = `${Math.max(0, this.height - high)}px`;
    byId("spacer").style.width = `${this.fullWidth()}px`;
    const overview = byId("overview");
    overview.hidden = this.height <= high;
    overview.width = 14 * ratio;
    overview.height = Math.round(high * ratio);
    overview.style.height = `${high}px`;
  },

  // Where a column is, from the canvas's left.
  x(column) {
    return GUTTER + column * this.plotWidth() * view.zoom / this.longest - byId("scroller").scrollLeft;
  },

  columnAt(x) {
    return Math.floor((x - GUTTER + byId("scroller").scrollLeft) * this.longest / (this.plotWidth() * view.zoom));
  },

  draw() {
    if (!this.pending) {
      this.pending = true;
      requestAnimationFrame(() => { this.pending = false; this.paint(); });
    }
  },

  paint() {
    const canvas = byId("strips"), ratio = window.devicePixelRatio || 1;
    const context = canvas.getContext("2d");
    const width = this.width, height = canvas.height / ratio;
    const from = byId("scroller").scrollTop;
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.fillStyle = theme.colours.card;
    context.fillRect(0, 0, width, height);
    context.font = "11px system-ui, sans-serif";
    context.textBaseline = "middle";
    context.save();
    context.beginPath();
    context.rect(0, AXIS, width, height - AXIS);
    context.clip();
    this.scale = this.plotWidth() * view.zoom / this.longest;
    let line = Math.max(0, lastAtMost(this.top, from + AXIS));
    this.drawn = 0;
    for (; line < this.items.length && this.top[line] - from < height; line++) {
      const item = this.items[line], y = this.top[line] - from;
      if (item.row < 0) this.heading(context, item.step, y);
      else { this.row(context, item.step, item.row, y); this.drawn++; }
    }
    context.restore();
    this.axis(context, width);
    this.paintOverview(from, height);
  },

  heading(context, number, y) {
    const step = steps[number];
    context.fillStyle = theme.colours.ink;
    context.font = "600 12px system-ui, sans-serif";
    context.textAlign = "left";
    const bucket = step.bucket ? `, bucket ${step.bucket}` : "";
    const data = step.dataStep === undefined ? "" : ` (data step ${count(step.dataStep)})`;
    context.fillText(`step ${count(step.step)}${data}${bucket}: ${plural(step.rows, "row")} of ${count(step.length)}`, 2, y + HEADING / 2 + 2);
    context.font = "11px system-ui, sans-serif";
  },

  axis(context, width) {
    const right = width - RIGHT;
    context.fillStyle = theme.colours.card;
    context.fillRect(0, 0, width, AXIS);
    context.fillStyle = theme.colours.quiet;
    context.strokeStyle = theme.colours.line;
    context.textAlign = "right";
    context.fillText("row", GUTTER - 22, 10);
    if (view.zoom === 1) context.fillText("used", width - 4, 10);
    const last = this.x(this.longest);
    const every = niceStep(this.longest / view.zoom / Math.max(2, this.plotWidth() / 110));
    context.textAlign = "center";
    for (let column = 0; column <= this.longest; column += every) {
      const x = this.x(column);
      if (x < GUTTER - 1 || x > (view.zoom === 1 ? right : width) + 1) continue;
      context.fillRect(x, AXIS - 5, 1, 4);
      if (column !== this.longest && x < last - 30) context.fillText(count(column), x, 9);
    }
    if (last <= width) { context.fillRect(last - 1, AXIS - 5, 1, 4); context.fillText(count(this.longest), last, 9); }
  },

  row(context, number, row, y) {
    const step = steps[number], size = SIZES[view.size], scale = this.scale;
    const left = this.x(0), end = left + step.length * scale;
    const edge = view.zoom === 1 ? end : this.width;
    context.save();
    context.beginPath();
    context.rect(GUTTER, y - 2, edge - GUTTER + 2, this.rowHeight + 2);
    context.clip();
    context.translate(left, 0);
    context.fillStyle = theme.filler;
    context.fillRect(0, y, step.length * scale, size.strip);
    context.translate(-left, 0);
    const marked = view.marked;
    for (let i = step.first[row]; i < step.first[row + 1]; i++) {
      const begin = left + step.column[i] * scale, wide = step.size[i] * scale;
      if (begin + wide < GUTTER || begin > this.width) continue;
      const document = step.document[i], lit = !marked || marked.has(document);
      context.fillStyle = theme.colours.card;
      // A line between spans, where there is room for one.
      const gap = wide > 3 ? 1 : 0;
      context.fillRect(begin, y, wide, size.strip);
      const gone = step.flags[i] & FLAG.gone, drawn = Math.max(wide - gap, 0.75);
      context.globalAlpha = (lit ? 1 : 0.22) * (gone ? 0.3 : 1);
      context.fillStyle = spanColour(step, i);
      context.fillRect(begin, y, drawn, size.strip);
      if (gone) {
        context.globalAlpha = lit ? 1 : 0.22;
        context.fillStyle = theme.gone;
        context.fillRect(begin, y, drawn, size.strip);
      }
      context.globalAlpha = 1;
    }
    if (step.hasTokens) this.layers(context, step, row, y + size.strip + 1, left);
    if (marked) this.outlines(context, step, row, y, left, (i) => marked.has(step.document[i]), 1);
    if (view.hover && view.hover.step === number && view.hover.row === row && view.hover.span >= 0) {
      this.outlines(context, step, row, y, left, (i) => i === view.hover.span, 1);
    }
    if (view.focus && view.focus[0] === number && step.row[view.focus[1]] === row) {
      this.outlines(context, step, row, y, left, (i) => i === view.focus[1], 2);
    }
    context.restore();
    this.gutter(context, step, row, y, edge);
  },

  gutter(context, step, row, y, edge) {
    const size = SIZES[view.size], middle = y + size.strip / 2;
    const dense = this.rowHeight < 11;
    if (!dense || row % 8 === 0) {
      context.fillStyle = theme.colours.quiet;
      context.textAlign = "right";
      context.fillText(String(row), GUTTER - 22, middle);
      if (view.zoom === 1) {
        const used = step.used[row] / step.length;
        context.fillText(percent(used), this.width - 4, middle);
      }
    }
    const first = step.first[row];
    if (first < step.first[row + 1]) {
      context.fillStyle = sourceColour(step.source[first]);
      context.fillRect(GUTTER - 14, y, 6, size.strip);
    }
  },

  outlines(context, step, row, y, left, chosen, width) {
    context.strokeStyle = theme.colours.lit;
    context.lineWidth = width;
    // The focus is drawn around its span: thin strips keep their colour.
    const inset = width > 1 ? -width / 2 : width / 2;
    for (let i = step.first[row]; i < step.first[row + 1]; i++) {
      if (!chosen(i)) continue;
      const begin = left + step.column[i] * this.scale, wide = Math.max(step.size[i] * this.scale - 1, 2);
      context.strokeRect(begin + inset, y + inset, Math.max(wide - 2 * inset, 1), SIZES[view.size].strip - 2 * inset);
    }
  },

  layers(context, step, row, y, left) {
    const size = SIZES[view.size], scale = this.scale, whole = step.length * scale;
    if (view.layers.loss) {
      context.fillStyle = theme.colours.line;
      context.fillRect(left, y, whole, size.loss);
      context.fillStyle = theme.colours.ink;
      step.trainedRuns(row, (begin, end) => {
        context.fillRect(left + begin * scale, y, Math.max((end - begin) * scale, 0.5), size.loss);
      });
      y += size.loss + 1;
    }
    if (view.layers.positions) {
      const high = size.positions - 1;
      context.fillStyle = mixedColour("quiet", 0.45);
      context.beginPath();
      step.lines("positions", row, (begin, end, value, slope) => {
        const from = y + high * (1 - value / step.length);
        const to = y + high * (1 - (value + slope * (end - begin)) / step.length);
        context.moveTo(left + begin * scale, y + high);
        context.lineTo(left + begin * scale, from);
        context.lineTo(left + end * scale, to);
        context.lineTo(left + end * scale, y + high);
      });
      context.fill();
      y += size.positions + 1;
    }
    if (view.layers.weight && step.hasWeights) {
      const high = size.weight - 1, most = greatestWeight();
      context.fillStyle = theme.colours.line;
      context.fillRect(left, y + high, whole, 1);
      context.fillStyle = theme.colours.ink;
      step.lines("loss_weight", row, (begin, end, value) => {
        const tall = high * value / most;
        context.fillRect(left + begin * scale, y + high - tall, Math.max((end - begin) * scale, 0.5), tall);
      });
    }
  },

  // All rows beside the window: where it is, and where what is lit lies.
  paintOverview(from, height) {
    const canvas = byId("overview");
    if (canvas.hidden) return;
    const ratio = window.devicePixelRatio || 1, context = canvas.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    context.clearRect(0, 0, 14, height);
    const scale = height / this.height;
    if (view.marked) {
      context.fillStyle = theme.colours.accent;
      for (const document of view.marked) {
        for (const [number, span] of placesOf.get(document) || []) {
          const y = this.top[this.lineOf[number] + steps[number].row[span]] * scale;
          context.fillRect(2, y - 1, 10, 2);
        }
      }
    }
    context.strokeStyle = theme.colours.quiet;
    context.lineWidth = 1;
    context.strokeRect(0.5, from * scale + 0.5, 13, Math.max(8, height * scale) - 1);
  },

  // What is at a point of the canvas, or null.
  hit(x, y) {
    if (y < AXIS || x < GUTTER - 14) return null;
    const line = lastAtMost(this.top, y + byId("scroller").scrollTop);
    const item = this.items[line];
    if (!item || item.row < 0) return null;
    const step = steps[item.step];
    const column = Math.max(0, this.columnAt(x));
    if (column >= step.length) return null;
    return { step: item.step, row: item.row, column, span: step.at(item.row, column) };
  },

  reveal(number, span) {
    const scroller = byId("scroller"), step = steps[number];
    const y = this.top[this.lineOf[number] + step.row[span]], high = this.viewHeight();
    if (y - AXIS < scroller.scrollTop) scroller.scrollTop = y - AXIS;
    else if (y + this.rowHeight > scroller.scrollTop + high) scroller.scrollTop = y + this.rowHeight - high;
    if (view.zoom > 1) {
      const begin = GUTTER + step.column[span] * this.scale, end = begin + step.size[span] * this.scale;
      const wide = this.width;
      if (begin - GUTTER < scroller.scrollLeft) scroller.scrollLeft = begin - GUTTER;
      else if (end > scroller.scrollLeft + wide) scroller.scrollLeft = Math.min(begin - GUTTER, end - wide + 8);
    }
  },

  // Zooms about a column that stays where it is.
  zoom(factor, x = GUTTER + this.plotWidth() / 2) {
    const scroller = byId("scroller"), column = (x - GUTTER + scroller.scrollLeft) / (this.plotWidth() * view.zoom);
    view.zoom = factor === 0 ? 1 : Math.min(64, Math.max(1, view.zoom * factor));
    if (view.zoom < 1.05) view.zoom = 1;
    this.resize(scroller);
    scroller.scrollLeft = column * this.plotWidth() * view.zoom - (x - GUTTER);
    this.draw();
  },
};

function niceStep(least) {
  let step = 1;
  while (step < least) step *= 2;
  return step;
}

function mixedColour(name, share) {
  return mixed(theme.colours.card, theme.colours[name], share);
}

let mostWeight = 0;
function greatestWeight() {
  if (!mostWeight) {
    mostWeight = 1;
    for (const step of steps) if (step.hasWeights) for (const own of step.loss_weight.value) mostWeight = Math.max(mostWeight, own);
  }
  return mostWeight;
}

function spanColour(step, span) {
  const document = step.document[span];
  if (view.colour === "source") return theme.hues[step.source[span] % (2 * HUES)][document % TINTS.length];
  return theme.hues[document % HUES][Math.floor(document / HUES) % TINTS.length];
}
