// The CBOR that the protocol uses: numbers, bytes, text, lists, maps, booleans and null; nothing else.

/** A number that is written as a float, also where it is whole. */
export class Float {
  constructor(value) {
    this.value = value;
  }

  toJSON() {
    return this.value;
  }
}

const utf8 = new TextEncoder();

function joined(...parts) {
  const all = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of parts) {
    all.set(part, at);
    at += part.length;
  }
  return all;
}

const bytesOf = (setter, size, value) => {
  const view = new DataView(new ArrayBuffer(size));
  view[setter](0, value);
  return new Uint8Array(view.buffer);
};

/** The head of an item: its kind and its length or number, in as few bytes as that takes. */
function head(kind, count) {
  if (count < 24) return Uint8Array.of((kind << 5) | count);
  if (count < 2 ** 8) return Uint8Array.of((kind << 5) | 24, count);
  if (count < 2 ** 16) return joined(Uint8Array.of((kind << 5) | 25), bytesOf("setUint16", 2, count));
  if (count < 2 ** 32) return joined(Uint8Array.of((kind << 5) | 26), bytesOf("setUint32", 4, count));
  return joined(Uint8Array.of((kind << 5) | 27), bytesOf("setBigUint64", 8, BigInt(count)));
}

/** A float in the fewest bytes that hold it: 2, 4 or 8. */
function float(value) {
  if (Math.fround(value) !== value) return joined(Uint8Array.of(0xfb), bytesOf("setFloat64", 8, value));
  const single = bytesOf("setFloat32", 4, value);
  const bits = new DataView(single.buffer).getUint32(0);
  const [sign, exponent, fraction] = [(bits >>> 31) << 15, ((bits >>> 23) & 255) - 127, bits & 0x7fffff];
  const steps = Math.abs(value) * 2 ** 24;
  const normal = exponent >= -14 && exponent <= 15 && (fraction & 0x1fff) === 0;
  if (normal || (exponent < -14 && Number.isInteger(steps))) {
    const half = sign | (normal ? ((exponent + 15) << 10) | (fraction >>> 13) : steps);
    return Uint8Array.of(0xf9, half >> 8, half & 255);
  }
  return joined(Uint8Array.of(0xfa), single);
}

/** Canonical CBOR: equal values give equal bytes, those that palmatch.live.codec writes. */
export function writeCbor(value) {
  if (value instanceof Uint8Array) return joined(head(2, value.length), value);
  if (value instanceof Float) return float(value.value);
  if (typeof value === "string") return joined(head(3, utf8.encode(value).length), utf8.encode(value));
  if (Number.isInteger(value) && value >= 0 && value <= 2 ** 53) return head(0, value);
  if (Array.isArray(value)) return joined(head(4, value.length), ...value.map(writeCbor));
  if (typeof value !== "object" || value === null) throw new Error("a value that the protocol does not use");
  const names = Object.keys(value).sort((one, two) => one.length - two.length || (one < two ? -1 : 1));
  return joined(head(5, names.length), ...names.flatMap((name) => [writeCbor(name), writeCbor(value[name])]));
}

const DEPTH = 8;

export function readCbor(bytes) {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  let at = 0;

  function length(info) {
    const size = { 24: 1, 25: 2, 26: 4, 27: 8 }[info];
    if (info < 24) return info;
    if (size === undefined) throw new Error("CBOR of unknown length");
    at += size;
    if (size === 1) return view.getUint8(at - 1);
    if (size === 2) return view.getUint16(at - 2);
    if (size === 4) return view.getUint32(at - 4);
    const whole = view.getBigUint64(at - 8);
    if (whole > 2n ** 53n) throw new Error("a CBOR number above 2^53");
    return Number(whole);
  }

  function simple(info) {
    if (info === 20 || info === 21) return info === 21;
    if (info === 22) return null;
    at += { 25: 2, 26: 4, 27: 8 }[info] ?? 0;
    if (info === 27) return view.getFloat64(at - 8);
    if (info === 26) return view.getFloat32(at - 4);
    if (info === 25) return half(view.getUint16(at - 2));
    throw new Error("a CBOR value of unknown kind");
  }

  function item(depth) {
    if (depth > DEPTH) throw new Error("CBOR is nested too deeply");
    const head = view.getUint8(at++);
    const [kind, info] = [head >> 5, head & 31];
    if (kind === 7) return simple(info);
    const count = length(info);
    if (kind === 0) return count;
    if (kind === 1) return -1 - count;
    if (kind === 2 || kind === 3) {
      if (at + count > bytes.length) throw new Error("CBOR ends too soon");
      const part = bytes.subarray(at, (at += count));
      return kind === 2 ? part : new TextDecoder("utf-8", { fatal: true }).decode(part);
    }
    if (count > bytes.length) throw new Error("CBOR ends too soon");
    if (kind === 4) return Array.from({ length: count }, () => item(depth + 1));
    if (kind !== 5) throw new Error("CBOR tags are not used");
    const map = {};
    for (let number = 0; number < count; number++) {
      const name = item(depth + 1);
      if (typeof name !== "string" || Object.hasOwn(map, name)) throw new Error("a CBOR map with broken names");
      Object.defineProperty(map, name, { value: item(depth + 1), enumerable: true });
    }
    return map;
  }

  const found = item(0);
  if (at !== bytes.length) throw new Error("CBOR with something after it");
  return found;
}

function half(bits) {
  const [sign, exponent, fraction] = [bits & 0x8000 ? -1 : 1, (bits >> 10) & 31, bits & 1023];
  if (exponent === 31) return fraction ? NaN : sign * Infinity;
  return sign * (exponent ? 2 ** (exponent - 15) * (1 + fraction / 1024) : (2 ** -14 * fraction) / 1024);
}
