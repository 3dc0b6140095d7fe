// Take part by phone: a device in a page that the operator serves. The twin of palmatch.live.session.Device.

import { BidMachine, ReportMachine, VERSION, locate, openLedger, spotsOf, unitsOf } from "../device.mjs";
import { Bus, Player } from "./bus.mjs";
import { readCbor, writeCbor } from "./cbor.mjs";
import { hex, join, keptSigner, signedBytes } from "./keys.mjs";

const at = (id) => document.getElementById(id);
const UNITS = 2 ** 32;
const waiting = () => (games.size ? "Games are being played: choose your place and take part." : "Looking for games…");
const MACHINES = { report: ReportMachine, bids: BidMachine };
const OPEN = "open request", TRUST = "trust version";
// Seconds: what is left of the joining time must suffice to get a token and to be heard.
const LEAST = 0.5, PATIENCE = 600;
const METRES = 111195.08;

const config = async () => (await fetch("config.json")).json();
const { hub, issuer, budget, ...settings } = await config();
let { trust } = settings;
const bus = new Bus(hub);
const ledger = await openLedger(`palmatch ${trust.operator}`, unitsOf(budget));
const member = await keptSigner(`palmatch member ${trust.operator}`);
// Games that were opened, by name: the opening, and the keys that it goes by to its end; and those that this page has played.
const games = new Map(), played = new Set();
let place = null, busy = false, resources = [], view = null, tooNew = null, newcomer = () => {};

const say = (text, wrong = false) => {
  at("status").textContent = text;
  at("status").classList.toggle("error", wrong);
};
const text = (units) => String(Math.ceil(units / UNITS * 1e6) / 1e6);

async function showBudget() {
  const left = Math.floor(await ledger.remaining() / UNITS * 1e6) / 1e6;
  at("budget").textContent = `ε = ${left} is left of ${budget}, for the life of this device.`;
}

// --- the bus -------------------------------------------------------------------------------------------------------

function listen() {
  bus.any = (topic) => topic.split("/")[3] === "open" && opened(topic);
  bus.ask("pm/1/+/open");
  bus.last((connected) => busy || say(connected ? waiting() : "There is no connection to the operator's hub; trying again.", !connected));
}

/** Note a game that the board has opened; of one that it has not signed nothing is believed. */
async function opened(topic) {
  const game = decodeURIComponent(topic.split("/")[2]);
  if (games.has(game)) return;
  const found = bus.values.get(topic);
  try {
    const { message, keys } = await readOpening(game, topic, found);
    games.set(game, { open: message, keys });
    showClasses(message.classes);
    if (!busy && games.size === 1) say(waiting());
    newcomer();
    if (resources.length) return;
    const listed = (await new Player(bus, keys, game, {}).statement("resources", 30)).message;
    const degrees = new Float64Array(listed.at.slice().buffer);
    resources = listed.names.map((_, number) => [degrees[2 * number], degrees[2 * number + 1]]);
    if (!place) view = null;
    draw();
  } catch (error) {
    // One of an older version may be left from before the board was updated.
    if (found.version > VERSION) tooNew = error;
    if (games.size === 0) say(error.message, true);
    newcomer();
  }
}

/** An opening with the keys that signed it: a game goes on under those of its opening, also where others follow them. */
async function readOpening(game, topic, found, again = true) {
  const former = (trust.former ?? []).map(({ board, issuer: own, until }) => ({ keys: { ...trust, board, issuer: own }, until }));
  let refused;
  for (const { keys, until } of [{ keys: trust, until: Infinity }, ...former]) {
    try {
      const { message } = await new Player(bus, keys, game, {}).read("open", topic, found);
      if (message.joins_close <= until) return { message, keys };
    } catch (error) {
      refused ??= error;
    }
  }
  if (!again || found.version !== VERSION) throw refused;
  // The operator may have signed newer keys since the page was loaded.
  ({ trust } = await config());
  return readOpening(game, topic, found, false);
}

/** The next game that can still be joined. */
async function nextGame() {
  const until = Date.now() + 1000 * PATIENCE;
  while (Date.now() < until) {
    if (tooNew) throw tooNew;
    const found = [...games].find(([game, { open }]) => !played.has(game) && open.joins_close / 1000 > Date.now() / 1000 + LEAST);
    if (found) return found[0];
    await Promise.race([new Promise((resolve) => (newcomer = resolve)), new Promise((resolve) => setTimeout(resolve, 1000))]);
  }
  throw new Error(`No game was opened within ${PATIENCE / 60} minutes.`);
}

/** Ask the issuer to sign a blinded token with the member's lasting key; it cannot link the token to it later. */
async function obtain(game, blinded) {
  const body = writeCbor({ game, member: member.key, blinded });
  const answer = await fetch(issuer, { method: "POST", body: join(await member.sign(signedBytes("token", body)), body) });
  if (answer.ok) return readCbor(new Uint8Array(await answer.arrayBuffer())).blind_signature;
  const reason = await answer.text();
  throw new Error(reason.includes("registered member") ? "The operator does not know this phone yet: send it the key below." : reason);
}

// --- one game ------------------------------------------------------------------------------------------------------

/** Refuse a trust file that has ended, is older than one that was used, or is another operator's. */
async function checkTrust() {
  if (trust.until < Date.now()) throw new Error("What the operator has signed for this page has ended: ask for a new one.");
  await ledger.pin("operator", trust.operator);
  const newest = Number((await ledger.kept(TRUST)) ?? 0);
  if (trust.version < newest) throw new Error("The page has an older list of keys than it had before: reload it, or ask the operator.");
  await ledger.transact((state) => void (state.kept[TRUST] = String(trust.version)));
}

/** The request that is open for this place and ε, or a new one: what was paid for it is not paid twice. */
async function request(here, epsilon) {
  const facts = [here.region, here.spot, epsilon];
  return ledger.transact((state) => {
    const [name, ...known] = JSON.parse(state.kept[OPEN] ?? "[]");
    const kept = name !== undefined && JSON.stringify(known) === JSON.stringify(facts) ? name : crypto.randomUUID();
    state.kept[OPEN] = JSON.stringify([kept, ...facts]);
    return kept;
  });
}

const close = () => ledger.transact((state) => void delete state.kept[OPEN]);

async function takePart() {
  if (busy) return;
  if (!place) return say("Choose a place first: tap the map, or use your location.", true);
  setBusy(true);
  for (const id of ["got", "revealed"]) at(id).classList.add("hidden");
  try {
    await checkTrust();
    const epsilon = Number(at("epsilon").value), { partition } = trust, position = place;
    const here = locate(partition, ...position), name = await request(here, epsilon);
    const before = await ledger.remaining(), waits = (await ledger.kept(`request ${name}`)) !== null;
    say("Waiting for the next game.");
    const game = await nextGame();
    played.add(game);
    const owner = { request: name, place: here, partition, spots: spotsOf(partition), epsilon, when_spent: "zero" };
    const player = new Player(bus, games.get(game).keys, game, {
      machineOf: (tag, protocol) => {
        if (!MACHINES[protocol]) throw new Error("This game is played in rounds, which a page does not play.");
        return MACHINES[protocol].start({ ...owner, tag }, ledger);
      },
      position, obtain: (blinded) => obtain(game, blinded), told: (what) => say(STAGES[what] ?? ""),
      handOverMode: at("no-hand-over").checked ? "none" : "position",
    });
    const { resource = null, code = "" } = await player.play();
    if (resource !== null) await close();
    say(resource === null ? "The game is over. Take part again: the report that you have paid for is kept, and costs nothing more." : "The game is over.");
    at("got").textContent = resource === null ? "No resource this time." : `You got ${resource}.${code && ` Show it the code ${code} on arrival.`}`;
    at("revealed").textContent = revealed(player.machine, { charged: (await ledger.remaining()) < before, waits, resource, code });
    for (const id of ["got", "revealed"]) at(id).classList.remove("hidden");
  } catch (error) {
    // A report that is too old for this game's tables is of no use later, either.
    if (error.code === "channel") await close();
    say(error.message, true);
  } finally {
    for (const [game] of games) if (played.has(game)) bus.forget(game);
    setBusy(false);
    await showBudget();
  }
}

const STAGES = {
  joins: "Joining under a key for this game alone.",
  table: "The table of your square was checked: it keeps ε. The charge is stored, and the report drawn.",
  sends: "Sending, at a moment that was drawn before.",
  handover: "You are matched: telling what you got that it is yours.",
};

/** One sentence about what this device has revealed in a game, as palmatch.live.session.revealed has it. */
function revealed(machine, { charged, waits, resource, code }) {
  const { region } = machine.owner.place, { spots } = machine.owner;
  const square = `that you take part, and your region ${region}, a square of ${trust.partition.edge} m`;
  const served = resource === null ? "" : ` To ${resource} alone: ${code ? "a reservation code, not your position" : "your position"}.`;
  if (!charged) return `Revealed: ${square}${waits ? "; your stored report again, which is free" : ""}, and nothing else.${served}`;
  const how = `one report that is at most e^${text(unitsOf(machine.epsilon))} times as likely from your place as from any other of the ${spots} places of that square`;
  return `Revealed: ${square}, and ${how}.${served}`;
}

function setBusy(now) {
  busy = now;
  for (const id of ["take-part", "here", "latitude", "longitude", "epsilon", "no-hand-over"]) at(id).disabled = now;
}

function showClasses(classes) {
  const known = at("epsilon").value || "1";
  at("epsilon").replaceChildren(...classes.filter((one) => one > 0).map((one) => new Option(`ε = ${one}`, one, false, String(one) === known)));
}

// --- the map -------------------------------------------------------------------------------------------------------

/** Choose a place; nothing is sent. */
function choose(latitude, longitude) {
  if (busy) return;
  place = Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180 ? [latitude, longitude] : null;
  at("latitude").value = latitude.toFixed(5);
  at("longitude").value = longitude.toFixed(5);
  if (place) at("place").textContent = `Your square ${locate(trust.partition, ...place).region} is public; where in it you are is not.`;
  draw();
}

function useLocation() {
  const unknown = () => say("The browser does not tell where this phone is: tap the map.", true);
  if (!navigator.geolocation) return unknown();
  navigator.geolocation.getCurrentPosition(({ coords: { latitude, longitude } }) => {
    view = null;
    choose(latitude, longitude);
  }, unknown, { enableHighAccuracy: true, timeout: 20_000 });
}

function typed() {
  const [latitude, longitude] = [at("latitude").valueAsNumber, at("longitude").valueAsNumber];
  if (!Number.isFinite(latitude + longitude)) return void (place = null);
  view = null;
  choose(latitude, longitude);
}

const eastward = (latitude) => METRES * Math.max(Math.cos(latitude * Math.PI / 180), 1e-3);

/** Metres of a pixel, and the middle in degrees: around the place, or else the resources. */
function looking() {
  const { edge, origin } = trust.partition;
  if (view) return view;
  const median = (column) => resources.map((one) => one[column]).sort((a, b) => a - b)[resources.length >> 1];
  const middle = place ?? (resources.length ? [median(0), median(1)] : origin);
  return (view = { middle, scale: 3 * edge / at("map").width });
}

function draw() {
  const canvas = at("map"), pen = canvas.getContext("2d"), style = getComputedStyle(document.documentElement);
  const colour = (name) => style.getPropertyValue(name);
  const { edge, origin } = trust.partition, { middle, scale } = looking(), { width, height } = canvas;
  const x = ([latitude, longitude]) => width / 2 + (longitude - middle[1]) * eastward(middle[0]) / scale;
  const y = ([latitude]) => height / 2 - (latitude - middle[0]) * METRES / scale;
  pen.clearRect(0, 0, width, height);
  const rowOf = (latitude) => Math.floor((latitude - origin[0]) * METRES / edge);
  const half = [height * scale / 2 / METRES, width * scale / 2 / eastward(middle[0])];
  const own = place && locate(trust.partition, ...place).region;
  pen.strokeStyle = colour("--square");
  // Of squares that are too small to tell apart none is drawn.
  for (let row = rowOf(middle[0] - half[0]); edge / scale > 6 && row <= rowOf(middle[0] + half[0]); row++) {
    const south = origin[0] + row * edge / METRES, north = origin[0] + (row + 1) * edge / METRES;
    const across = edge / eastward((south + north) / 2);
    for (let column = Math.floor((middle[1] - half[1] - origin[1]) / across); origin[1] + column * across < middle[1] + half[1]; column++) {
      const west = origin[1] + column * across, box = [x([0, west]), y([north]), edge / scale, edge / scale];
      if (`${column},${row}` === own) {
        pen.fillStyle = colour("--own");
        pen.fillRect(...box);
      }
      pen.strokeRect(...box);
    }
  }
  const dot = (where, size, name) => {
    pen.fillStyle = colour(name);
    pen.beginPath();
    pen.arc(x(where), y(where), size, 0, 7);
    pen.fill();
  };
  for (const one of resources) dot(one, 5, "--resource");
  if (place) dot(place, 10, "--you");
}

function zoom(factor) {
  const { middle, scale } = looking();
  view = { middle: place ?? middle, scale: scale * factor };
  draw();
}

at("map").addEventListener("click", ({ offsetX, offsetY }) => {
  const canvas = at("map"), ratio = canvas.width / canvas.clientWidth, { middle, scale } = looking();
  const latitude = middle[0] - (offsetY * ratio - canvas.height / 2) * scale / METRES;
  choose(latitude, middle[1] + (offsetX * ratio - canvas.width / 2) * scale / eastward(middle[0]));
});
at("map").addEventListener("keydown", ({ key }) => ({ "+": () => zoom(0.5), "-": () => zoom(2) })[key]?.());
at("closer").addEventListener("click", () => zoom(0.5));
at("further").addEventListener("click", () => zoom(2));
at("here").addEventListener("click", useLocation);
at("take-part").addEventListener("click", takePart);
at("copy").addEventListener("click", () => navigator.clipboard.writeText(hex(member.key)));
for (const id of ["latitude", "longitude"]) at(id).addEventListener("change", typed);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);

at("member").textContent = hex(member.key);
at("origin").textContent = location.origin;
showClasses([1]);
await showBudget();
draw();
listen();
