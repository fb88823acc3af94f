// Elements, colours and patterns.

const byId = (id) => document.getElementById(id);

// An element with attributes and children; strings become text, never markup.
function make(name, attributes = {}, ...children) {
  const element = document.createElement(name);
  return filled(element, attributes, children);
}

function makeSvg(name, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", name), attributes, children);
}

function filled(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

const named = (name) => make("bdi", {}, visible(name));

// Neighbours of one colour differ in how much of the page shines through.
const TINTS = [0, 0.3, 0.52];
const HUES = 8;

const theme = {
  colours: {},
  refresh() {
    const style = getComputedStyle(document.documentElement);
    const value = (name) => style.getPropertyValue(name).trim();
    for (const name of ["card", "ink", "quiet", "line", "filler", "hatch", "lit", "accent", "bg"]) {
      this.colours[name] = value(`--${name}`);
    }
    this.hues = [];
    // The ninth source on has the hue of the first again, nearer to the ink.
    const card = parts(this.colours.card), ink = parts(this.colours.ink);
    for (const share of [0, 0.45]) {
      for (let i = 0; i < HUES; i++) {
        const hue = blended(parts(value(`--s${i}`)), ink, share);
        this.hues.push(TINTS.map((tint) => mixed(hue, card, tint)));
      }
    }
    this.filler = pattern(this.colours.filler, this.colours.hatch, 6, 1, 1);
    this.gone = pattern("transparent", this.colours.ink, 6, 1, -1);
  },
};

function parts(colour) {
  const hex = colour.slice(1);
  return [0, 2, 4].map((i) => parseInt(hex.slice(i, i + 2), 16));
}

const blended = (from, to, share) => from.map((value, i) => Math.round(value + (to[i] - value) * share));
const mixed = (from, to, share) => `rgb(${blended(from, to, share).join(" ")})`;

// Diagonal lines, rising (1) or falling (-1), as wide on every screen.
function pattern(ground, line, size, width, rising) {
  const ratio = window.devicePixelRatio || 1;
  const side = Math.round(size * ratio);
  const canvas = make("canvas", { width: side, height: side });
  const context = canvas.getContext("2d");
  if (ground !== "transparent") { context.fillStyle = ground; context.fillRect(0, 0, side, side); }
  context.strokeStyle = line;
  context.lineWidth = width * ratio;
  if (rising < 0) { context.translate(side, 0); context.scale(-1, 1); }
  context.beginPath();
  for (const shift of [-side, 0, side]) { context.moveTo(shift - 1, side + 1); context.lineTo(shift + side + 1, -1); }
  context.stroke();
  const made = context.createPattern(canvas, "repeat");
  made.setTransform(new DOMMatrix().scale(1 / ratio));
  return made;
}

const sourceColour = (source) => theme.hues[source % (2 * HUES)][0];

function swatch(colour) {
  const element = make("i", { class: "swatch" });
  element.style.background = colour;
  return element;
}

// A swatch that `paint(context, width, height)` fills.
function drawnSwatch(paint) {
  const canvas = make("canvas", { class: "swatch", width: 44, height: 22 });
  const context = canvas.getContext("2d");
  context.scale(2, 2);
  paint(context, 22, 11);
  return canvas;
}
