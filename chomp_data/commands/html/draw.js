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
    const probe = document.body.appendChild(make("i"));
    const value = (name) => {
      probe.style.color = `var(--${name})`;
      return getComputedStyle(probe).color;
    };
    for (const name of ["card", "ink", "quiet", "line", "filler", "hatch", "lit", "accent"]) this.colours[name] = value(name);
    // The ninth source on has the hue of the first again, nearer to the ink.
    const { card, ink } = this.colours;
    this.hues = [0, 0.45].flatMap((share) => Array.from({ length: HUES }, (_, i) => {
      const hue = mixed(value(`s${i}`), ink, share);
      return TINTS.map((tint) => mixed(hue, card, tint));
    }));
    probe.remove();
    this.filler = pattern(this.colours.filler, this.colours.hatch, 6, 1, 1);
    this.gone = pattern("transparent", this.colours.ink, 6, 1, -1);
  },
};

// Colours are rgb(...) here, as the browser computes them.
const parts = (colour) => colour.match(/[\d.]+/g).map(Number);

function mixed(from, to, share) {
  const other = parts(to);
  return `rgb(${parts(from).map((value, i) => Math.round(value + (other[i] - value) * share)).join(" ")})`;
}

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

// A swatch of a colour or gradient, or of a kind that the styles draw.
function swatch(background, kind = "") {
  const element = make("i", { class: `swatch ${kind}` });
  element.style.background = background;
  return element;
}

// A swatch of several colours beside each other.
const bands = (colours) => swatch(`linear-gradient(to right, ${colours.map((colour, i) =>
  `${colour} ${100 * i / colours.length}% ${100 * (i + 1) / colours.length}%`)})`, "wide");
