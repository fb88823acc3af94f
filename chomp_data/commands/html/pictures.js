// Samples of runs of arrays: a picture each, and their numbers.

function samples() {
  const section = byId("pictures");
  section.hidden = false;
  for (const step of run.steps) {
    section.append(make("h2", {}, `Step ${count(step.step)}: ${visible(step.source)}, bucket ${visible(step.bucket)}, ${plural(step.rows, "sample")}`));
    const grid = make("div", { class: "samples" });
    step.samples.forEach((sample, i) => {
      const figure = make("figure", { class: step.lit[i] ? "sample lit" : "sample", tabindex: "0" });
      if (step.pictures) figure.append(pictureOf(unpack(step.pictures[i]), step.width, step.height));
      const facts = Object.entries(sample).map(([name, value]) => make("div", {}, visible(`${name} ${value}`)));
      figure.append(make("figcaption", {}, ...(step.filler[i] ? ["filler"] : facts)));
      grid.append(figure);
    });
    section.append(grid);
    if (step.samples.length < step.rows) section.append(make("p", { class: "quiet" }, `${count(step.rows - step.samples.length)} samples more are not shown.`));
  }
  byId("tiles").hidden = byId("charts").hidden = true;
}

function pictureOf(pixels, width, height) {
  const canvas = make("canvas", { width, height });
  const context = canvas.getContext("2d"), image = context.createImageData(width, height);
  for (let i = 0, j = 0; i < pixels.length; i += 3, j += 4) {
    image.data[j] = pixels[i]; image.data[j + 1] = pixels[i + 1]; image.data[j + 2] = pixels[i + 2];
    image.data[j + 3] = 255;
  }
  context.putImageData(image, 0, 0);
  return canvas;
}
