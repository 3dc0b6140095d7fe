// The map: squares, vehicles, agents and who holds what, on a canvas. Shapes differ as well as colours.

import { HAS, LOOKS, TRIES, WAITS } from "./game.mjs";
import { Pixels } from "./pixels.mjs";

// More agents than this are drawn as pixels.
const CROWD = 2000;

const colours = () => {
  const style = getComputedStyle(document.documentElement);
  return (name) => style.getPropertyValue(`--${name}`).trim();
};

/** Degrees to pixels: a flat map around the middle, the same scale in both directions. */
export class View {
  constructor(map, width, height, { zoom, middle }) {
    const all = [...map.agents, ...map.vehicles, ...map.squares.flatMap((square) => [square.low, square.high])];
    let [south, west, north, east] = [90, 180, -90, -180];
    for (const [latitude, longitude] of all) {
      south = Math.min(south, latitude);
      north = Math.max(north, latitude);
      west = Math.min(west, longitude);
      east = Math.max(east, longitude);
    }
    this.stretch = Math.cos(((south + north) / 2) * (Math.PI / 180));
    const wide = Math.max((east - west) * this.stretch, 1e-6), high = Math.max(north - south, 1e-6);
    this.scale = zoom * Math.min((width - 24) / wide, (height - 24) / high);
    const [latitude, longitude] = middle ?? [(south + north) / 2, (west + east) / 2];
    this.middle = [latitude, longitude];
    this.west = longitude - width / this.scale / 2 / this.stretch;
    this.north = latitude + height / this.scale / 2;
  }

  x(longitude) {
    return (longitude - this.west) * this.stretch * this.scale;
  }

  y(latitude) {
    return (this.north - latitude) * this.scale;
  }

  place(x, y) {
    return [this.north - y / this.scale, this.west + x / this.scale / this.stretch];
  }
}

export class MapCanvas {
  constructor(canvas) {
    this.canvas = canvas;
    this.context = canvas.getContext("2d");
    this.map = null;
    this.focus = { zoom: 1, middle: null };
  }

  /** Zoom by a factor around a point of the canvas, or move by pixels; the caller draws. */
  zoom(factor, x = this.width / 2, y = this.height / 2) {
    const [latitude, longitude] = this.view.place(x, y);
    const zoom = Math.max(1, Math.min(this.focus.zoom * factor, 60));
    const share = this.focus.zoom / zoom;
    const [middleLatitude, middleLongitude] = this.view.middle;
    this.focus = {
      zoom,
      middle: zoom === 1 ? null : [latitude + (middleLatitude - latitude) * share, longitude + (middleLongitude - longitude) * share],
    };
    this.fit();
  }

  move(x, y) {
    if (this.focus.zoom === 1) return;
    this.focus.middle = this.view.place(this.width / 2 + x, this.height / 2 + y);
    this.fit();
  }

  show(map) {
    this.map = map;
    this.fit();
  }

  /** Match the canvas to its size on the page; positions are computed once here and not in every frame. */
  fit() {
    const ratio = window.devicePixelRatio || 1;
    const width = this.canvas.clientWidth || 600;
    // The map and the bar above it fit one screen.
    const height = Math.round(Math.min(width * 1.15, Math.max(380, window.innerHeight - 300)));
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.context.setTransform(ratio, 0, 0, ratio, 0, 0);
    [this.width, this.height] = [width, height];
    if (!this.map) return;
    this.view = new View(this.map, width, height, this.focus);
    const flat = (places) => {
      const points = new Float32Array(2 * places.length);
      places.forEach(([latitude, longitude], number) => {
        points[2 * number] = this.view.x(longitude);
        points[2 * number + 1] = this.view.y(latitude);
      });
      return points;
    };
    this.agents = flat(this.map.agents);
    this.vehicles = flat(this.map.vehicles);
    this.background = this.drawBackground(ratio);
    this.pixels = this.map.agents.length > CROWD ? new Pixels(this.background, ratio, colours()) : null;
  }

  drawBackground(ratio) {
    const layer = document.createElement("canvas");
    [layer.width, layer.height] = [this.canvas.width, this.canvas.height];
    const context = layer.getContext("2d");
    context.setTransform(ratio, 0, 0, ratio, 0, 0);
    const colour = colours();
    if (this.map.outline.length) {
      context.beginPath();
      this.map.outline.forEach(([latitude, longitude], number) => {
        context[number ? "lineTo" : "moveTo"](this.view.x(longitude), this.view.y(latitude));
      });
      context.closePath();
      context.fillStyle = colour("panel");
      context.fill();
    }
    context.strokeStyle = colour("line");
    context.lineWidth = 1;
    context.beginPath();
    for (const street of this.map.streets) {
      street.forEach(([latitude, longitude], number) => {
        context[number ? "lineTo" : "moveTo"](this.view.x(longitude), this.view.y(latitude));
      });
    }
    context.stroke();
    context.strokeStyle = colour("square");
    for (const { low, high } of this.map.squares) {
      const [x, y] = [this.view.x(low[1]), this.view.y(high[0])];
      context.strokeRect(x, y, this.view.x(high[1]) - x, this.view.y(low[0]) - y);
    }
    return layer;
  }

  draw(game) {
    if (!this.map) return;
    const size = (this.agents.length > 4000 ? 1.2 : this.agents.length > 1000 ? 2 : 3) * Math.min(2, Math.sqrt(this.focus.zoom));
    if (game && this.pixels) return this.pixels.draw(this.context, game, this.agents, this.vehicles, size);
    const { context } = this, colour = colours();
    context.clearRect(0, 0, this.width, this.height);
    context.drawImage(this.background, 0, 0, this.width, this.height);
    if (game) this.drawPairs(game, colour);
    this.drawVehicles(game, colour, size);
    this.drawAgents(game, colour, size);
  }

  /** Mark a place with a cross in a ring. */
  mark([latitude, longitude]) {
    const { context } = this, [x, y] = [this.view.x(longitude), this.view.y(latitude)];
    context.strokeStyle = colours()("you");
    context.lineWidth = 3;
    context.beginPath();
    context.arc(x, y, 9, 0, 7);
    for (const [dx, dy] of [[1, 0], [0, 1]]) {
      context.moveTo(x - 14 * dx, y - 14 * dy);
      context.lineTo(x + 14 * dx, y + 14 * dy);
    }
    context.stroke();
  }

  drawPairs(game, colour) {
    const { context, agents, vehicles } = this;
    for (const [kind, name, dash] of [[HAS, "pair", []], [TRIES, "contest", [3, 3]]]) {
      context.beginPath();
      for (let agent = 0; agent < game.agents; agent++) {
        const vehicle = game.at[agent];
        if (game.about[agent] !== kind || vehicle < 0) continue;
        context.moveTo(agents[2 * agent], agents[2 * agent + 1]);
        context.lineTo(vehicles[2 * vehicle], vehicles[2 * vehicle + 1]);
      }
      context.strokeStyle = colour(name);
      context.lineWidth = 1.2;
      context.setLineDash(game.agents > 1000 ? [] : dash);
      context.stroke();
    }
    context.setLineDash([]);
  }

  drawVehicles(game, colour, size) {
    const { context, vehicles } = this;
    context.fillStyle = colour("vehicle");
    for (let number = 0; number < vehicles.length; number += 2) {
      const side = game && game.price[number / 2] > 0 ? size * (1 + game.price[number / 2]) : size;
      context.fillRect(vehicles[number] - side / 2, vehicles[number + 1] - side / 2, side, side);
    }
    if (!game) return;
    context.strokeStyle = colour("contest");
    context.lineWidth = 2;
    context.beginPath();
    for (let number = 0; number < game.vehicles; number++) {
      if (game.tries[number] < 2) continue;
      context.rect(vehicles[2 * number] - size - 1, vehicles[2 * number + 1] - size - 1, 2 * size + 2, 2 * size + 2);
    }
    context.stroke();
  }

  drawAgents(game, colour, size) {
    const { context, agents } = this;
    const kinds = [[WAITS, "waits"], [LOOKS, "agent"], [TRIES, "contest"], [HAS, "holds"]];
    for (const [kind, name] of kinds) {
      context.fillStyle = context.strokeStyle = colour(game ? name : "agent");
      context.lineWidth = 1.5;
      context.beginPath();
      for (let agent = 0; agent < agents.length / 2; agent++) {
        if ((game ? game.about[agent] : LOOKS) !== kind) continue;
        const [x, y] = [agents[2 * agent], agents[2 * agent + 1]];
        if (size < 2) context.rect(x - size, y - size, 2 * size, 2 * size);
        else {
          context.moveTo(x + size, y);
          context.arc(x, y, size, 0, 7);
        }
      }
      // An agent that waits is a ring: told apart without colour.
      if (kind === WAITS && game && size >= 2) context.stroke();
      else context.fill();
    }
  }
}
