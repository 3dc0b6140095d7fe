// Watches a running board: what it publishes, and nothing else. Signatures are not checked: a visitor decides nothing.

import { Bus, topicOf } from "./bus.mjs";
import { readCbor } from "./cbor.mjs";

const at = (id) => document.getElementById(id);
const games = new Map();

// Seconds between attempts to reach a hub: a board may restart.
const FIRST_PAUSE = 1, LONGEST_PAUSE = 30;

export function begin(address) {
  at("live").classList.remove("hidden");
  at("live-status").textContent = `Connecting to ${address}…`;
  connect(address, FIRST_PAUSE);
}

function connect(address, pause) {
  const bus = new Bus(address);
  let next = Math.min(2 * pause, LONGEST_PAUSE), lost = `There is no hub at ${address}`;
  bus.ready.then(() => {
    at("live-status").textContent = `Connected to ${address}: waiting for games.`;
    [pause, next, lost] = [FIRST_PAUSE, FIRST_PAUSE, "The hub closed the connection"];
    bus.any = (topic, body) => heard(bus, topic, body);
    bus.ask("pm/1/+/open");
  }, () => {});
  bus.socket.onclose = () => {
    at("live-status").textContent = `${lost}; the next attempt is in ${pause} s.`;
    setTimeout(connect, 1000 * pause, address, next);
  };
}

function heard(bus, topic, body) {
  const [, , name, kind] = topic.split("/");
  const game = decodeURIComponent(name);
  const message = readCbor(body);
  if (kind === "open") {
    if (!games.has(game)) games.set(game, { method: message.method, classes: message.classes, state: "joining" });
    // Also for a game that is known: this may be another connection.
    for (const wanted of ["roster", "result"]) bus.ask(topicOf(game, wanted));
  }
  const known = games.get(game);
  if (!known) return;
  if (kind === "roster") {
    const agents = message.regions.reduce((sum, { counts }) => sum + counts.reduce((one, two) => one + two, 0), 0);
    Object.assign(known, { state: known.state === "over" ? "over" : "playing", agents, regions: message.regions.length });
  }
  if (kind === "result") Object.assign(known, { state: "over", matched: message.matched });
  show();
}

function show() {
  at("live-status").textContent = `${games.size} game${games.size === 1 ? "" : "s"} seen; all of this is public.`;
  at("live-games").replaceChildren(...[...games].reverse().map(([name, game]) => {
    const row = document.createElement("tr");
    const cells = [name, game.method, game.classes.join(", "), game.agents ?? "", game.regions ?? "", game.matched ?? "", game.state];
    for (const text of cells) row.insertCell().textContent = text;
    return row;
  }));
}
