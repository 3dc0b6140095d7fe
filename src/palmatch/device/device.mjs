/**
 * One device in a browser: the twin of palmatch.device for the protocols `report` and `bids`, without dependencies.
 *
 * Records come in and messages go out, as plain objects with the fields of palmatch.device.records and a `kind`. Doubles
 * are added, multiplied and compared in the order in which Python does it, so that both decide alike to the last bit; the
 * tests compare them. Whatever a board says is checked before anything is charged, and a message that depends on the
 * truth is handed out only after its charge is stored.
 */

export const VERSION = 2;
export const GRID = 2 ** 53;
const METRES_PER_DEGREE = 111195.08;
const RADIANS = 0.017453292519943295;
const LEAST_COSINE = 1e-3;
const MOST_POINTS = 1000;
const BITS = 160n;
const LARGEST_EPSILON = 37;
const UNITS = 2 ** 32;
const MOST_UNITS = 2 ** 53;
const OUTSIDE = 1e-12;
// An offer is added up of values and prices that are rounded.
const ROUNDING = 1e-9;
const MOST_SLACK = 0.01;
const MOST = { spots: 1_100_000, cells: 16384, reports: 1024, resources: 100_000, chances: 1 << 18, values: 1 << 22 };

/** Something that a device must not act on: nothing was charged and nothing was sent. */
export class Refused extends Error {
  constructor(code, message) {
    super(message);
    this.name = "Refused";
    this.code = code;
  }
}

/** The charge would pass a limit; nothing was written. */
export class BudgetExhausted extends Error {
  constructor(message) {
    super(message);
    this.name = "BudgetExhausted";
  }
}

const isWhole = (value) => Number.isSafeInteger(value) || value === GRID;
const isNumber = (value) => typeof value === "number" && Number.isFinite(value);

// The grid: palmatch.device.grid

export function checkPartition({ edge, spacing, origin: [latitude, longitude] }) {
  const lengths = isNumber(edge) && isNumber(spacing) && edge > 0 && spacing > 0;
  if (!lengths || edge / spacing > MOST_POINTS || !(Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180)) {
    throw new RangeError("Expected an edge of at most 1000 spacings, and an origin on Earth.");
  }
}

const pinned = ({ edge, spacing, origin }) => [edge, spacing, ...origin];

export function cosine(degrees) {
  const square = degrees * RADIANS * (degrees * RADIANS);
  let term = 1;
  let total = 1;
  for (let step = 1; step < 13; step++) {
    term = (term * -square) / ((2 * step - 1) * (2 * step));
    total = total + term;
  }
  return total;
}

function metresPerDegreeEast(row, edge, originLatitude) {
  let length = cosine(originLatitude + ((row + 0.5) * edge) / METRES_PER_DEGREE);
  if (!(length >= LEAST_COSINE)) length = LEAST_COSINE;
  return METRES_PER_DEGREE * length;
}

const gridPoints = (edge, spacing) => Math.ceil(edge / spacing) + 1;
const gridOffset = (point, edge, spacing) => (point < gridPoints(edge, spacing) - 1 ? point * spacing : edge);

function nearestPoint(offset, edge, spacing) {
  const last = gridPoints(edge, spacing) - 1;
  let low = Math.floor(offset / spacing);
  if (low < 0) low = 0;
  if (low > last - 1) low = last - 1;
  const below = offset - gridOffset(low, edge, spacing);
  const above = gridOffset(low + 1, edge, spacing) - offset;
  return below <= above ? low : low + 1;
}

const centreIsOnGrid = (edge, spacing) =>
  gridOffset(nearestPoint(edge / 2, edge, spacing), edge, spacing) === edge / 2;

/** How many grid points a square has, the centre included. */
export function spotsOf({ edge, spacing }) {
  const points = gridPoints(edge, spacing);
  return points * points + (centreIsOnGrid(edge, spacing) ? 0 : 1);
}

/** The square of a position and the nearest grid point in it; of two, the one further south or west. */
export function locate(partition, latitude, longitude) {
  if (!(Math.abs(latitude) <= 90 && Math.abs(longitude) <= 180)) {
    throw new RangeError("Expected a latitude between -90 and 90 and a longitude between -180 and 180.");
  }
  const { edge, spacing, origin: [south, west] } = partition;
  const row = Math.floor(((latitude - south) * METRES_PER_DEGREE) / edge);
  const perDegree = metresPerDegreeEast(row, edge, south);
  const column = Math.floor(((longitude - west) * perDegree) / edge);
  const north = (latitude - south) * METRES_PER_DEGREE - row * edge;
  const east = (longitude - west) * perDegree - column * edge;
  return { region: `${column},${row}`, spot: spotOf(east, north, edge, spacing) };
}

function spotOf(east, north, edge, spacing) {
  const pointEast = nearestPoint(east, edge, spacing);
  const pointNorth = nearestPoint(north, edge, spacing);
  const points = gridPoints(edge, spacing);
  if (!centreIsOnGrid(edge, spacing)) {
    const half = edge / 2;
    const awayEast = east - gridOffset(pointEast, edge, spacing);
    const awayNorth = north - gridOffset(pointNorth, edge, spacing);
    const centre = (east - half) * (east - half) + (north - half) * (north - half);
    if (centre < awayEast * awayEast + awayNorth * awayNorth) return points * points;
  }
  return pointEast * points + pointNorth;
}

// The resource list: palmatch.device.checks

// Nothing of a proof is hashed before its sizes fit.
const MOST_ENTRIES = 200_000;
const LONGEST_NAME = 64;
const utf8 = new TextEncoder();
const fromHex = (text) => Uint8Array.from(text.match(/../g), (pair) => parseInt(pair, 16));
const toHex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");

async function hashed(...parts) {
  const whole = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    whole.set(part, at);
    at += part.length;
  }
  return new Uint8Array(await crypto.subtle.digest("SHA-256", whole));
}

/** Refuse resources that are not shown to be on the list with this root. */
export async function checkListed(resources, listed, root) {
  if (!listed || !fits(resources, listed) || (await rootOf(resources, listed)) !== root) {
    throw new Refused("listed", "The table names a resource that it does not show to be on the list of the game.");
  }
}

function fits(resources, { size, places, hashes, positions }) {
  return (
    resources.length === places.length && resources.length >= 1 && isWhole(size) && places.length <= size &&
    size <= MOST_ENTRIES && places.every((place) => isWhole(place) && place >= 0 && place < size) &&
    new Set(places).size === places.length && resources.every(isName) && hashes.length === missing(size, places) &&
    [...hashes, positions].every((hash) => /^[0-9a-f]{64}$/.test(hash))
  );
}

// Characters, not the one or two units of each that a string counts.
const isName = (name) => name.length >= 1 && name.length <= 2 * LONGEST_NAME && [...name].length <= LONGEST_NAME;

const siblingOf = (place) => (place % 2 ? place - 1 : place + 1);

/** How many siblings do not follow from the leaves in these places: as many hashes has a proof. */
function missing(size, places) {
  let [known, count] = [new Set(places), 0];
  for (let width = size; width > 1; width = Math.ceil(width / 2)) {
    for (const place of known) count += siblingOf(place) < width && !known.has(siblingOf(place));
    known = new Set([...known].map((place) => Math.floor(place / 2)));
  }
  return count;
}

/** The root that a proof with as many hashes as it needs leads to. */
async function rootOf(resources, { size, places, hashes, positions }) {
  const order = [...places.keys()].sort((one, other) => places[one] - places[other]);
  const leaves = order.map(async (row) => [places[row], await hashed(Uint8Array.of(0), utf8.encode(resources[row]))]);
  let level = new Map(await Promise.all(leaves));
  const others = hashes.values();
  for (let width = size; width > 1; width = Math.ceil(width / 2)) {
    level = new Map(await Promise.all(above(level, width, others)));
  }
  const start = Uint8Array.of(2, size >>> 24, size >>> 16, size >>> 8, size);
  return toHex(await hashed(start, level.get(0), fromHex(positions)));
}

/** The known nodes of the level above one of this width, both from left to right. */
function above(level, width, others) {
  const found = [];
  for (const [place, own] of level) {
    const sibling = siblingOf(place);
    const parent = Math.floor(place / 2);
    if (sibling >= width) {
      found.push([parent, own]);
    } else if (sibling > place || !level.has(sibling)) {
      const other = level.get(sibling) ?? fromHex(others.next().value);
      const pair = sibling > place ? [own, other] : [other, own];
      found.push(hashed(Uint8Array.of(1), ...pair).then((node) => [parent, node]));
    }
  }
  return found;
}

// The report: palmatch.device.checks

/** A whole number over 2^160 that is at most e^epsilon, short of it by less than one part in 2^140. */
export function powerBelow(epsilon) {
  const exponent = fixedPoint(Math.min(epsilon, LARGEST_EPSILON));
  const length = exponent === 0n ? 0 : exponent.toString(2).length;
  const halvings = BigInt(Math.max(0, length - Number(BITS) + 2));
  const part = exponent >> halvings;
  let term = 1n << BITS;
  let total = term;
  for (let count = 1n; term > 0n; count++) {
    term = ((term * part) >> BITS) / count;
    total += term;
  }
  for (let done = 0n; done < halvings; done++) total = (total * total) >> BITS;
  return total;
}

/** A double of at least 0 as a whole number over 2^160, rounded down where it is finer than that. */
function fixedPoint(value) {
  const view = new DataView(new ArrayBuffer(8));
  view.setFloat64(0, value);
  const bits = view.getBigUint64(0);
  // Without the sign: -0 is 0, and passes for a number of at least 0.
  const exponent = (bits >> 52n) & 2047n;
  const mantissa = (bits & ((1n << 52n) - 1n)) | (exponent === 0n ? 0n : 1n << 52n);
  const shift = BITS + (exponent === 0n ? 1n : exponent) - 1075n;
  return shift >= 0n ? mantissa << shift : mantissa >> -shift;
}

/** Whether no report is more than e^epsilon times as likely from one cell as from another, in whole numbers. */
export function keeps(chances, epsilon) {
  const bound = powerBelow(epsilon);
  for (let report = 0; report < chances[0].length; report++) {
    let most = chances[0][report];
    let least = most;
    for (const row of chances) {
      if (row[report] > most) most = row[report];
      if (row[report] < least) least = row[report];
    }
    if (BigInt(most) << BITS > bound * BigInt(least)) return false;
  }
  return true;
}

/** Refuse a table that a device must not draw from; `epsilon` and `spots` are what the device knows itself. */
export function checkTable(table, epsilon, spots) {
  if (!(isNumber(epsilon) && epsilon >= 0)) throw new RangeError("Expected epsilon of at least 0.");
  if (table.epsilon !== epsilon) throw new Refused("epsilon", `The table is for ε = ${table.epsilon}.`);
  checkSizes(table, spots);
  for (const row of table.chances) {
    if (!row.every((chance) => isWhole(chance) && chance >= 0 && chance <= GRID)) {
      throw new Refused("range", "A chance is not a whole number between 0 and 2^53.");
    }
    if (row.reduce((sum, chance) => sum + BigInt(chance), 0n) !== BigInt(GRID)) {
      throw new Refused("sum", "The chances of a cell do not sum to 2^53.");
    }
  }
  if (!keeps(table.chances, epsilon)) {
    throw new Refused("ratio", "A report is more than e^ε times as likely from one cell as from another.");
  }
  for (const values of [table.values, ...table.earlier.map((earlier) => earlier.values)]) {
    checkValues(values, table.resources.length);
  }
  if (!table.opening.every((price) => isNumber(price) && price >= 0)) {
    throw new Refused("price", "An opening price is not a number of at least 0.");
  }
}

function checkSizes(table, spots) {
  const [cells, reports, resources] = [table.chances.length, table.values.length, table.resources.length];
  const rows = table.earlier.reduce((sum, earlier) => sum + earlier.values.length, reports);
  const bounded =
    spots >= 1 && spots <= MOST.spots && cells >= 1 && cells <= MOST.cells && reports >= 1 &&
    reports <= MOST.reports && resources >= 1 && resources <= MOST.resources &&
    cells * reports <= MOST.chances && rows * resources <= MOST.values;
  if (!bounded) throw new Refused("size", "The table is too large, or empty.");
  const names = new Set(table.resources).size;
  if (table.cell_of.length !== spots || table.opening.length !== resources || names !== resources) {
    throw new Refused("shape", "The table does not have one cell a grid point and one price for each resource.");
  }
  if (table.chances.some((row) => row.length !== reports)) {
    throw new Refused("shape", "The table does not have one chance for each cell and report.");
  }
  if (!table.cell_of.every((cell) => isWhole(cell) && cell >= 0 && cell < cells)) {
    throw new Refused("range", "A grid point is in no cell.");
  }
}

function checkValues(values, resources) {
  if (values.some((row) => row.length !== resources)) {
    throw new Refused("shape", "The table does not have one value for each report and resource.");
  }
  if (!values.every((row) => row.every((value) => isNumber(value) && value > 0 && value <= 1))) {
    throw new Refused("value", "A value is not a number above 0 and up to 1.");
  }
}

/** The report that a draw from [0, 2^53) falls on: the only function that turns the truth into a message. */
export function drawReport(chances, draw) {
  let place = 0;
  let below = chances[0];
  while (draw >= below) {
    place += 1;
    below += chances[place];
  }
  return place;
}

/** A draw from [0, 2^53) of the operating system. */
export function systemDraw() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return (high >>> 11) * 2 ** 32 + low;
}

// When messages leave: palmatch.device.state

const MARGIN = 0.1, LAST = 0.7, LEAST_MARGIN = 0.05;
export const ONE_COPY = [[MARGIN, LAST]];
export const COPIES = [[MARGIN, 0.45], [0.55, 0.62], [0.63, LAST]];

/** How many seconds of a window a device has to decide in; nothing leaves within them. */
export const marginOf = (window) => Math.max(MARGIN * window, LEAST_MARGIN);

/**
 * When a message leaves that was decided on by `now`: in each share of a window, at the offset drawn for it. A device that
 * took so long that the first time is over is late by whole margins: no more than their number shows.
 */
export function sendingTimes(shares, offset, began, window, now) {
  const least = LEAST_MARGIN * (1 + offset);
  const times = shares.map(([first, last]) => began + Math.max(window * (first + offset * (last - first)), least));
  const margin = marginOf(window);
  const late = margin * Math.max(Math.ceil((now - times[0]) / margin), 0);
  return times.map((when) => when + late);
}

// Bids: palmatch.device.bid

/** [place, offer] of an agent with these values at these prices; the place is -1 if nothing is worth its price. */
export function bestBid(values, prices, step) {
  let best = -1;
  let second = 0;
  let wanted = -1;
  for (let place = 0; place < values.length; place++) {
    const gain = values[place] - prices[place];
    if (gain > best) {
      if (wanted >= 0) second = Math.max(second, best);
      best = gain;
      wanted = place;
    } else if (gain > second) {
      second = gain;
    }
  }
  return best < 0 ? [-1, 0] : [wanted, prices[wanted] + (best - second) + step];
}

/** {number, step, patience, growth} of a call of an auction that begins with this step, patience and growth. */
export function callNumber(number, step, patience, growth = 0) {
  let call = { number: 0, step, patience, growth };
  while (call.number < number) {
    const left = Math.max(Math.floor(call.patience / 4), 1);
    call = { number: call.number + 1, step: 2 * call.step, patience: left, growth: 2 * call.growth };
  }
  return call;
}

// The result: palmatch.device.checks

/** The line of each agent of a result; one with two lines of an agent is refused. */
function linesByTag({ assigned }) {
  const found = new Map(assigned.map((line) => [line.tag, line]));
  if (found.size !== assigned.length) throw new Refused("result", "The result has two lines of one agent.");
  return found;
}

/** Refuse a result that its prices do not support for the agents of one table; return the line of this device. */
export function checkResult(result, table, channel, { agents, slack, tag }) {
  const prices = new Map(result.prices);
  if (prices.size !== result.prices.length || ![...prices.values()].every((p) => isNumber(p) && p >= 0)) {
    throw new Refused("price", "A price is not a number of at least 0, or a resource has two.");
  }
  if (!table.resources.every((resource) => prices.has(resource))) {
    throw new Refused("price", "A resource of the region has no price.");
  }
  const got = result.assigned.map((line) => line.resource).filter((resource) => resource !== null);
  const taken = new Set(got);
  if (taken.size !== got.length || !got.every((resource) => prices.has(resource))) {
    throw new Refused("result", "A resource was given away twice, or is not among the resources.");
  }
  if (table.resources.some((resource) => !taken.has(resource) && prices.get(resource) > slack)) {
    throw new Refused("price", "A resource without an agent costs something.");
  }
  const mine = linesByTag(result).get(tag);
  const isOurs = (line) => line.region === table.region && line.epsilon === table.epsilon;
  const ours = result.assigned.filter(isOurs);
  if (!mine || !isOurs(mine)) throw new Refused("result", "The result does not name this device.");
  if (ours.length > agents) throw new Refused("roster", "The result has more agents of this region than its roster.");
  const worth = new Map([[channel, table.values], ...table.earlier.map((e) => [e.channel, e.values])]);
  checkGains(ours, table, worth, prices, slack);
  return mine;
}

function checkGains(lines, table, worth, prices, slack) {
  const place = new Map(table.resources.map((resource, number) => [resource, number]));
  const best = new Map();
  for (const { channel, report, resource } of lines) {
    const rows = worth.get(channel) ?? [];
    if (!(report >= 0 && report < rows.length)) {
      throw new Refused("result", "The result has a report that no table knows.");
    }
    const values = rows[report];
    const key = `${channel} ${report}`;
    if (!best.has(key)) {
      const gains = table.resources.map((name, number) => values[number] - prices.get(name));
      best.set(key, gains.reduce((most, gain) => Math.max(most, gain), 0));
    }
    const number = place.get(resource);
    const gain = resource === null ? 0 : (number === undefined ? OUTSIDE : values[number]) - prices.get(resource);
    if (gain < best.get(key) - slack) {
      throw new Refused("steered", "An agent with this table should have got something better at these prices.");
    }
  }
}

// The machines: palmatch.device.state

/** The fewest units of 2^-32 that cover an epsilon. */
export function unitsOf(epsilon) {
  if (!(isNumber(epsilon) && epsilon >= 0 && epsilon * UNITS <= MOST_UNITS)) {
    throw new RangeError("Expected epsilon between 0 and 2^21.");
  }
  return Math.ceil(epsilon * UNITS);
}

const ONCE = ["open", "roster", "table"];

/** The report that a request has drawn already. */
function keptReport(kept, place) {
  const [region, spot, channel, report] = JSON.parse(kept);
  if (region !== place.region || spot !== place.spot) {
    throw new RangeError("The request was made from another place; make a new request.");
  }
  return { channel, report };
}

/**
 * A device in a game of `report`. `owner` has request, place, partition, spots, epsilon, tag and when_spent; `store` has charge, kept, pin and remaining (`openLedger` makes one); `draw` gives a number in [0, 2^53), `offset` one in [0, 1).
 */
export class ReportMachine {
  static async start(owner, store, { draw = systemDraw, offset = () => systemDraw() / GRID } = {}) {
    checkPartition(owner.partition);
    const machine = new this(owner, store, draw, offset);
    await store.pin("partition", JSON.stringify(pinned(owner.partition)));
    const kept = await store.kept(`request ${owner.request}`);
    if (kept !== null) machine.drawn = keptReport(kept, owner.place);
    return machine;
  }

  constructor(owner, store, draw, offset) {
    Object.assign(this, { owner, store, draw, offset, protocol: "report", epsilon: 0, left: false, done: false });
    Object.assign(this, { seen: new Map(), open: null, count: null, table: null, drawn: null, prepared: null, queue: Promise.resolve() });
  }

  /** Take one record with the digest of its bytes; the messages to send, each with its share of a slot. */
  receive(record, digest) {
    // One record after the other: the store answers later, and nothing may be decided twice in between.
    const turn = this.queue.then(() => this.receiveNext(record, digest));
    this.queue = turn.catch(() => undefined);
    return turn;
  }

  async receiveNext(record, digest) {
    if (this.left || this.done) return [];
    // Drawn first, for every record alike: when a message leaves says nothing about what was decided.
    const offset = this.offset();
    if (ONCE.includes(record.kind) && this.seen.has(record.kind)) {
      if (this.seen.get(record.kind) !== digest) {
        throw new Refused("announcement", `A second ${record.kind} of game ${record.game}.`);
      }
      return [];
    }
    const messages = await this.take(record, digest);
    this.seen.set(record.kind, digest);
    return messages.map((message) => ({ message, offset }));
  }

  async take(record, digest) {
    switch (record.kind) {
      case "open":
        return this.announced(record);
      case "roster":
        return this.settled(record);
      case "table":
        return this.given(record, digest);
      case "bulletin":
        return this.bulletin(record, digest);
      case "result":
        return this.result(record);
      default:
        throw new Refused("protocol", "A record of an unknown kind.");
    }
  }

  async announced(open) {
    if (open.version !== VERSION) throw new Refused("version", `The board speaks version ${open.version}; update.`);
    if (open.protocol !== this.protocol) throw new Refused("protocol", `The game is played by ${open.protocol}.`);
    const known = pinned(this.owner.partition);
    const same = pinned(open.partition).every((value, place) => value === known[place]);
    if (!same) throw new Refused("partition", "The game has another partition than the one that this device knows.");
    const added = isNumber(open.step) && open.step > 0 && isNumber(open.growth) && open.growth >= 0;
    if (!(isNumber(open.slack) && open.slack >= 0 && open.slack <= MOST_SLACK && added)) {
      throw new Refused("range", "The game's step or slack is out of range.");
    }
    if (!(open.slot >= LEAST_MARGIN)) {
      throw new Refused("range", `The game's slots are shorter than the ${LEAST_MARGIN} s in which a device decides.`);
    }
    let wanted = this.owner.epsilon;
    if (this.drawn === null && (await this.store.remaining()) < unitsOf(wanted)) {
      if (this.owner.when_spent === "leave") {
        this.left = true;
        return [];
      }
      wanted = 0;
    }
    if (!open.classes.includes(wanted)) throw new Refused("epsilon", `The game has no place for ε = ${wanted}.`);
    this.open = open;
    this.epsilon = wanted;
    return [{ kind: "join", game: open.game, region: this.owner.place.region, epsilon: wanted }];
  }

  settled(roster) {
    this.inGame(roster.game);
    const mine = roster.counts.filter((c) => c.region === this.owner.place.region && c.epsilon === this.epsilon);
    if (mine.length !== 1 || mine[0].agents < 1) throw new Refused("roster", "The roster does not count this agent once.");
    this.count = mine[0];
    return [];
  }

  /** Check a table without acting on it: what that takes is public, and `receive` does not take it again. */
  async prepare(table, digest) {
    const open = this.inGame(table.game);
    if (this.count === null) throw new Refused("roster", "A table came before its roster.");
    if (digest !== this.count.table || table.region !== this.owner.place.region) {
      throw new Refused("hash", "The table is not the one that the roster announced.");
    }
    await checkListed(table.resources, table.listed, open.resources);
    checkTable(table, this.epsilon, this.owner.spots);
    this.prepared = { table, digest };
  }

  async given(table, digest) {
    if (this.prepared?.table !== table || this.prepared.digest !== digest) await this.prepare(table, digest);
    if (this.drawn === null && this.epsilon > 0) this.drawn = await this.drawOnce(table, digest);
    this.table = table;
    const { channel, report } = this.drawn ?? { channel: digest, report: 0 };
    const rows = channel === digest ? table.values : table.earlier.find((e) => e.channel === channel)?.values ?? [];
    if (!(report >= 0 && report < rows.length)) {
      throw new Refused("channel", "The table does not say what the report of this request is worth.");
    }
    Object.assign(this, { channel, report, values: rows[report] });
    return this.told();
  }

  /** Draw the report of this request; it is returned once it is stored with its charge. */
  async drawOnce(table, digest) {
    if (table.values.length === 1) return { channel: digest, report: 0 };
    const { request, place } = this.owner;
    const report = drawReport(table.chances[table.cell_of[place.spot]], this.draw());
    const kept = JSON.stringify([place.region, place.spot, digest, report]);
    const name = `request ${request}`;
    try {
      await this.store.charge(unitsOf(this.epsilon), table.game, "report", { [name]: kept }, true);
    } catch (error) {
      if (!(error instanceof Refused)) throw error;
      // Another tab of the same owner was faster: its report is that of the request, and is paid.
      return keptReport(await this.store.kept(name), place);
    }
    return { channel: digest, report };
  }

  told() {
    const { tag } = this.owner;
    return [{ kind: "report", game: this.table.game, sequence: 0, tag, channel: this.channel, report: this.report }];
  }

  bulletin(record) {
    this.inGame(record.game);
    return [];
  }

  result(record) {
    const open = this.inGame(record.game);
    if (this.count === null || this.table === null) throw new Refused("result", "A result came before its table.");
    if (!linesByTag(record).has(this.owner.tag)) {
      // The report has not arrived: the device goes without, and nothing more is told.
      this.done = true;
      return [];
    }
    const facts = { agents: this.count.agents, slack: open.slack, tag: this.owner.tag };
    const mine = checkResult(record, this.table, this.seen.get("table"), facts);
    if (mine.channel !== this.channel || mine.report !== this.report) {
      throw new Refused("result", "The result has another report of this device than the one that it sent.");
    }
    this.done = true;
    return this.handover(mine.resource);
  }

  handover(resource) {
    return resource === null ? [] : [{ kind: "handover", game: this.open.game, tag: this.owner.tag, resource }];
  }

  inGame(name) {
    if (this.open === null || this.open.game !== name) {
      throw new Refused("game", `A record of game ${name}, which this device did not join.`);
    }
    return this.open;
  }
}

/** A device in a game of `bids`: the report stays on it, and it bids at posted prices, slot by slot. */
export class BidMachine extends ReportMachine {
  constructor(owner, store, draw, offset) {
    super(owner, store, draw, offset);
    Object.assign(this, { protocol: "bids", last: null, offered: null, held: null });
  }

  told() {
    return [];
  }

  bulletin(record, digest) {
    const open = this.inGame(record.game);
    if (this.table === null) throw new Refused("hash", "A bulletin came before its table.");
    if (this.last !== null && record.sequence <= this.last.record.sequence) {
      if (record.sequence === this.last.record.sequence && digest !== this.last.digest) {
        throw new Refused("announcement", `A second bulletin ${record.sequence} of game ${record.game}.`);
      }
      return [];
    }
    this.checkBulletin(record);
    this.held = this.holding(record, this.stepOf(record, open));
    this.last = { record, digest };
    if (record.over) {
      this.done = true;
      return this.handover(this.held);
    }
    return this.held === null ? this.bid(record, open) : [];
  }

  checkBulletin(record) {
    const count = this.table.resources.length;
    if (record.region !== this.table.region || record.prices.length !== count || record.holders.length !== count) {
      throw new Refused("shape", "The bulletin does not have one price and one holder for each resource.");
    }
    if (!record.prices.every((price) => price === null || (isNumber(price) && price >= 0))) {
      throw new Refused("price", "A price is not a number of at least 0.");
    }
    if (!(record.call >= 0 && record.call <= record.sequence)) {
      throw new Refused("sequence", "The bulletin's call is out of range.");
    }
    if (record.sequence > this.inGame(record.game).slots) {
      throw new Refused("sequence", `Bulletin ${record.sequence} is after the announced end of game ${record.game}.`);
    }
    if (this.last === null) return;
    const before = this.last.record;
    if (record.sequence === before.sequence + 1 && record.previous !== this.last.digest) {
      throw new Refused("chain", "The bulletin does not follow the one before.");
    }
    const pairs = before.prices.map((old, place) => [old, record.prices[place]]);
    const back = pairs.some(([old, price]) => old === null && price !== null);
    const falls = pairs.some(([old, price]) => old !== null && price !== null && price < old);
    if (back || record.call < before.call || (falls && record.call === before.call)) {
      throw new Refused("price", "A price fell within a call, or something that was sold is offered again.");
    }
  }

  stepOf(record, open) {
    const call = callNumber(record.call, open.step, open.patience, open.growth);
    return call.step + call.growth * record.sequence;
  }

  /** The resource that this device holds, which must be one that it has bid for. */
  holding(record, step) {
    const held = record.holders.flatMap((tag, place) => (tag === this.owner.tag ? [place] : []));
    if (!held.length) return null;
    if (held.length > 1) throw new Refused("holder", "The bulletin says that this device holds two resources.");
    const [place] = held;
    const [resource, price] = [this.table.resources[place], record.prices[place]];
    // After a restart the offer is not known any more: it was at most the value and a step, which never falls.
    const known = this.offered === null
      ? price === null || price <= this.values[place] + step + ROUNDING
      : resource === this.offered.resource && (price === null || price === this.offered.offer);
    if (!known && resource !== this.held) {
      throw new Refused("holder", "The bulletin says that this device holds something that it did not bid for.");
    }
    return resource;
  }

  bid(record, open) {
    const prices = record.prices.map((price) => (price === null ? Infinity : price));
    const [place, offer] = bestBid(this.values, prices, this.stepOf(record, open));
    if (place < 0) return [];
    this.offered = { resource: this.table.resources[place], offer };
    return [{ kind: "bid", game: record.game, sequence: record.sequence + 1, tag: this.owner.tag, ...this.offered }];
  }
}

// The ledger

const PAGE = crypto.getRandomValues(new Uint32Array(4)).join("-");

/** What a page knows of the time, in whole seconds: of the day, which can be set, and since it was loaded, which cannot. */
export function pageClock() {
  return { time: Math.floor(Date.now() / 1000), boot: PAGE, uptime: Math.floor(performance.now() / 1000) };
}

/** Seconds that have passed for sure between two charges, whatever the time of day was set to; as in `ledger.py`. */
function elapsed(since, now) {
  if (now.boot === since.boot && now.uptime >= since.uptime) return now.uptime - since.uptime;
  return Math.max(0, Math.min(now.uptime, now.time - since.time));
}

/**
 * The rules of the budget, over any store of (total, rows): `transact` runs a function on a draft {spent, charges, kept}
 * and stores the draft, or nothing if it throws; it resolves only when the draft is stored for good. In any window of
 * `periodSeconds` at most `perPeriod` units are spent; limits that were in force stay, unless smaller ones are given.
 */
export class Ledger {
  constructor(lifetime, transact, { perPeriod = Infinity, periodSeconds = 86400, clock = pageClock } = {}) {
    if (!(isWhole(lifetime) && lifetime >= 0)) throw new RangeError("Expected a lifetime in whole units.");
    if (!(perPeriod === Infinity || (isWhole(perPeriod) && perPeriod >= 0)) || !(isWhole(periodSeconds) && periodSeconds > 0)) {
      throw new RangeError("Expected a period of whole seconds, and whole units for each.");
    }
    Object.assign(this, { lifetime, transact, perPeriod, periodSeconds, clock });
  }

  /** The limits in force, and [spent, left] under each of them; a period counts from the last charge's age on. */
  standing(state) {
    const now = this.clock();
    const age = state.last ? state.last.age + elapsed(state.last, now) : 0;
    const limits = {
      lifetime: Math.min(this.lifetime, state.lifetime ?? this.lifetime),
      perPeriod: Math.min(this.perPeriod, state.perPeriod ?? this.perPeriod),
      periodSeconds: Math.max(this.periodSeconds, state.periodSeconds ?? this.periodSeconds),
    };
    // By whole seconds: what seems to be a period old may be younger, and still counts.
    const recent = state.charges.filter((charge) => (charge.age ?? 0) >= age - limits.periodSeconds);
    const [spent, lately] = [state.spent, recent.reduce((sum, charge) => sum + charge.units, 0)];
    const left = { lifetime: Math.max(0, limits.lifetime - spent), period: Math.max(0, limits.perPeriod - lately) };
    return { last: { ...now, age }, limits, spent: { lifetime: spent, period: lately }, left };
  }

  /** Write a charge and what is kept with it; with `once`, refuse a name that another tab has charged for meanwhile. */
  charge(units, matching, purpose, keep = {}, once = false) {
    return this.transact((state) => {
      if (once && Object.keys(keep).some((name) => name in state.kept)) {
        throw new Refused("kept", "Another tab has charged for this already.");
      }
      if (!(isWhole(units) && units >= 0)) throw new RangeError("Expected a charge in whole units.");
      const { last, limits, spent, left } = this.standing(state);
      for (const limit of ["lifetime", "period"]) {
        if (units > left[limit]) {
          throw new BudgetExhausted(
            `The ${limit} budget is exhausted: ε = ${spent[limit] / UNITS} is spent and ${left[limit] / UNITS} remains, ` +
              `but ${units / UNITS} was requested.`,
          );
        }
      }
      Object.assign(state, { spent: state.spent + units, ...limits, last });
      state.charges.push({ time: last.time, age: last.age, matching, purpose, units });
      Object.assign(state.kept, keep);
    });
  }

  kept(name) {
    return this.transact((state) => state.kept[name] ?? null);
  }

  async pin(name, value) {
    const known = await this.transact((state) => (state.kept[name] ??= value));
    if (known !== value) throw new Refused(name, `Found another ${name} than the one that the ledger knows, refused.`);
  }

  remaining() {
    return this.transact((state) => Math.min(...Object.values(this.standing(state).left)));
  }
}

const blank = () => ({ spent: 0, charges: [], kept: {} });

/** A ledger in memory, for simulations and tests. */
export function memoryLedger(lifetime, limits = {}) {
  let stored = structuredClone(blank());
  return new Ledger(lifetime, async (work) => {
    const draft = structuredClone(stored);
    const answer = work(draft);
    stored = draft;
    return answer;
  }, limits);
}

/**
 * A ledger in the browser's IndexedDB. A Web Lock keeps other tabs out while a charge is checked and written, and a
 * transaction of strict durability is complete only when the system has it on the disk.
 */
export async function openLedger(name, lifetime, { indexedDB = globalThis.indexedDB, locks = navigator.locks, ...limits } = {}) {
  const database = await new Promise((resolve, reject) => {
    const request = indexedDB.open(`palmatch ${name}`, 1);
    request.onupgradeneeded = () => request.result.createObjectStore("ledger");
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
  const transact = (work) => locks.request(`palmatch ${name}`, () => inDatabase(database, work));
  return new Ledger(lifetime, transact, limits);
}

function inDatabase(database, work) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction("ledger", "readwrite", { durability: "strict" });
    const store = transaction.objectStore("ledger");
    let answer;
    let failure = null;
    const read = store.get("state");
    read.onsuccess = () => {
      const draft = read.result ?? blank();
      try {
        answer = work(draft);
        store.put(draft, "state");
      } catch (error) {
        failure = error;
        transaction.abort();
      }
    };
    transaction.oncomplete = () => resolve(answer);
    transaction.onabort = () => reject(failure ?? transaction.error);
  });
}
