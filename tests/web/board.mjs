// Plays games between bus.mjs and a board, its issuer and its hub in this process, by a virtual clock: time passes only
// where somebody waits or is said to think. Writes what left the page, and when; test_page_player.py looks at it.
import { constants, createHash, generateKeyPairSync, privateDecrypt } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";

const [folder, input, output] = process.argv.slice(2);

// The clock, in milliseconds. Keys and hashes are computed on other threads: time stands still until they are done.
const BEGAN = 1_700_000_000_000;
let now = 0, pending = 0, number = 0;
const timers = new Map();
performance.now = () => now;
Date.now = () => BEGAN + now;
const at = (when, work) => timers.set(++number, { when, work });
// A delay that does not fit is 0, as in browsers.
globalThis.setTimeout = (work, delay) => at(now + (delay > 0 && delay < 2 ** 31 ? delay : 0), work);
for (const name of ["digest", "sign", "verify", "importKey", "exportKey", "generateKey", "deriveBits", "encrypt"]) {
  const work = crypto.subtle[name].bind(crypto.subtle);
  crypto.subtle[name] = (...args) => {
    pending++;
    return work(...args).finally(() => pending--);
  };
}
const turn = () => new Promise((resolve) => setImmediate(resolve));

async function until(ended) {
  while (!ended()) {
    await turn();
    await turn();
    if (pending || ended()) continue;
    const [[timer, { when, work }] = []] = [...timers].sort(([one, a], [two, b]) => a.when - b.when || one - two);
    if (timer === undefined) throw new Error("everybody waits");
    timers.delete(timer);
    now = Math.max(now, when);
    work();
  }
}

// What the board writes.
const sha = (...parts) => createHash("sha256").update(Buffer.concat(parts.map((part) => Buffer.from(part)))).digest();
const head = (kind, count) => {
  const found = Buffer.alloc(5);
  found[0] = kind * 32 + 26;
  found.writeUInt32BE(count, 1);
  return found;
};
function cbor(value) {
  if (typeof value === "boolean") return Buffer.of(value ? 0xf5 : 0xf4);
  if (value === null) return Buffer.of(0xf6);
  if (typeof value === "number") {
    const found = Buffer.alloc(9, 0xfb);
    found.writeDoubleBE(value, 1);
    return found;
  }
  if (typeof value === "string") return Buffer.concat([head(3, Buffer.byteLength(value)), Buffer.from(value)]);
  if (value instanceof Uint8Array) return Buffer.concat([head(2, value.length), value]);
  if (Array.isArray(value)) return Buffer.concat([head(4, value.length), ...value.map(cbor)]);
  const known = Object.entries(value).filter(([, inner]) => inner !== undefined);
  return Buffer.concat([head(5, known.length), ...known.flatMap(([name, inner]) => [cbor(name), cbor(inner)])]);
}
const pack = (Type, ...numbers) => new Uint8Array(new Type(numbers).buffer);

class Socket {
  static OPEN = 1;
  constructor() {
    Object.assign(this, { readyState: 1 });
    hub.socket = this;
    queueMicrotask(() => this.onopen());
  }
  send(frame) {
    const end = 3 + 256 * frame[1] + frame[2];
    const packet = frame.slice(end);
    hub.take({ op: frame[0], topic: new TextDecoder().decode(frame.slice(3, end)), body: packet.length ? readCbor(packet)[1] : null });
  }
}
globalThis.WebSocket = Socket;
let hub;
const SUBSCRIBE = 3, MESSAGE = 7;

const device = await import(`${folder}/device.mjs`);
const { Bus, Player, topicOf } = await import(`${folder}/static/bus.mjs`);
const { readCbor } = await import(`${folder}/static/cbor.mjs`);
const { base64, fromHex, hex, newSigner, signedBytes, tagOf } = await import(`${folder}/static/keys.mjs`);

const GAME = "game", EPSILON = 1.1, NAME = "v1", POSITIONS = new Uint8Array(32);
const PARTITION = { edge: 1000, spacing: 1000, origin: [41, -74] };
const HERE = device.locate(PARTITION, 40.7484, -73.9857), SPOTS = device.spotsOf(PARTITION);
const ROOT = sha([2, 0, 0, 0, 1], sha([0], NAME), POSITIONS);
const OFTEN = 3n * 2n ** 51n, RARELY = 2n ** 51n;
const rsa = generateKeyPairSync("rsa", { modulusLength: 2048, publicExponent: 65537 });
const [board, issuer, operator] = [await newSigner(), await newSigner(), await newSigner()];

/**
 * One game. `open` and `lies` change what the board says; `slot`, `bulletins` (milliseconds after the start) and `heard`
 * what it does; `serves` is the sealing key of a vehicle that the device gets, with the hand-over of its certificate, and `mine`
 * the device's own; `checks` and `thinks` are the milliseconds that the device takes for a table, and to decide on each record.
 */
async function played({ protocol, slot = 2, start = 8000, open = {}, lies = {}, bulletins = [], heard = null, version = device.VERSION, serves = null, mine,
  checks = 0, thinks = {}, offset = 0.5 }) {
  timers.clear();
  now = 0;
  const sent = [], values = new Map(), asked = new Set();
  const deliver = (topic) => queueMicrotask(() => hub.socket.onmessage({ data: values.get(topic) }));
  const publish = async (kind, message, { name, signer = board, context, forged = false } = {}) => {
    const topic = topicOf(GAME, kind, name), body = new Uint8Array(cbor(message));
    const signature = await signer.sign(signedBytes(context ?? topic, body));
    if (forged) signature[0] ^= 1;
    const where = Buffer.from(topic);
    const packet = Buffer.concat([Buffer.of(0x84), Buffer.of(version), cbor(body), cbor(signature), cbor(new Uint8Array())]);
    values.set(topic, new Uint8Array(Buffer.concat([Buffer.of(MESSAGE, where.length >> 8, where.length & 255), where, packet])));
    if (asked.has(topic)) deliver(topic);
    return sha(signedBytes(topic, body));
  };
  let joined = null, reported = null, handed = null;
  hub = {
    take({ op, topic, body }) {
      const kind = topic.split("/")[3];
      if (op === SUBSCRIBE) {
        asked.add(topic);
        if (values.has(topic)) deliver(topic);
        return;
      }
      const said = readCbor(body);
      sent.push([kind, now / 1000, said.sequence ?? null]);
      if (kind === "join") joined ??= said;
      if (kind === "report") reported ??= said;
      if (kind === "handover") handed ??= said;
    },
  };

  const opened = await publish("open", {
    protocol, method: "once", classes: [0, EPSILON], partition: { edge: 1000, spacing: 1000, origin: [41, -74] },
    joins_close: BEGAN + 6000, start: BEGAN + start, slot, slots: 100, issuer: new Uint8Array(rsa.publicKey.export({ type: "spki", format: "der" })),
    resources: ROOT, commitment: ROOT, step: 0.03, patience: 100, slack: 1e-9, growth: 0, ...open,
  });
  await publish("issuer", { key: new Uint8Array(rsa.publicKey.export({ type: "spki", format: "der" })) }, { signer: issuer });

  async function closeJoins() {
    if (!joined) return publish("roster", { opened, randomness: ROOT, regions: [] });
    const tags = await tagOf(GAME, joined.key), { region } = HERE;
    const members = await publish("members", { region, tags, classes: Uint8Array.of(1), ...lies.members }, { name: region });
    const regions = [{ region, counts: [0, 1], members, ...lies.count }];
    const roster = await publish("roster", { opened, randomness: ROOT, regions });
    const table = await publish("table", {
      region, epsilon_class: 1, epsilon: EPSILON, roster, resources: [NAME], rounds: null,
      listed: { size: 1, places: pack(Uint32Array, 0), hashes: new Uint8Array(), positions: POSITIONS },
      channel: {
        cell_of: pack(Uint32Array, ...Array.from({ length: SPOTS }, (_, spot) => spot % 2)), chances: pack(BigUint64Array, OFTEN, RARELY, RARELY, OFTEN),
        values: pack(Float64Array, 0.8, 0.5), opening: pack(Float64Array, 0), earlier: [],
      },
    }, { name: `${region}~1` });
    await publish("tables", { roster, tables: [{ region, epsilon_class: 1, table }] });
    if (protocol === "report") at(start + 1000 * slot + 1000, () => end(roster));
    let previous = opened;
    for (const [sequence, after] of bulletins.entries()) {
      at(start + after, async () => {
        const over = sequence === bulletins.length - 1;
        const said = { region, sequence, previous, holders: new Uint8Array(8), call: 0, prices: pack(Float64Array, 0), attempted: new Uint8Array(), over };
        previous = await publish("bulletin", said, { name: region });
      });
    }
  }

  async function end(roster) {
    const none = new Uint8Array(), { region } = HERE;
    const transcript = await publish("transcript", {
      method: "once", resources: [NAME], tags: none, region: none, epsilon_class: none, channels: [], channel: none, reports: none, assigned: none,
      prices: pack(Float64Array, 0), ...(serves && {
        tags: reported.tag, region: pack(Uint32Array, 0), epsilon_class: Uint8Array.of(1), channels: [reported.channel],
        channel: pack(Int32Array, 0), reports: pack(Int32Array, reported.report), assigned: pack(Int32Array, 0),
      }), ...lies.transcript,
    }, { name: region });
    if (serves) {
      const certificate = { name: NAME, signing: operator.key, sealing: fromHex(serves.sealing), until: 2 ** 50, handover: serves.handover };
      await publish("resource", certificate, { name: NAME, signer: operator, context: "certificate" });
    }
    await publish("result", { roster, matched: 0, transcripts: [{ region, transcript }], bulletins: [] });
  }

  at(6000, closeJoins);
  if (heard) {
    at(3000, async () => {
      const tags = await tagOf(GAME, joined.key);
      await publish("heard", { region: HERE.region, sequence: 0, tags }, { name: HERE.region, forged: heard === "forged" });
    });
  }

  const Machine = protocol === "report" ? device.ReportMachine : device.BidMachine;
  class Slow extends Machine {
    async prepare(...given) {
      await super.prepare(...given);
      now += checks;
    }
    async receive(record, digest) {
      const sends = await super.receive(record, digest);
      now += thinks[record.kind === "bulletin" ? `bulletin ${record.sequence}` : record.kind] ?? 0;
      return sends;
    }
  }
  const owner = { request: "ride", place: HERE, partition: PARTITION, spots: SPOTS, epsilon: EPSILON, when_spent: "leave" };
  const ledger = device.memoryLedger(2 ** 40);
  let came = null;
  (async () => {
    const bus = new Bus("ws://hub");
    await bus.ready;
    const trust = { operator: base64(operator.key), board: base64(board.key), issuer: base64(issuer.key), partition: { edge: 1000, spacing: 1000, origin: [41, -74] } };
    const player = new Player(bus, trust, GAME, {
      machineOf: (tag) => Slow.start({ ...owner, tag }, ledger, { offset: () => offset }), position: [40.7484, -73.9857], handOverMode: mine,
      obtain: async (blinded) => new Uint8Array(privateDecrypt({ key: rsa.privateKey, padding: constants.RSA_NO_PADDING }, blinded)),
    });
    return player.play();
  })().then(({ report, code }) => (came = { report, code }), ({ message }) => (came = { error: message }));
  await until(() => came !== null);
  const sealed = handed && { tag: hex(await tagOf(GAME, handed.key)), sealed: hex(handed.sealed) };
  return { sent, ended: now / 1000, spent: 2 ** 40 - (await ledger.remaining()), ...sealed, ...came };
}

const results = [];
for (const game of JSON.parse(readFileSync(input, "utf8"))) results.push(await played(game));
writeFileSync(output, JSON.stringify(results));
