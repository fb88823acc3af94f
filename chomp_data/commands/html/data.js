// What Python gathered, and questions about it. Columns are typed arrays.

const TYPES = {
  u1: Uint8Array, u2: Uint16Array, u4: Uint32Array, i4: Int32Array,
  f4: Float32Array, f8: Float64Array,
};
const FLAG = { bos: 1, eos: 2, gone: 4 };
// The parts of rearranged documents, by the number of the sentinel that begins them.
const PARTS = ["", "prefix", "suffix", "middle"];
const partOf = (flags) => PARTS[flags >> 3] ?? `sentinel ${flags >> 3}`;

function unpack(packed) {
  const text = atob(packed.data);
  const bytes = new Uint8Array(text.length);
  for (let i = 0; i < text.length; i++) bytes[i] = text.charCodeAt(i);
  return new TYPES[packed.type](bytes.buffer);
}

// The last i with values[i] <= value, from ascending values.
function lastAtMost(values, value) {
  let low = 0, high = values.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (values[middle] <= value) low = middle + 1; else high = middle;
  }
  return low - 1;
}

const run = JSON.parse(document.getElementById("data").textContent);

// Unpacked at the first look: most layers of most pages are never shown.
function lazily(object, name, make) {
  Object.defineProperty(object, name, {
    configurable: true,
    get() {
      const value = make();
      Object.defineProperty(object, name, { value });
      return value;
    },
  });
}

const tables = (run.tables || []).map((own) => {
  const texts = new Map();
  unpack(own.ids).forEach((id, i) => texts.set(id, own.texts[i]));
  return { texts, joined: own.joined };
});

const documents = run.documents && {
  source: unpack(run.documents.source),
  number: unpack(run.documents.number),
  length: unpack(run.documents.length),
  id: run.documents.id,
};

class Step {
  constructor(own) {
    this.step = own.step;
    this.dataStep = own.data_step; // where steps were skipped before it
    this.rows = own.rows;
    this.length = own.length;
    this.bucket = own.bucket;
    this.hasTokens = own.tokens !== undefined;
    this.hasWeights = own.loss_weight !== undefined;
    for (const name of Object.keys(own.spans)) this[name] = unpack(own.spans[name]);
    // The spans of row r are first[r] .. first[r + 1] - 1.
    this.first = new Int32Array(own.rows + 1);
    for (const row of this.row) this.first[row + 1]++;
    for (let r = 0; r < own.rows; r++) this.first[r + 1] += this.first[r];
    this.used = new Int32Array(own.rows);
    for (let i = 0; i < this.row.length; i++) {
      if (!(this.flags[i] & FLAG.gone)) this.used[this.row[i]] += this.size[i];
    }
    if (!this.hasTokens) return;
    lazily(this, "tokens", () => unpack(own.tokens));
    lazily(this, "mask", () => unpack(own.loss_mask));
    lazily(this, "joinAt", () => unpack(own.joins.at));
    lazily(this, "joinCount", () => unpack(own.joins.count));
    lazily(this, "joinText", () => unpack(own.joins.text));
    for (const name of ["positions", "loss_weight"]) {
      if (own[name] === undefined) continue;
      lazily(this, name, () => {
        const layer = {};
        for (const column of Object.keys(own[name])) layer[column] = unpack(own[name][column]);
        return layer;
      });
    }
  }

  trained(row, column) {
    const at = row * this.length + column;
    return (this.mask[at >> 3] >> (at & 7)) & 1;
  }

  trainedOf(row, begin, end) {
    let count = 0;
    for (let column = begin; column < end; column++) count += this.trained(row, column);
    return count;
  }

  // Calls draw(begin, end) for each stretch of trained columns.
  trainedRuns(row, draw) {
    let begin = -1;
    for (let column = 0; column <= this.length; column++) {
      const on = column < this.length && this.trained(row, column);
      if (on && begin < 0) begin = column;
      if (!on && begin >= 0) { draw(begin, column); begin = -1; }
    }
  }

  // Calls draw(begin, end, value, slope) for each line of a layer in a row.
  lines(name, row, draw) {
    const layer = this[name], base = row * this.length, end = base + this.length;
    let i = lastAtMost(layer.begin, base);
    while (i < layer.begin.length && layer.begin[i] < end) {
      const next = i + 1 < layer.begin.length ? Math.min(layer.begin[i + 1], end) : end;
      draw(layer.begin[i] - base, next - base, layer.value[i], layer.slope ? layer.slope[i] : 0);
      i++;
    }
  }

  valueAt(name, row, column) {
    const layer = this[name], at = row * this.length + column;
    const i = lastAtMost(layer.begin, at);
    return layer.value[i] + (layer.slope ? layer.slope[i] * (at - layer.begin[i]) : 0);
  }

  // The span at a column of a row, or -1.
  at(row, column) {
    let low = this.first[row], high = this.first[row + 1];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.column[middle] <= column) low = middle + 1; else high = middle;
    }
    const span = low - 1;
    return span >= this.first[row] && column < this.column[span] + this.size[span] ? span : -1;
  }

  // Calls add(text, column) for the tokens begin .. end - 1 of a span's row.
  texts(span, begin, end, add) {
    const base = this.row[span] * this.length;
    const table = tables[run.table_of[this.source[span]]];
    let join = lastAtMost(this.joinAt, base + begin - 1);
    // What began before is shown from its first token on.
    if (join < 0 || this.joinAt[join] + this.joinCount[join] <= base + begin) join++;
    for (let column = begin; column < end; column++) {
      const at = base + column;
      if (!table) { add(`${this.tokens[at]} `, column); continue; }
      if (join < this.joinAt.length && this.joinAt[join] <= at) {
        add(table.joined[this.joinText[join]], column);
        column = this.joinAt[join] + this.joinCount[join] - 1 - base;
        join++;
        continue;
      }
      add(table.texts.get(this.tokens[at]) ?? "\ufffd", column);
    }
  }
}

const steps = run.kind === "text" ? run.steps.map((own) => new Step(own)) : [];

// Where each document is in what is shown: [number of the step, span] pairs.
const placesOf = new Map();
steps.forEach((step, number) => {
  step.document.forEach((document, span) => {
    if (!placesOf.has(document)) placesOf.set(document, []);
    placesOf.get(document).push([number, span]);
  });
});

// Control characters are shown as such; none of them may act.
function visible(text) {
  return text.replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, "\ufffd");
}

const count = (number) => number.toLocaleString("en-US");
const percent = (share, digits = 1) => Number.isFinite(share) ? `${(100 * share).toFixed(digits)} %` : "none";
const plural = (number, one, more) => `${count(number)} ${number === 1 ? one : more || one + "s"}`;
