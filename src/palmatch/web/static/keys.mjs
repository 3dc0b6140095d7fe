// Signatures, hashes, Privacy Pass tokens (RFC 9578) and sealing (HPKE, RFC 9180), on the browser's WebCrypto.

import { VERSION } from "../device.mjs";

const subtle = globalThis.crypto.subtle;
const utf8 = new TextEncoder();

export const join = (...parts) => {
  const all = parts.map((part) => (typeof part === "string" ? utf8.encode(part) : part));
  const whole = new Uint8Array(all.reduce((sum, part) => sum + part.length, 0));
  let at = 0;
  for (const part of all) {
    whole.set(part, at);
    at += part.length;
  }
  return whole;
};
export const hex = (bytes) => Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
export const fromHex = (text) => Uint8Array.from(text.match(/../g) ?? [], (pair) => parseInt(pair, 16));
export const base64 = (bytes) => btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(""));
export const fromBase64 = (text) => Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
export const equal = (one, two) => one.length === two.length && one.every((byte, place) => byte === two[place]);
const digest = async (name, bytes) => new Uint8Array(await subtle.digest(name, bytes));

/** What a signature covers, and its hash: also the topic, so that nothing is valid in another place. */
export const signedBytes = (topic, body) => join(`palmatch/${VERSION}\n${topic}\n`, body);
export const hashOf = async (topic, body) => digest("SHA-256", signedBytes(topic, body));
export const tagOf = async (game, key) => (await digest("SHA-256", join("palmatch tag\n", game, "\n", key))).slice(0, 8);

export async function verify(key, signature, data) {
  const known = await subtle.importKey("raw", key, "Ed25519", false, ["verify"]);
  return subtle.verify("Ed25519", known, signature, data);
}

/** An Ed25519 key pair that stays in the browser: its secret half cannot be read, also not by this page. */
export async function newSigner() {
  const pair = await subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  const key = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
  return { key, sign: async (data) => new Uint8Array(await subtle.sign("Ed25519", pair.privateKey, data)) };
}

/** The key pair of this name, made when it is asked for the first time; it stays in this browser, and cannot be read. */
export async function keptSigner(name) {
  const database = await new Promise((resolve, reject) => {
    const asked = indexedDB.open(name, 1);
    asked.onupgradeneeded = () => asked.result.createObjectStore("keys");
    asked.onsuccess = () => resolve(asked.result);
    asked.onerror = () => reject(asked.error);
  });
  const run = (mode, work) => new Promise((resolve, reject) => {
    const transaction = database.transaction("keys", mode, { durability: "strict" });
    const asked = work(transaction.objectStore("keys"));
    transaction.oncomplete = () => resolve(asked.result);
    transaction.onabort = () => reject(transaction.error);
  });
  const fresh = await subtle.generateKey("Ed25519", false, ["sign", "verify"]);
  // Of two tabs the first one's is kept.
  await run("readwrite", (keys) => keys.add(fresh, "own")).catch(() => {});
  const pair = await run("readonly", (keys) => keys.get("own"));
  const key = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
  return { key, sign: async (data) => new Uint8Array(await subtle.sign("Ed25519", pair.privateKey, data)) };
}

// Tokens: Privacy Pass type 0x0002, RSABSSA-SHA384-PSS-Deterministic, as palmatch.live.tokens

const DIGEST = 48;
const toNumber = (bytes) => BigInt(`0x${hex(bytes)}`);
const toBytes = (number, width) => fromHex(number.toString(16).padStart(2 * width, "0"));
const TYPE = Uint8Array.of(0, 2), ISSUER = "palmatch";
// SubjectPublicKeyInfo of RSA-2048 with the parameters of RSASSA-PSS, up to the bit string of the key, which ends it.
const PSS_KEY = fromHex(
  "30820152303d06092a864886f70d01010a3030a00d300b0609608648016503040202a11a301806092a864886f70d010108300b0609608648016503040202" +
  "a203020130");
const KEY_BITS = 275;

/** What a token signs: type, nonce, SHA-256 of the challenge, key id. */
async function tokenInput(spki, game, oneTimeKey) {
  const length = (count) => Uint8Array.of(count >> 8, count & 255);
  const context = await digest("SHA-256", utf8.encode(game));
  const challenge = join(TYPE, length(ISSUER.length), ISSUER, Uint8Array.of(context.length), context, length(0));
  const keyId = await digest("SHA-256", join(PSS_KEY, spki.slice(-KEY_BITS)));
  return join(TYPE, await digest("SHA-256", oneTimeKey), await digest("SHA-256", challenge), keyId);
}

function power(base, exponent, modulus) {
  let result = 1n;
  for (let factor = base % modulus; exponent > 0n; exponent >>= 1n, factor = (factor * factor) % modulus) {
    if (exponent & 1n) result = (result * factor) % modulus;
  }
  return result;
}

function inverse(number, modulus) {
  let [a, b, x, y] = [number % modulus, modulus, 1n, 0n];
  while (b > 0n) {
    const whole = a / b;
    [a, b, x, y] = [b, a - whole * b, y, x - whole * y];
  }
  return a === 1n ? ((x % modulus) + modulus) % modulus : null;
}

async function pssEncoded(message, salt, bits) {
  const size = Math.ceil(bits / 8);
  const found = await digest("SHA-384", join(new Uint8Array(8), await digest("SHA-384", message), salt));
  const data = join(new Uint8Array(size - salt.length - DIGEST - 2), Uint8Array.of(1), salt);
  const masked = new Uint8Array(data);
  for (let block = 0; block * DIGEST < data.length; block++) {
    const mask = await digest("SHA-384", join(found, Uint8Array.of(0, 0, block >> 8, block & 255)));
    for (let place = block * DIGEST; place < Math.min((block + 1) * DIGEST, data.length); place++) {
      masked[place] ^= mask[place - block * DIGEST];
    }
  }
  masked[0] &= 0xff >> (8 * size - bits);
  return join(masked, found, Uint8Array.of(0xbc));
}

async function readIssuer(der) {
  const usage = { name: "RSA-PSS", hash: "SHA-384" };
  const key = await subtle.importKey("spki", der, usage, true, ["verify"]);
  const { n, e } = await subtle.exportKey("jwk", key);
  const plain = (text) => fromBase64(text.replaceAll("-", "+").replaceAll("_", "/"));
  const modulus = toNumber(plain(n));
  if (modulus.toString(2).length !== 2048 || toNumber(plain(e)) !== 65537n) {
    throw new Error("Expected an issuer key RSA-2048 with exponent 65537.");
  }
  return { key, modulus, spki: new Uint8Array(await subtle.exportKey("spki", key)) };
}

/** A token for a one-time key: `obtain` takes the blinded bytes to the issuer and returns what it signed. */
export async function newToken(der, game, oneTimeKey, obtain) {
  const { key, modulus, spki } = await readIssuer(der);
  const random = (count) => crypto.getRandomValues(new Uint8Array(count));
  const prepared = await tokenInput(spki, game, oneTimeKey);
  let mask, undo;
  do {
    mask = toNumber(random(256 + 16)) % (modulus - 1n) + 1n;
    undo = inverse(mask, modulus);
  } while (undo === null);
  const encoded = toNumber(await pssEncoded(prepared, random(DIGEST), 2047));
  const blinded = toBytes((encoded * power(undo, 65537n, modulus)) % modulus, 256);
  const signature = toBytes((toNumber(await obtain(blinded)) * mask) % modulus, 256);
  if (!(await subtle.verify({ name: "RSA-PSS", saltLength: DIGEST }, key, signature, prepared))) {
    throw new Error("The issuer's signature does not fit the token that was asked for.");
  }
  return join(prepared, signature);
}

// Sealing: HPKE in base mode with X25519, HKDF-SHA256 and AES-128-GCM

const SEALED_TEXT = 96;

async function hmac(key, data) {
  const known = await subtle.importKey("raw", key.length ? key : new Uint8Array(32), { name: "HMAC", hash: "SHA-256" }, false, ["sign"]);
  return new Uint8Array(await subtle.sign("HMAC", known, data));
}

const suite = (kind) => join(kind, kind === "KEM" ? Uint8Array.of(0, 32) : Uint8Array.of(0, 32, 0, 1, 0, 1));
const extract = (id, salt, label, text) => hmac(salt, join("HPKE-v1", id, label, text));

async function expand(id, secret, label, info, count) {
  const data = join(Uint8Array.of(count >> 8, count & 255), "HPKE-v1", id, label, info);
  const block = await hmac(secret, join(data, Uint8Array.of(1)));
  return block.slice(0, count);
}

/** Seal up to 95 bytes to a resource's key for a topic and a tag; the result has one size. */
export async function seal(publicKey, topic, tag, text) {
  const padded = new Uint8Array(SEALED_TEXT);
  padded[0] = text.length;
  padded.set(text, 1);
  const peer = await subtle.importKey("raw", publicKey, "X25519", false, []);
  const pair = await subtle.generateKey("X25519", false, ["deriveBits"]);
  const shown = new Uint8Array(await subtle.exportKey("raw", pair.publicKey));
  const shared = new Uint8Array(await subtle.deriveBits({ name: "X25519", public: peer }, pair.privateKey, 256));
  if (shared.every((byte) => byte === 0)) throw new Error("The resource's sealing key is not usable.");
  const kem = suite("KEM"), whole = suite("HPKE"), none = new Uint8Array();
  const prk = await extract(kem, none, "eae_prk", shared);
  const secret = await expand(kem, prk, "shared_secret", join(shown, publicKey), 32);
  const info = signedBytes(topic, join("sealed by ", tag));
  const context = join(
    Uint8Array.of(0), await extract(whole, none, "psk_id_hash", none), await extract(whole, none, "info_hash", info),
  );
  const master = await extract(whole, secret, "secret", none);
  const key = await subtle.importKey("raw", await expand(whole, master, "key", context, 16), "AES-GCM", false, ["encrypt"]);
  const nonce = await expand(whole, master, "base_nonce", context, 12);
  return join(shown, new Uint8Array(await subtle.encrypt({ name: "AES-GCM", iv: nonce }, key, padded)));
}

export const sealPosition = (key, topic, tag, latitude, longitude) =>
  seal(key, topic, tag, join(Uint8Array.of(0), new Uint8Array(new Float64Array([latitude, longitude]).buffer)));

/** 16 random bytes, sealed in place of a position, and the code that both sides derive from them. */
export const newSecret = () => crypto.getRandomValues(new Uint8Array(16));
export const sealSecret = (key, topic, tag, secret) => seal(key, topic, tag, join(Uint8Array.of(1), secret));

export async function reservationCode(secret, topic, tag) {
  const found = (await hmac(secret, signedBytes(topic, join("reservation of ", tag)))).slice(0, 5);
  const bits = Array.from(found, (byte) => byte.toString(2).padStart(8, "0")).join("");
  const letters = bits.match(/.{5}/g).map((five) => "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"[parseInt(five, 2)]).join("");
  return `${letters.slice(0, 4)}-${letters.slice(4)}`;
}
