// A game on the bus from a browser: the twin of palmatch.live.player for `report` and `bids`, over the hub's JSON.

import { readCbor } from "./cbor.mjs";
import { base64, equal, fromBase64, fromHex, hashOf, hex, join, newSigner, newToken, sealPosition, signedBytes, tagOf, verify } from "./keys.mjs";

// All that a device says has one size on the wire, and one kind of join another.
const PADDED = 2048;
// Shares of a slot within which messages leave: the same as in `palmatch.live.windows`, since when a message leaves must
// not tell which kind of device it is. Joins and reports leave again unless the board has said that it has heard them.
const ONCE = [[0.1, 0.7]], COPIES = [[0.1, 0.45], [0.55, 0.62], [0.63, 0.7]];
// The sequence numbers by which the board says whose messages it has heard.
const JOIN = 0, REPORT = 1;
const timesIn = (shares, offset, window) => shares.map(([first, last]) => window * (first + offset * (last - first)));

const segment = (name) => encodeURIComponent(name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
export const topicOf = (game, kind, name) => `pm/1/${segment(game)}/${kind}${name === undefined ? "" : `/${segment(name)}`}`;
const wait = (seconds) => new Promise((resolve) => setTimeout(resolve, 1000 * Math.max(seconds, 0)));

const packed = { d: Float64Array, I: Uint32Array, i: Int32Array, Q: BigUint64Array };
const unpack = (code, bytes) => Array.from(new packed[code](bytes.slice().buffer), Number);
const rows = (numbers, width) => Array.from({ length: numbers.length / width }, (_, row) => numbers.slice(row * width, (row + 1) * width));
const split = (bytes, size) => Array.from({ length: bytes.length / size }, (_, place) => bytes.subarray(place * size, (place + 1) * size));

/** A connection to a hub: what was said on each topic, and waiting for it. Everything sent is also told to `spy`. */
export class Bus {
  constructor(address, spy = () => {}) {
    this.spy = spy;
    this.values = new Map();
    this.waiting = new Map();
    this.socket = new WebSocket(address, "palmatch.json");
    this.ready = new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error(`There is no hub at ${address}.`));
    });
    this.socket.onmessage = ({ data }) => this.came(JSON.parse(data));
  }

  came({ op, topic, packet, reason }) {
    if (op === "refused" || op === "not_subscribed") console.warn(`${topic}: ${reason}`);
    if (op !== "message") return;
    const found = { topic, body: fromBase64(packet.body), signature: fromBase64(packet.signature) };
    this.values.set(topic, found);
    for (const told of this.waiting.get(topic) ?? []) told(found);
    this.any?.(topic, found.body);
  }

  say(message) {
    const text = JSON.stringify(message);
    const padded = JSON.stringify({ ...message, padding: " ".repeat(Math.max(0, PADDED - text.length - 13)) });
    this.socket.send(padded);
    this.spy(message, padded.length);
  }

  subscribe(topic, told) {
    const known = this.waiting.has(topic);
    if (!known) this.waiting.set(topic, new Set());
    if (told) this.waiting.get(topic).add(told);
    if (known) return;
    const message = { op: "subscribe", topic }, text = JSON.stringify(message);
    this.socket.send(text);
    this.spy(message, text.length);
  }

  /** The retained packet of a topic, as soon as there is one. */
  async value(topic, seconds) {
    if (this.values.has(topic)) return this.values.get(topic);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => reject(new Error(`There was no ${topic} in time.`)), 1000 * seconds);
      this.subscribe(topic, (found) => {
        clearTimeout(timer);
        resolve(found);
      });
    });
  }

  close() {
    this.socket.close();
  }
}

/** One device in one game. `trust` has the public keys in base64 and the partition; `obtain` asks the issuer. */
export class Player {
  constructor(bus, trust, game, { machineOf, position, obtain, told = () => {} }) {
    Object.assign(this, { bus, trust, game, machineOf, position, obtain, told, came: [], wake: () => {} });
  }

  /** What the board, or whichever key is given, has said; the signature is checked on the bytes that came. */
  async statement(kind, seconds, { name, key = this.trust.board, context } = {}) {
    const topic = topicOf(this.game, kind, name);
    const { body, signature } = await this.bus.value(topic, seconds);
    if (!(await verify(fromBase64(key), signature, signedBytes(context ?? topic, body)))) {
      throw new Error(`The signature of ${kind} is not by the key that it should be by.`);
    }
    return { message: readCbor(body), hash: await hashOf(topic, body), body };
  }

  /** Whether the board has said that it has this device's join or report: public, whatever was reported. */
  async isHeard(sequence) {
    const topic = topicOf(this.game, "heard", this.machine.owner.place.region);
    const found = this.bus.values.get(topic);
    if (!found) return false;
    try {
      const { message } = await this.statementOf(topic, found);
      return message.sequence === sequence && split(message.tags, 8).some((tag) => equal(tag, this.tag));
    } catch {
      return false;
    }
  }

  async publish(topic, message, times = [0], sequence = null) {
    const body = new TextEncoder().encode(JSON.stringify(message));
    const packet = { version: 1, body: base64(body), signature: base64(await this.signer.sign(signedBytes(topic, body))) };
    const began = performance.now();
    for (const time of times) {
      await wait(time - (performance.now() - began) / 1000);
      if (sequence !== null && (await this.isHeard(sequence))) return;
      // A game that ended early, as with a spent budget, has closed the connection before the last copies are due.
      if (this.bus.socket.readyState !== WebSocket.OPEN) return;
      this.bus.say({ op: "publish", topic, packet });
    }
  }

  /** Play until there is a result; return {resources, report, table, epsilon}. */
  async play() {
    this.opened = await this.statement("open", 600);
    const open = this.opened.message;
    const issuer = await this.statement("issuer", 60, { key: this.trust.issuer });
    if (!equal(issuer.message.key, open.issuer)) throw new Error("The board's issuer key is not the issuer's: do not play.");
    this.signer = await newSigner();
    const token = await newToken(open.issuer, this.game, this.signer.key, this.obtain);
    this.tag = await tagOf(this.game, this.signer.key);
    this.machine = await this.machineOf(hex(this.tag), open.protocol);
    this.resources = [];
    this.bus.subscribe(topicOf(this.game, "heard", this.machine.owner.place.region));
    const [send] = await this.take(this.openRecord(open), this.opened.hash);
    if (!send) return { left: true };
    const number = await this.joins(open, send.message, token, send.offset);
    await this.tables(open, send.message, number);
    await (open.protocol === "report" ? this.reported(open) : this.slots(open));
    return { resources: this.resources, report: this.machine.report, table: this.machine.table, epsilon: this.machine.epsilon };
  }

  async take(record, hash) {
    return this.machine.receive(record, typeof hash === "string" ? hash : hex(hash));
  }

  openRecord(open) {
    const { edge, spacing, origin } = open.partition;
    const pinned = this.trust.partition;
    if (edge !== pinned.edge || spacing !== pinned.spacing || origin[0] !== pinned.origin[0] || origin[1] !== pinned.origin[1]) {
      throw new Error("The board's partition is not the pinned one: do not play.");
    }
    return {
      kind: "open", version: 1, game: this.game, protocol: open.protocol, classes: open.classes, resources: hex(open.resources),
      partition: { edge, spacing, latitude: origin[0], longitude: origin[1] }, start: open.start / 1000, slot: open.slot,
      slots: open.slots, step: open.step, patience: open.patience, slack: open.slack, growth: open.growth,
      demand: open.demand ?? 1,
    };
  }

  async joins(open, joined, token, offset) {
    const number = open.classes.indexOf(joined.epsilon);
    const message = {
      token: { prefix: base64(token.prefix), signature: base64(token.signature) }, key: base64(this.signer.key),
      region: joined.region, epsilon_class: number, ...(joined.demand > 1 ? { demand: joined.demand } : {}),
    };
    const left = Math.max(open.joins_close / 1000 - Date.now() / 1000, 0);
    this.told("joins", joined);
    this.publish(topicOf(this.game, "join"), message, timesIn(COPIES, offset, left), JOIN);
    this.roster = await this.statement("roster", left + 120);
    const named = this.roster.message.regions.find(({ region }) => region === joined.region);
    if (!named) throw new Error("The roster does not have this device's square: it may be too far away, or the join too late.");
    const listed = await this.statement("members", 60, { name: joined.region });
    if (!equal(named.members, listed.hash)) throw new Error("The list of members is not the one that the roster names.");
    const tags = split(listed.message.tags, 8), demands = demandsOf(listed.message);
    const place = tags.findIndex((tag) => equal(tag, this.tag));
    if (place < 0 || listed.message.classes[place] !== number) throw new Error("The roster does not have this device.");
    this.demands = tags.map((tag, row) => [hex(tag), demands[row]]).filter(([, demand]) => demand !== 1);
    return number;
  }

  async tables(open, joined, number) {
    const listed = await this.statement("tables", 600);
    const { regions, opened } = this.roster.message;
    if (!equal(opened, this.opened.hash) || !equal(listed.message.roster, this.roster.hash)) {
      throw new Error("Roster and tables do not name each other.");
    }
    const counts = regions.flatMap(({ region, counts: agents }) => agents.flatMap((count, place) => {
      const found = listed.message.tables.find((item) => item.region === region && item.epsilon_class === place);
      return count && found ? [{ region, epsilon: open.classes[place], agents: count, table: hex(found.table) }] : [];
    }));
    await this.take({ kind: "roster", game: this.game, counts, demands: this.demands }, hex(this.roster.hash) + hex(listed.hash));
    const table = await this.statement("table", 60, { name: `${joined.region}~${number}` });
    // Before the device decides: a subscription that had to wait for that would tell how long it took.
    if (open.protocol === "report") {
      for (const topic of [topicOf(this.game, "result"), topicOf(this.game, "transcript", joined.region)]) this.bus.subscribe(topic);
    } else {
      this.bus.subscribe(topicOf(this.game, "bulletin", joined.region), (found) => {
        this.came.push(found);
        this.wake();
      });
    }
    const began = Math.max(open.start / 1000, Date.now() / 1000);
    const sends = await this.take(tableRecord(this.game, table.message), table.hash);
    this.told("table", this.machine.table);
    for (const send of sends) this.say(send, open.slot, began - Date.now() / 1000, COPIES);
  }

  say({ message, offset }, slot, delay, shares) {
    const times = timesIn(shares, offset, slot).map((time) => delay + time);
    const tag = base64(this.tag);
    this.told("sends", message);
    if (message.kind === "report") {
      const told = { sequence: message.sequence, tag, channel: base64(fromHex(message.channel)), report: message.report };
      this.publish(topicOf(this.game, "report"), told, times, REPORT);
    } else {
      this.publish(topicOf(this.game, "bid", message.resource), { sequence: message.sequence, tag, offer: message.offer }, times);
    }
  }

  async reported(open) {
    const patience = Math.max(open.start / 1000 - Date.now() / 1000, 0) + open.slot * open.slots + 600;
    const result = (await this.statement("result", patience)).message;
    const own = this.machine.owner.place.region;
    const transcript = await this.statement("transcript", 60, { name: own });
    const named = result.transcripts.find(({ region }) => region === own);
    if (!named || !equal(transcript.hash, named.transcript) || !equal(result.roster, this.roster.hash)) {
      throw new Error("The transcript is not the one that the result names.");
    }
    const record = resultRecord(this.game, open, this.roster.message, transcript.message);
    await this.handOver(await this.take(record, transcript.hash));
  }

  async slots(open) {
    const topic = topicOf(this.game, "bulletin", this.machine.owner.place.region);
    while (!this.machine.done && !this.machine.left) {
      if (!this.came.length) await Promise.race([new Promise((resolve) => (this.wake = resolve)), wait(4 * open.slot)]);
      const found = this.came.shift();
      if (!found) continue;
      const { message, hash } = await this.statementOf(topic, found);
      const began = Math.max(open.start / 1000, Date.now() / 1000);
      const sends = await this.take(bulletinRecord(this.game, message), hash);
      const handovers = sends.filter(({ message: { kind } }) => kind === "handover");
      for (const send of sends) if (!handovers.includes(send)) this.say(send, open.slot, began - Date.now() / 1000, ONCE);
      if (handovers.length) {
        // A vehicle serves the agent that the result names.
        await this.statement("result", open.slot * open.slots + 600);
        await this.handOver(handovers);
      }
    }
  }

  async statementOf(topic, { body, signature }) {
    if (!(await verify(fromBase64(this.trust.board), signature, signedBytes(topic, body)))) throw new Error("A statement is not the board's.");
    return { message: readCbor(body), hash: await hashOf(topic, body) };
  }

  /** Hand over to every resource that the device got, to all at the same time; one that fails does not stop the others. */
  async handOver(sends) {
    const done = await Promise.allSettled(sends.map(async ({ message: { resource } }) => {
      this.resources.push(resource);
      const found = await this.statement("resource", 60, { name: resource, key: this.trust.operator, context: "certificate" });
      const gone = (this.trust.removed ?? []).some(({ name, until }) => name === resource && found.message.until <= until);
      if (gone || found.message.name !== resource || found.message.until < Date.now()) throw new Error("The resource's certificate is not valid.");
      const topic = topicOf(this.game, "handover", resource);
      const sealed = await sealPosition(found.message.sealing, topic, this.tag, ...this.position);
      this.told("handover", { resource });
      await this.publish(topic, { key: base64(this.signer.key), sealed: base64(sealed) }, [0, 1, 2]);
    }));
    const failed = done.find(({ status }) => status === "rejected");
    if (failed) throw failed.reason;
  }
}

/** The demand of each line: 1 where nothing is said, and 0, which no agent has, where it does not fit. */
function demandsOf({ tags, demands }) {
  const lines = tags.length / 8;
  if (demands === undefined) return Array(lines).fill(1);
  return demands.length === lines ? Array.from(demands) : Array(lines).fill(0);
}

function tableRecord(game, table) {
  const { channel, region, epsilon, resources, listed } = table;
  if (!channel) throw new Error("This game has no reports: a browser cannot play it.");
  const width = resources.length, values = rows(unpack("d", channel.values), width);
  return {
    kind: "table", game, region, epsilon, resources, listed: listed && listedRecord(listed), cell_of: unpack("I", channel.cell_of),
    chances: rows(unpack("Q", channel.chances), values.length), values, opening: unpack("d", channel.opening),
    earlier: channel.earlier.map((item) => ({ channel: hex(item.channel), values: rows(unpack("d", item.values), width) })),
  };
}

function listedRecord({ size, places, hashes, positions }) {
  return { size, places: unpack("I", places), hashes: split(hashes, 32).map(hex), positions: hex(positions) };
}

function bulletinRecord(game, bulletin) {
  return {
    kind: "bulletin", game, region: bulletin.region, sequence: bulletin.sequence, previous: hex(bulletin.previous), call: bulletin.call,
    holders: split(bulletin.holders, 8).map((tag) => (tag.some((byte) => byte) ? hex(tag) : null)),
    prices: unpack("d", bulletin.prices).map((price) => (price === -1 ? null : price)), over: bulletin.over,
  };
}

function resultRecord(game, open, roster, transcript) {
  const names = transcript.resources, demands = demandsOf(transcript);
  const [region, channel, report, place] = [["I", "region"], ["i", "channel"], ["i", "reports"], ["i", "assigned"]]
    .map(([code, field]) => unpack(code, transcript[field]));
  const assigned = split(transcript.tags, 8).flatMap((tag, row) => (report[row] < 0 || channel[row] < 0 ? [] : [{
    tag: hex(tag), region: roster.regions[region[row]].region, epsilon: open.classes[transcript.epsilon_class[row]],
    channel: hex(transcript.channels[channel[row]]), report: report[row], resource: place[row] < 0 ? null : names[place[row]],
    demand: demands[row],
  }]));
  return { kind: "result", game, assigned, prices: unpack("d", transcript.prices).map((price, row) => [names[row], price]) };
}
