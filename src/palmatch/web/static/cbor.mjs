// Reads the CBOR that the protocol uses: numbers, bytes, text, lists, maps, booleans and null; nothing else.

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
