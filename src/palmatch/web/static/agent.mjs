// Be an agent: device.mjs plays a live game in this page. The position stays here, but for the resource that serves it.

import { ReportMachine, locate, openLedger, spotsOf } from "/device.mjs";
import { drawBelief, even, farthest, oddsFactor, posterior } from "./belief.mjs";
import { Bus, Player } from "./bus.mjs";
import { base64, join, newSigner, signedBytes } from "./keys.mjs";
import { readCbor } from "./cbor.mjs";
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

export async function begin(stateOf) {
  at("agent").classList.remove("hidden");
  ledger = await openLedger("explorer", LIFETIME * UNITS);
  await showBudget();
  at("take-part").addEventListener("click", () => takePart(stateOf()));
  at("here").addEventListener("click", useDevice);
  for (const name of ["latitude", "longitude"]) at(name).addEventListener("change", () => moved());
  for (const name of ["odds-one", "odds-two"]) at(name).addEventListener("change", showOdds);
}

/** Choose a place, by a click on the map or otherwise; nothing is sent. */
export function choose(latitude, longitude) {
  at("latitude").value = latitude.toFixed(5);
  at("longitude").value = longitude.toFixed(5);
  moved();
}

function moved() {
  sent = [];
  place = null;
  at("sent").replaceChildren();
  at("belief").classList.add("hidden");
  at("agent-status").textContent = "A place is chosen; nothing has been sent.";
}

function useDevice() {
  navigator.geolocation?.getCurrentPosition(
    ({ coords }) => choose(coords.latitude, coords.longitude),
    () => (at("agent-status").textContent = "The browser does not tell where this device is: click on the map."),
  );
}

async function showBudget() {
  const left = (await ledger.remaining()) / UNITS;
  at("budget").textContent = `${left.toFixed(2)} of ${LIFETIME} left of this browser's lifetime budget ε.`;
}

async function registered() {
  if (member === null) {
    member = await newSigner();
    await fetch("/api/member", { method: "POST", body: member.key });
  }
  return member;
}

/** Ask the issuer to sign a blinded token with the member's lasting key; it cannot link the token to it later. */
async function obtain(game, blinded) {
  const { key, sign } = await registered();
  const body = new TextEncoder().encode(JSON.stringify({ game, member: base64(key), blinded: base64(blinded) }));
  const answer = await fetch("/token", { method: "POST", body: join(await sign(signedBytes("token", body)), body) });
  if (!answer.ok) throw new Error(await answer.text());
  return readCbor(new Uint8Array(await answer.arrayBuffer())).blind_signature;
}

async function takePart(state) {
  const [latitude, longitude] = [Number(at("latitude").value), Number(at("longitude").value)];
  if (busy || at("latitude").value === "" || !Number.isFinite(latitude + longitude)) {
    at("agent-status").textContent = busy ? "A game is under way." : "Choose a place first: click on the map, or type it.";
    return;
  }
  busy = true;
  at("take-part").disabled = true;
  let bus = null;
  try {
    await registered();
    const answer = await fetch(`/api/game?${query(state, state.method)}`, { method: "POST" });
    const opened = await answer.json();
    if (!answer.ok) throw new Error(opened.error);
    say(`Game ${opened.game}: ${opened.others} simulated agents take part with you.`);
    const log = [];
    bus = new Bus(`${location.protocol === "https:" ? "wss" : "ws"}://${location.host}/bus`, (message, size) => log.push({ message, size }));
    await bus.ready;
    const { edge, spacing, origin } = opened.trust.partition;
    const partition = { edge, spacing, latitude: origin[0], longitude: origin[1] };
    place = { ...locate(partition, latitude, longitude), partition, spots: spotsOf(partition) };
    const machineOf = (tag) => ReportMachine.start({
      request: `${opened.game}`, place: { region: place.region, spot: place.spot }, partition, spots: place.spots,
      epsilon: state.epsilon, tag, when_spent: "zero",
    }, ledger);
    const player = new Player(bus, opened.trust, opened.game, {
      machineOf, position: [latitude, longitude], obtain: (blinded) => obtain(opened.game, blinded), told: (what) => say(STAGES[what]),
    });
    show(await player.play(), log);
  } catch (error) {
    say(error.message);
  } finally {
    bus?.close();
    busy = false;
    at("take-part").disabled = false;
    await showBudget();
  }
}

const STAGES = {
  joins: "Joining under a one-time key: the board learns your square and your ε, not your place.",
  table: "The table of your square was checked in whole numbers: it keeps ε. The charge is stored; the report is drawn.",
  sends: "One report leaves, at a random moment, padded to the size of every other message.",
  handover: "You are matched: your place is sealed to your vehicle's key, and sent to it alone.",
};
const say = (text) => (at("agent-status").textContent = text);

function show(played, log) {
  if (played.left) return say("The budget does not suffice, and the device left the game.");
  const { report, table, resource, epsilon } = played;
  if (epsilon > 0 && table.values.length > 1) sent.push({ table, report, epsilon });
  say(resource === null
    ? `The game is over: there was no vehicle left for you. You sent report ${report + 1} of ${table.values.length}, for ε = ${epsilon}.`
    : `The game is over: you got vehicle ${resource}. You sent report ${report + 1} of ${table.values.length}, for ε = ${epsilon}.`);
  at("sent").replaceChildren(...log.map(({ message, size }) => {
    const row = document.createElement("tr");
    const decoded = message.packet ? atob(message.packet.body) : "";
    for (const text of [message.topic.split("/").slice(3).join("/"), `${size}`, decoded]) row.insertCell().textContent = text;
    return row;
  }));
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
