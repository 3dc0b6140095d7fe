// A game on the bus from a browser: the twin of palmatch.live.session for `report` and `bids`.

import { COPIES, ONE_COPY, VERSION, marginOf, sendingTimes } from "../device.mjs";
import { Float, readCbor, writeCbor } from "./cbor.mjs";
import { equal, fromBase64, fromHex, hashOf, hex, join, newSecret, newSigner, newToken, reservationCode, sealPosition, sealSecret, signedBytes, tagOf, verify } from "./keys.mjs";

// All that a device says has one size, and joins, which carry a token, another.
const PADDED = 512, PADDED_JOIN = 1024;
// Operations of a client and of the hub: palmatch.live.transport.frames
const PUBLISH = 1, SUBSCRIBE = 3, MESSAGE = 7, RETAINED = 8, NOT_SUBSCRIBED = 10, REFUSED = 11;
// The sequence numbers by which the board says whose messages it has heard.
const JOIN = 0, REPORT = 1;

const segment = (name) => encodeURIComponent(name).replace(/[!'()*]/g, (sign) => `%${sign.charCodeAt(0).toString(16).toUpperCase()}`);
export const topicOf = (game, kind, name) => `pm/1/${segment(game)}/${kind}${name === undefined ? "" : `/${segment(name)}`}`;
// A timer takes less than 2^31 ms, and a longer one ends at once: when a message leaves must not hang on that.
const DAY = 86_400, SILENCE = 600, MOST_BULLETINS = 64;
async function wait(seconds) {
  for (let left = seconds; left > 0; left -= DAY) await new Promise((resolve) => setTimeout(resolve, 1000 * Math.min(left, DAY)));
}

const packed = { d: Float64Array, I: Uint32Array, i: Int32Array, Q: BigUint64Array };
const unpack = (code, bytes) => Array.from(new packed[code](bytes.slice().buffer), Number);

/** Rows of a width, or items of a size: all of them whole. */
function split(items, size) {
  if (items.length % size) throw new Error(`Expected a multiple of ${size} items, found ${items.length}.`);
  return Array.from({ length: items.length / size }, (_, place) => items.slice(place * size, (place + 1) * size));
}

// What a page reads of each message, with the bounds of palmatch.device.messages.

const number = (least, most) => (value) => typeof value === "number" && value >= least && value <= most;
const whole = (most = 2 ** 53) => (value) => Number.isInteger(value) && value >= 0 && value <= most;
const text = (value) => typeof value === "string" && value.length > 0;
const flag = (value) => typeof value === "boolean";
const bytes = (value) => value instanceof Uint8Array;
const hash = (value) => bytes(value) && value.length === 32;
const list = (shape) => (value) => Array.isArray(value) && value.every((item) => fits(shape, item));
const maybe = (shape) => (value) => (value ?? null) === null || fits(shape, value);
const fits = (shape, value) => typeof shape === "function"
  ? shape(value)
  : typeof value === "object" && value !== null && Object.entries(shape).every(([name, inner]) => fits(inner, value[name]));
const PARTITION = { edge: number(0, 1e7), spacing: number(0, 1e7), origin: list(number(-180, 180)) };
const CHANNEL = { cell_of: bytes, chances: bytes, values: bytes, opening: bytes, earlier: list({ channel: hash, values: bytes }) };
const SHAPES = {
  open: {
    protocol: text, classes: list(number(0, 1000)), partition: PARTITION, joins_close: whole(), start: whole(), slot: number(0, DAY),
    slots: whole(100_000), issuer: bytes, resources: hash, step: number(0, 1), patience: whole(100_000), slack: number(0, 1),
    growth: number(0, 1),
  },
  issuer: { key: bytes },
  resources: { names: list(text), at: bytes },
  heard: { sequence: whole(), tags: bytes },
  roster: { opened: hash, regions: list({ region: text, counts: list(whole()), members: hash }) },
  members: { tags: bytes, classes: bytes },
  tables: { roster: hash, tables: list({ region: text, epsilon_class: whole(255), table: hash }) },
  table: {
    region: text, epsilon: number(0, 1000), resources: list(text), channel: maybe(CHANNEL),
    listed: maybe({ size: whole(), places: bytes, hashes: bytes, positions: hash }),
  },
  bulletin: { region: text, sequence: whole(), previous: hash, holders: bytes, call: whole(), prices: bytes, over: flag },
  result: { roster: hash, transcripts: list({ region: text, transcript: hash }) },
  transcript: {
    resources: list(text), tags: bytes, region: bytes, epsilon_class: bytes, channels: list(hash), channel: bytes, reports: bytes,
    assigned: bytes, prices: bytes,
  },
  resource: { name: text, sealing: bytes, until: whole(), handover: (value) => value === "position" || value === "none" },
};

/** The packet of a signed body, padded to the size of its kind. */
function packetOf(kind, body, signature) {
  const start = join(Uint8Array.of(0x84), writeCbor(VERSION), writeCbor(body), writeCbor(signature));
  const missing = (kind === "join" ? PADDED_JOIN : PADDED) - start.length - 3;
  if (missing < 0) throw new Error(`A message ${kind} is too large.`);
  return join(start, Uint8Array.of(0x59, missing >> 8, missing & 255), new Uint8Array(missing));
}

/** {version, body, signature} of a packet; null for what is none. */
function opened(packet) {
  try {
    const [version, body, signature] = readCbor(packet);
    return { version, body: body.slice(), signature: signature.slice() };
  } catch {
    return null;
  }
}

/** A connection to a hub: what was said on each topic, and waiting for it. Everything sent is also told to `spy`. */
export class Bus {
  constructor(address, spy = () => {}) {
    Object.assign(this, { address, spy, values: new Map(), waiting: new Map(), asked: new Set() });
    this.ready = this.connect();
  }

  connect() {
    this.socket = new WebSocket(this.address, "palmatch.cbor");
    this.socket.binaryType = "arraybuffer";
    this.socket.onmessage = ({ data }) => this.came(new Uint8Array(data));
    return new Promise((resolve, reject) => {
      this.socket.onopen = resolve;
      this.socket.onerror = () => reject(new Error(`There is no hub at ${this.address}.`));
    });
  }

  /** Connect again whenever there is no connection, and ask again for all that was asked for; `told` says whether there is one. */
  last(told) {
    const begin = (ready) => {
      this.socket.onclose = async () => {
        told(false);
        // Many pages lose a hub at the same time.
        await wait(1 + Math.random());
        begin(this.connect());
      };
      ready.then(() => {
        told(true);
        for (const topic of this.asked) this.ask(topic);
      }, () => {});
    };
    begin(this.ready);
  }

  /** Drop what was said in a game that is over. */
  forget(game) {
    for (const known of [this.values, this.waiting, this.asked]) {
      for (const topic of known.keys()) if (topic.split("/")[2] === segment(game)) known.delete(topic);
    }
  }

  /** Take a frame: an operation, the length of a topic, the topic, and a packet or a reason. */
  came(frame) {
    const end = 3 + 256 * frame[1] + frame[2];
    const [op, topic, payload] = [frame[0], new TextDecoder().decode(frame.slice(3, end)), frame.slice(end)];
    if (op === REFUSED || op === NOT_SUBSCRIBED) console.warn(`${topic}: ${new TextDecoder().decode(payload)}`);
    const found = op === MESSAGE || op === RETAINED ? opened(payload) : null;
    if (found === null) return;
    this.values.set(topic, found);
    for (const told of this.waiting.get(topic) ?? []) told(found);
    this.any?.(topic, found.body);
  }

  send(op, topic, payload, shown) {
    const name = new TextEncoder().encode(topic);
    const frame = join(Uint8Array.of(op, name.length >> 8, name.length & 255), name, payload);
    this.socket.send(frame);
    this.spy({ topic, ...shown }, frame.length);
  }

  /** Publish a packet; `message` is what it says, for `spy`. */
  publish(topic, packet, message) {
    this.send(PUBLISH, topic, packet, { message });
  }

  /** Ask for what is published by a topic or pattern. */
  ask(topic) {
    this.asked.add(topic);
    if (this.socket.readyState === WebSocket.OPEN) this.send(SUBSCRIBE, topic, new Uint8Array());
  }

  subscribe(topic, told) {
    const known = this.waiting.has(topic);
    if (!known) this.waiting.set(topic, new Set());
    if (told) this.waiting.get(topic).add(told);
    if (!known) this.ask(topic);
  }

  /** The retained packet of a topic, as soon as there is one. */
  async value(topic, seconds) {
    if (this.values.has(topic)) return this.values.get(topic);
    return new Promise((resolve, reject) => {
      wait(seconds).then(() => reject(new Error(`There was no ${topic} in time.`)));
      this.subscribe(topic, resolve);
    });
  }

  close() {
    this.socket.close();
  }
}

/** One device in one game. `trust` has the public keys in base64 and the partition; `obtain` asks the issuer. */
export class Player {
  constructor(bus, trust, game, { machineOf, position, obtain, handOverMode = "position", told = () => {} }) {
    Object.assign(this, { bus, trust, game, machineOf, position, obtain, handOverMode, told, came: [], wake: () => {}, sending: new Set() });
    // Within a game a clock that is not set.
    this.zero = Date.now() - performance.now();
  }

  /** Seconds since 1970. */
  clock() {
    return (this.zero + performance.now()) / 1000;
  }

  /** What the board, or whichever key is given, has said; the signature is checked on the bytes that came. */
  async statement(kind, seconds, { name, key = this.trust.board, context } = {}) {
    const topic = topicOf(this.game, kind, name);
    return this.read(kind, topic, await this.bus.value(topic, seconds), key, context);
  }

  async read(kind, topic, { version, body, signature }, key = this.trust.board, context = topic) {
    if (version !== VERSION) {
      const who = version > VERSION ? "update this page: reload it" : "its sender has to update";
      throw new Error(`This is protocol version ${version}, and this page understands version ${VERSION}: ${who}.`);
    }
    if (!(await verify(fromBase64(key), signature, signedBytes(context, body)))) {
      throw new Error(`The signature of ${kind} is not by the key that it should be by.`);
    }
    const message = readCbor(body);
    if (!fits(SHAPES[kind], message)) throw new Error(`Not a message ${kind}.`);
    return { message, hash: await hashOf(topic, body) };
  }

  /** Whether the board has said that it has this device's join or report: public, whatever was reported. */
  async isHeard(sequence) {
    const topic = topicOf(this.game, "heard", this.machine.owner.place.region);
    const found = this.bus.values.get(topic);
    if (!found) return false;
    try {
      const { message } = await this.read("heard", topic, found);
      return message.sequence === sequence && split(message.tags, 8).some((tag) => equal(tag, this.tag));
    } catch {
      return false;
    }
  }

  /** Publish a message at the times, in seconds since 1970, that `timesBy` gives for when it is signed. */
  async publish(topic, message, timesBy, sequence = null) {
    const body = writeCbor(message);
    const packet = packetOf(topic.split("/")[3], body, await this.signer.sign(signedBytes(topic, body)));
    for (const time of timesBy(this.clock())) {
      await wait(time - this.clock());
      if (sequence !== null && (await this.isHeard(sequence))) return;
      // Without a connection this copy is lost: also where a game that ended early, as with a spent budget, has closed it.
      if (this.bus.socket.readyState !== WebSocket.OPEN) continue;
      this.bus.publish(topic, packet, message);
    }
  }

  /** Publish in each share of a window that began at a time, at the offset that the machine drew, until it is heard. */
  later(topic, message, shares, offset, began, window, sequence = null) {
    const sent = this.publish(topic, message, (now) => sendingTimes(shares, offset, began, window, now), sequence);
    this.sending.add(sent);
    sent.catch(() => {}).then(() => this.sending.delete(sent));
  }

  /** Play until there is a result; return {resource, report, table, epsilon}. */
  async play() {
    this.opened = await this.statement("open", 600);
    const open = this.opened.message;
    const issuer = await this.statement("issuer", 60, { key: this.trust.issuer });
    if (!equal(issuer.message.key, open.issuer)) throw new Error("The board's issuer key is not the issuer's: do not play.");
    this.signer = await newSigner();
    const token = await newToken(open.issuer, this.game, this.signer.key, this.obtain);
    this.tag = await tagOf(this.game, this.signer.key);
    this.machine = await this.machineOf(hex(this.tag), open.protocol);
    this.resource = null;
    this.code = "";
    this.bus.subscribe(topicOf(this.game, "heard", this.machine.owner.place.region));
    const began = this.clock();
    const [send] = await this.take(this.openRecord(open), this.opened.hash);
    if (!send) return { left: true };
    const number = await this.joins(open, send.message, token, send.offset, began);
    await this.tables(open, send.message, number);
    await (open.protocol === "report" ? this.reported(open) : this.slots(open));
    return { resource: this.resource, code: this.code, report: this.machine.report, table: this.machine.table, epsilon: this.machine.epsilon };
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
      kind: "open", version: VERSION, game: this.game, protocol: open.protocol, classes: open.classes, resources: hex(open.resources),
      partition: open.partition, start: open.start / 1000, slot: open.slot,
      slots: open.slots, step: open.step, patience: open.patience, slack: open.slack, growth: open.growth,
    };
  }

  async joins(open, joined, token, offset, began) {
    const number = open.classes.indexOf(joined.epsilon);
    const message = {
      token, key: this.signer.key, region: joined.region, epsilon_class: number,
    };
    const left = Math.max(open.joins_close / 1000 - began, 0);
    this.told("joins", joined);
    this.later(topicOf(this.game, "join"), message, COPIES, offset, began, left, JOIN);
    this.roster = await this.statement("roster", left + 120);
    const named = this.roster.message.regions.find(({ region }) => region === joined.region);
    if (!named) throw new Error("The roster does not have this device's square: it may be too far away, or the join too late.");
    const listed = await this.statement("members", 60, { name: joined.region });
    if (!equal(named.members, listed.hash)) throw new Error("The list of members is not the one that the roster names.");
    const tags = split(listed.message.tags, 8);
    const counted = open.classes.map((_, own) => listed.message.classes.filter((one) => one === own).length);
    if (tags.length !== listed.message.classes.length || `${named.counts}` !== `${counted}`) {
      throw new Error("The roster's counts are not those of the list of members.");
    }
    const place = tags.findIndex((tag) => equal(tag, this.tag));
    if (place < 0 || listed.message.classes[place] !== number) throw new Error("The roster does not have this device.");
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
    await this.take({ kind: "roster", game: this.game, counts }, hex(this.roster.hash) + hex(listed.hash));
    const table = await this.statement("table", 60, { name: `${joined.region}~${number}` });
    // Before the device decides: a subscription that had to wait for that would tell how long it took.
    if (open.protocol === "report") {
      for (const topic of [topicOf(this.game, "result"), topicOf(this.game, "transcript", joined.region)]) this.bus.subscribe(topic);
    } else {
      this.bus.subscribe(topicOf(this.game, "bulletin", joined.region), (found) => {
        // Beyond that the oldest is dropped, as if it had been lost.
        if (this.came.push(found) > MOST_BULLETINS) this.came.shift();
        this.wake();
      });
    }
    // Before the window begins: to look through a table can take longer than the margin.
    const record = tableRecord(this.game, table.message);
    await this.machine.prepare(record, hex(table.hash));
    this.began = Math.max(open.start / 1000, this.clock());
    // A table that came late leaves less of the slot of the reports; half of one at least, to decide and write in.
    const left = Math.max(open.start / 1000 + open.slot - this.began, open.slot / 2);
    const sends = await this.take(record, table.hash);
    this.told("table", this.machine.table);
    this.say(sends, left);
  }

  /** Send reports and bids within a window; return the hand-overs. */
  say(sends, window) {
    for (const { message, offset } of sends) {
      if (message.kind !== "handover") this.told("sends", message);
      if (message.kind === "report") {
        const told = { sequence: message.sequence, tag: this.tag, channel: fromHex(message.channel), report: message.report };
        this.later(topicOf(this.game, "report"), told, COPIES, offset, this.began, window, REPORT);
      } else if (message.kind === "bid") {
        const told = { sequence: message.sequence, tag: this.tag, offer: new Float(message.offer) };
        this.later(topicOf(this.game, "bid", message.resource), told, ONE_COPY, offset, this.began, window);
      }
    }
    return sends.filter(({ message: { kind } }) => kind === "handover");
  }

  async reported(open) {
    const patience = Math.max(open.start / 1000 - this.clock(), 0) + open.slot * open.slots + 600;
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
    let heard = this.began;
    while (!this.machine.done && !this.machine.left) {
      if (!this.came.length) await Promise.race([new Promise((resolve) => (this.wake = resolve)), wait(4 * open.slot)]);
      const found = this.came.shift();
      if (!found && this.clock() > heard + SILENCE) throw new Error(`The board has said nothing for ${SILENCE} s.`);
      if (!found) continue;
      heard = this.clock();
      const { message, hash } = await this.read("bulletin", topic, found);
      // Before the machine decides: how long it takes must not show in when its message leaves.
      this.began = Math.max(open.start / 1000, this.clock());
      const handovers = this.say(await this.take(bulletinRecord(this.game, message), hash), open.slot);
      // Not before that has left: the next decision would delay it by as long as it takes.
      await Promise.all(this.sending);
      if (handovers.length) {
        // A vehicle serves the agent that the result names.
        await this.statement("result", open.slot * open.slots + 600);
        await this.handOver(handovers);
      }
    }
    // The connection ends with the game.
    await wait(this.began + marginOf(open.slot) - this.clock());
  }

  /** Hand over to the resource that the device got, if it got one. */
  async handOver([send]) {
    if (!send) return;
    const { resource } = send.message;
    this.resource = resource;
    const found = await this.statement("resource", 60, { name: resource, key: this.trust.operator, context: "certificate" });
    const gone = (this.trust.removed ?? []).some(({ name, until }) => name === resource && found.message.until <= until);
    if (gone || found.message.name !== resource || found.message.until < 1000 * this.clock()) throw new Error("The resource's certificate is not valid.");
    const topic = topicOf(this.game, "handover", resource);
    let sealed;
    if (this.handOverMode === "none" || found.message.handover === "none") {
      const secret = newSecret();
      this.code = await reservationCode(secret, topic, this.tag);
      sealed = await sealSecret(found.message.sealing, topic, this.tag, secret);
    } else {
      sealed = await sealPosition(found.message.sealing, topic, this.tag, ...this.position);
    }
    this.told("handover", { resource });
    await this.publish(topic, { key: this.signer.key, sealed }, (now) => [now, now + 1, now + 2]);
  }
}

function tableRecord(game, table) {
  const { channel, region, epsilon, resources, listed } = table;
  if (!channel) throw new Error("This game has no reports: a browser cannot play it.");
  const width = resources.length, values = split(unpack("d", channel.values), width);
  return {
    kind: "table", game, region, epsilon, resources, listed: listed && listedRecord(listed), cell_of: unpack("I", channel.cell_of),
    chances: split(unpack("Q", channel.chances), values.length), values, opening: unpack("d", channel.opening),
    earlier: channel.earlier.map((item) => ({ channel: hex(item.channel), values: split(unpack("d", item.values), width) })),
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
  const names = transcript.resources;
  const [region, channel, report, place] = [["I", "region"], ["i", "channel"], ["i", "reports"], ["i", "assigned"]]
    .map(([code, field]) => unpack(code, transcript[field]));
  const tags = split(transcript.tags, 8), prices = unpack("d", transcript.prices);
  const columns = [region, channel, report, place, transcript.epsilon_class];
  if (columns.some((column) => column.length !== tags.length) || prices.length !== names.length) {
    throw new Error("The transcript does not have one line for each agent and one price for each resource.");
  }
  const assigned = tags.flatMap((tag, row) => (report[row] < 0 || channel[row] < 0 ? [] : [{
    tag: hex(tag), region: roster.regions[region[row]].region, epsilon: open.classes[transcript.epsilon_class[row]],
    channel: hex(transcript.channels[channel[row]]), report: report[row], resource: place[row] < 0 ? null : names[place[row]],
  }]));
  return { kind: "result", game, assigned, prices: prices.map((price, row) => [names[row], price]) };
}
