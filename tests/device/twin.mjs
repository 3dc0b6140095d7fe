// Runs the cases of a file with device.mjs and writes what came of each; test_twin.py compares that with Python.
import { readFileSync, writeFileSync } from "node:fs";

const [module, input, output] = process.argv.slice(2);
const device = await import(module);

const outcome = async (work) => {
  try {
    return { value: await work() };
  } catch (error) {
    if (error instanceof device.Refused) return { refused: error.code };
    if (error instanceof device.BudgetExhausted) return { exhausted: true };
    if (error instanceof RangeError) return { input: true };
    throw error;
  }
};

async function session({ machine, owner, lifetime, draw, records, restarts }) {
  const ledger = device.memoryLedger(lifetime);
  let offsets = 0;
  const settings = { draw: () => draw, offset: () => ++offsets / 1024 };
  const start = () => outcome(() => device[machine].start(owner, ledger, settings));
  let { value: alive, ...failed } = await start();
  const told = [];
  for (const [number, [record, digest]] of records.entries()) {
    if (restarts.includes(number)) ({ value: alive, ...failed } = await start());
    told.push(alive ? await outcome(() => alive.receive(record, digest)) : failed);
  }
  return [told, await ledger.remaining(), await ledger.kept(`request ${owner.request}`)];
}

/** How many hashes and checks of chances it takes to receive a table that was prepared, and what is left then. */
async function prepared({ owner, lifetime, draws, records }) {
  const ledger = device.memoryLedger(lifetime);
  const machine = await device.ReportMachine.start(owner, ledger, { draw: () => draws[0] });
  for (const [record, digest] of records.slice(0, -1)) await machine.receive(record, digest);
  const [[table, digest]] = records.slice(-1);
  await machine.prepare(table, digest);
  const left = await ledger.remaining();
  const other = await outcome(() => machine.receive(table, "another digest"));
  const { digest: hash } = crypto.subtle;
  let count = 0;
  crypto.subtle.digest = (...args) => (count++, hash.apply(crypto.subtle, args));
  const sends = await machine.receive(table, digest);
  crypto.subtle.digest = hash;
  return [left, other, count, sends.length, await ledger.remaining()];
}

/** What is left before each charge, and which are refused, by a ledger whose clocks are set and restarted. */
async function budget({ lifetime, limits, steps }) {
  let now = null;
  const ledger = device.memoryLedger(lifetime, { ...limits, clock: () => now });
  const found = [];
  for (const [units, ...clocks] of steps) {
    now = { time: clocks[0], boot: clocks[1], uptime: clocks[2] };
    found.push(await ledger.remaining());
    found.push(await outcome(async () => { await ledger.charge(units, "m", "pick"); return units; }));
  }
  return found;
}

/** What two tabs report that have both begun before either of them draws, and what is left. */
async function together({ owner, lifetime, draws, records }) {
  const ledger = device.memoryLedger(lifetime);
  const tabs = await Promise.all(draws.map((draw) => device.ReportMachine.start(owner, ledger, { draw: () => draw })));
  const told = [];
  for (const [record, digest] of records) {
    const sends = await Promise.all(tabs.map((tab) => tab.receive(record, digest)));
    told.push(...sends.flat().filter(({ message }) => message.kind === "report").map(({ message }) => message.report));
  }
  return [told, await ledger.remaining()];
}

/** What comes of a proof, null if it is an error, and how many hashes were asked for; after `most` none is computed. */
async function hashes(resources, proof, root, most = Infinity) {
  const digest = crypto.subtle.digest;
  let count = 0;
  crypto.subtle.digest = function (...args) {
    if (++count > most) throw null;
    return digest.apply(this, args);
  };
  try {
    const told = await outcome(async () => (await device.checkListed(resources, proof, root)) ?? null).catch(() => null);
    return [told, count];
  } finally {
    crypto.subtle.digest = digest;
  }
}

const kinds = {
  locate: ([partition, latitude, longitude]) => outcome(() => device.locate(partition, latitude, longitude)),
  spots: ([partition]) => device.spotsOf(partition),
  power: ([epsilon]) => device.powerBelow(epsilon).toString(),
  check: ([table, epsilon, spots]) => outcome(() => device.checkTable(table, epsilon, spots) ?? null),
  listed: ([resources, proof, root]) => outcome(async () => (await device.checkListed(resources, proof, root)) ?? null),
  hashes: (args) => hashes(...args),
  report: ([chances, draw]) => device.drawReport(chances, draw),
  bid: ([values, prices, step]) => device.bestBid(values, prices.map((price) => price ?? Infinity), step),
  units: ([epsilon]) => device.unitsOf(epsilon),
  draw: () => device.systemDraw(),
  times: ([copies, ...given]) => [device.sendingTimes(copies ? device.COPIES : device.ONE_COPY, ...given), device.marginOf(given[2])],
  again: async ([owner, kept]) => {
    const ledger = device.memoryLedger(2 ** 40);
    await ledger.charge(1, "g", "report", { [`request ${owner.request}`]: kept });
    return outcome(async () => (await device.ReportMachine.start(owner, ledger)).drawn);
  },
  budget: ([game]) => budget(game),
  session: ([game]) => session(game),
  together: ([game]) => together(game),
  prepared: ([game]) => prepared(game),
};

const results = [];
for (const [kind, ...args] of JSON.parse(readFileSync(input, "utf8"))) results.push(await kinds[kind](args));
writeFileSync(output, JSON.stringify(results));
