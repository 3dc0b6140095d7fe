// Be an agent: device.mjs plays a live game in this page. The position stays here, but for the resource that serves it.

import { ReportMachine, locate, openLedger, spotsOf } from "/device.mjs";
import { drawBelief, even, farthest, oddsFactor, posterior } from "./belief.mjs";
import { Bus, Player } from "./bus.mjs";
import { base64, join, newSigner, signedBytes } from "./keys.mjs";
import { readCbor, writeCbor } from "./cbor.mjs";
import { query } from "./state.mjs";

const at = (id) => document.getElementById(id);
const LIFETIME = 8;
const UNITS = 2 ** 32;

let member = null;
let ledger = null;
let busy = false;
// What was sent so far about the present place: reports with the tables that they were drawn from.
let sent = [];
let place = null;
// Everything that left the page for the present game.
let log = [];
let onPlace = () => {};

/** Begin; `stateOf` tells the page's settings, and `told` is given the place whenever one is chosen. */
export async function begin(stateOf, told) {
  onPlace = told;
  at("agent").classList.remove("hidden");
  ledger = await openLedger("explorer", LIFETIME * UNITS);
  await showBudget();
  at("take-part").addEventListener("click", () => takePart(stateOf()));
  at("here").addEventListener("click", useDevice);
  at("new-device").addEventListener("click", newDevice);
  for (const name of ["latitude", "longitude"]) at(name).addEventListener("change", () => moved());
  for (const name of ["odds-one", "odds-two"]) at(name).addEventListener("change", showOdds);
}

/** Choose a place, by a click on the map or otherwise; nothing is sent. */
export function choose(latitude, longitude) {
  if (busy) return;
  at("latitude").value = latitude.toFixed(5);
  at("longitude").value = longitude.toFixed(5);
  moved();
}

function moved() {
  sent = [];
  place = null;
  at("sent").replaceChildren();
  at("belief").classList.add("hidden");
  say("A place is chosen; nothing has been sent.");
  const [latitude, longitude] = [at("latitude").valueAsNumber, at("longitude").valueAsNumber];
  onPlace(Number.isFinite(latitude + longitude) ? [latitude, longitude] : null);
}

function useDevice() {
  const unknown = () => say("The browser does not tell where this device is: click on the map.");
  if (!navigator.geolocation) return unknown();
  navigator.geolocation.getCurrentPosition(({ coords }) => choose(coords.latitude, coords.longitude), unknown);
}

/** Forget budget, partition and key: in a simulation a visitor may be another device; a real one keeps its ledger. */
async function newDevice() {
  await ledger.transact((state) => {
    for (const name of Object.keys(state)) delete state[name];
    Object.assign(state, { spent: 0, charges: [], kept: {} });
  });
  member = null;
  moved();
  say("This page is a new device, with a new key and a whole budget; nothing has been sent.");
  await showBudget();
}

function setBusy(now) {
  busy = now;
  for (const name of ["take-part", "here", "new-device", "latitude", "longitude"]) at(name).disabled = now;
}

async function showBudget() {
  const left = (await ledger.remaining()) / UNITS;
  at("budget").textContent = `${left.toFixed(2)} of ${LIFETIME} left of this browser's lifetime budget ε.`;
}

/** Send a request to the explorer's server, and note it; `words` is its body for readers. */
async function post(address, body, words = "") {
  log.push({ label: `POST ${address}`, size: body?.length ?? 0, words });
  return fetch(address, { method: "POST", body });
}

async function registered() {
  if (member === null) {
    const signer = await newSigner();
    await post("/api/member", signer.key, base64(signer.key));
    member = signer;
  }
  return member;
}

/** Ask the issuer to sign a blinded token with the member's lasting key; it cannot link the token to it later. */
async function obtain(game, blinded) {
  const { key, sign } = await registered();
  const body = writeCbor({ game, member: key, blinded });
  const signature = await sign(signedBytes("token", body));
  const answer = await post("/token", join(signature, body), `${base64(signature)} ${base64(body)}`);
  if (!answer.ok) throw new Error(await answer.text());
  return readCbor(new Uint8Array(await answer.arrayBuffer())).blind_signature;
}

async function takePart(state) {
  const [latitude, longitude] = [at("latitude").valueAsNumber, at("longitude").valueAsNumber];
  if (busy || !Number.isFinite(latitude + longitude)) {
    at("agent-status").textContent = busy ? "A game is under way." : "Choose a place first: click on the map, or type it.";
    return;
  }
  setBusy(true);
  log = [];
  let bus = null;
  try {
    await registered();
    const answer = await post(`/api/game?${query(state, state.method)}`);
    const opened = await answer.json();
    if (!answer.ok) throw new Error(opened.error);
    say(`Game ${opened.game}: ${opened.others} simulated agents take part with you.`);
    bus = new Bus(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/bus`, noted);
    await bus.ready;
    const { partition } = opened.trust;
    const here = { ...locate(partition, latitude, longitude), partition, spots: spotsOf(partition) };
    const machineOf = (tag) => ReportMachine.start({
      request: `${opened.game}`, place: { region: here.region, spot: here.spot }, partition, spots: here.spots,
      epsilon: state.epsilon, tag, when_spent: "zero",
    }, ledger);
    const player = new Player(bus, opened.trust, opened.game, {
      machineOf, position: [latitude, longitude], obtain: (blinded) => obtain(opened.game, blinded), told: (what) => say(STAGES[what]),
    });
    const played = await player.play();
    place = here;
    show(played, state.epsilon);
  } catch (error) {
    say(error.code === "partition" ? ANOTHER_PARTITION : error.message);
  } finally {
    bus?.close();
    showSent();
    setBusy(false);
    await showBudget();
  }
}

const ANOTHER_PARTITION =
  "This device has taken part with other squares, and keeps to them: reports for two kinds of squares would tell more of its " +
  "place than either. Set the edge of a square back, or begin as a new device.";

/** Note a message on the bus: what it says and its size with padding. */
function noted({ topic, message }, size) {
  const label = `${message ? "" : "subscribe "}${topic.split("/").slice(3).join("/")}`;
  const shown = (_, value) => (value instanceof Uint8Array ? base64(value) : value);
  log.push({ label, size, words: message ? JSON.stringify(message, shown) : "" });
}

function showSent() {
  at("sent").replaceChildren(...log.map(({ label, size, words }) => {
    const row = document.createElement("tr");
    for (const text of [label, `${size}`, words]) row.insertCell().textContent = text;
    return row;
  }));
}

const STAGES = {
  joins: "Joining under a one-time key: the board learns your square and your ε, not your place.",
  table: "The table of your square was checked in whole numbers: it keeps ε. The charge is stored; the report is drawn.",
  sends: "One report leaves, at a random moment, padded to the size of every other message.",
  handover: "You are matched: your place is sealed to your vehicle's key, and sent to it alone (this server plays the vehicle).",
};
const say = (text) => (at("agent-status").textContent = text);

function show(played, wanted) {
  if (played.left) return say("The budget does not suffice, and the device left the game.");
  const { report, table, resource, epsilon } = played;
  if (epsilon > 0 && table.values.length > 1) sent.push({ table, report, epsilon });
  const served = resource !== null ? `you got vehicle ${resource}` : "there was no vehicle left for you";
  let cost = "";
  if (epsilon < wanted) cost = ` What is left of the budget does not suffice for ε = ${wanted}: with ε = 0 a report tells nothing of your place.`;
  else if (table.values.length === 1) cost = " Your square has one report for all its places: it tells nothing, and costs nothing.";
  say(`The game is over: ${served}. You sent report ${report + 1} of ${table.values.length}, for ε = ${epsilon}.${cost}`);
  showBelief();
}

function showBelief() {
  const { spots, spot, partition } = place;
  const points = Math.ceil(partition.edge / partition.spacing) + 1;
  const shape = { points, centreExtra: spots > points * points };
  const before = even(spots), after = posterior(before, sent);
  at("belief").classList.remove("hidden");
  place.shape = shape;
  place.before = before;
  place.after = after;
  const [one, two] = sent.length ? farthest(before, after) : [0, spots - 1];
  for (const name of ["odds-one", "odds-two"]) at(name).max = spots - 1;
  at("odds-one").value = one;
  at("odds-two").value = two;
  drawBelief(at("belief-before"), before, shape, [[spot, "●"]]);
  showOdds();
}

function showOdds() {
  if (!place?.after) return;
  const [one, two] = [Number(at("odds-one").value), Number(at("odds-two").value)];
  const { before, after, shape, spot } = place;
  drawBelief(at("belief-after"), after, shape, [[spot, "●"], [one, "A"], [two, "B"]]);
  const factor = oddsFactor(before, after, one, two);
  const spent = sent.reduce((sum, { epsilon }) => sum + epsilon, 0);
  const cap = Math.exp(spent);
  at("odds").textContent =
    `The odds of A against B changed by a factor of ${factor.toFixed(3)}. After ${sent.length} report${sent.length === 1 ? "" : "s"} with ` +
    `ε = ${spent.toFixed(2)} in total no two places can differ by more than e^ε = ${cap.toFixed(3)}` +
    `${factor <= cap * (1 + 1e-12) && factor >= 1 / (cap * (1 + 1e-12)) ? ": it holds." : ": it does not hold, which is a defect."}`;
}
