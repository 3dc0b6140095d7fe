// Dots and lines written into an image directly: for crowds, where a canvas without a graphics card is many times slower.

import { HAS, LOOKS, TRIES, WAITS } from "./game.mjs";

/** A colour as the canvas stores it. */
function word(context, colour) {
  context.clearRect(0, 0, 1, 1);
  context.fillStyle = colour;
  context.fillRect(0, 0, 1, 1);
  return new Uint32Array(context.getImageData(0, 0, 1, 1).data.buffer)[0];
}

export class Pixels {
  constructor(background, ratio, colour) {
    const { width, height } = background;
    this.ratio = ratio;
    this.base = new Uint32Array(background.getContext("2d").getImageData(0, 0, width, height).data.buffer);
    this.image = new ImageData(width, height);
    this.words = new Uint32Array(this.image.data.buffer);
    const probe = Object.assign(document.createElement("canvas"), { width: 1, height: 1 }).getContext("2d", { willReadFrequently: true });
    this.colours = Object.fromEntries(["pair", "contest", "vehicle", "waits", "agent", "holds"].map((name) => [name, word(probe, colour(name))]));
  }

  /** A filled square with its middle at a point; `half` is half of its side. */
  dot(x, y, half, colour) {
    const { width, height } = this.image;
    const [left, right] = [Math.max(0, Math.round(x - half)), Math.min(width, Math.round(x + half))];
    const [top, bottom] = [Math.max(0, Math.round(y - half)), Math.min(height, Math.round(y + half))];
    for (let row = top; row < bottom; row++) if (left < right) this.words.fill(colour, row * width + left, row * width + right);
  }

  line(x, y, toX, toY, colour) {
    const { width, height } = this.image;
    const steps = Math.max(1, Math.ceil(Math.max(Math.abs(toX - x), Math.abs(toY - y))));
    const [stepX, stepY] = [(toX - x) / steps, (toY - y) / steps];
    for (let step = 0; step <= steps; step++, x += stepX, y += stepY) {
      if (x >= 0 && y >= 0 && x < width && y < height) this.words[(y | 0) * width + (x | 0)] = colour;
    }
  }

  draw(context, game, agents, vehicles, size) {
    const { colours, ratio } = this, half = size * ratio;
    this.words.set(this.base);
    for (const [kind, name] of [[HAS, "pair"], [TRIES, "contest"]]) {
      for (let agent = 0; agent < game.agents; agent++) {
        const vehicle = game.at[agent];
        if (game.about[agent] !== kind || vehicle < 0) continue;
        this.line(ratio * agents[2 * agent], ratio * agents[2 * agent + 1], ratio * vehicles[2 * vehicle], ratio * vehicles[2 * vehicle + 1], colours[name]);
      }
    }
    for (let vehicle = 0; vehicle < game.vehicles; vehicle++) {
      const [x, y] = [ratio * vehicles[2 * vehicle], ratio * vehicles[2 * vehicle + 1]];
      if (game.tries[vehicle] > 1) this.dot(x, y, half + 2 * ratio, colours.contest);
      this.dot(x, y, (half / 2) * (1 + Math.max(0, game.price[vehicle])), colours.vehicle);
    }
    for (const [kind, name] of [[WAITS, "waits"], [LOOKS, "agent"], [TRIES, "contest"], [HAS, "holds"]]) {
      for (let agent = 0; agent < game.agents; agent++) {
        if (game.about[agent] === kind) this.dot(ratio * agents[2 * agent], ratio * agents[2 * agent + 1], half, colours[name]);
      }
    }
    context.putImageData(this.image, 0, 0);
  }
}
