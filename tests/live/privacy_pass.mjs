// A client, an issuer and an origin of Privacy Pass by another implementation, for test_privacy_pass.py.
import { webcrypto } from "node:crypto";
import { createInterface } from "node:readline";

// Before version 19 it is no global of node's.
globalThis.crypto ??= webcrypto;
const { Token, TokenChallenge, publicVerif } = await import(`${process.argv[2]}/@cloudflare/privacypass-ts/lib/src/index.js`);
const { BLIND_RSA, BlindRSAMode, Client, Issuer, Origin, TokenRequest, TokenResponse } = publicVerif;
const bytes = (text) => new Uint8Array(Buffer.from(text, "hex"));
const hex = (found) => Buffer.from(found).toString("hex");
const known = { name: "RSA-PSS", hash: "SHA-384" };
const publicKey = (spki) => crypto.subtle.importKey("spki", bytes(spki), known, true, ["verify"]);
let client;

const answers = {
  /** A request for a challenge by a client that has drawn this nonce. */
  async request({ key, challenge, nonce }) {
    const draw = crypto.getRandomValues.bind(crypto);
    crypto.getRandomValues = (array) => {
      crypto.getRandomValues = draw;
      array.set(bytes(nonce));
      return array;
    };
    client = new Client(BlindRSAMode.PSS);
    return hex((await client.createTokenRequest(TokenChallenge.deserialize(bytes(challenge)), bytes(key))).serialize());
  },
  finalize: async ({ response }) => hex((await client.finalize(TokenResponse.deserialize(bytes(response)))).serialize()),
  async issue({ pkcs8, spki, request }) {
    const secret = await crypto.subtle.importKey("pkcs8", bytes(pkcs8), known, true, ["sign"]);
    const issuer = new Issuer(BlindRSAMode.PSS, "palmatch", secret, await publicKey(spki));
    return hex((await issuer.issue(TokenRequest.deserialize(BLIND_RSA, bytes(request)))).serialize());
  },
  verify: async ({ spki, token }) =>
    new Origin(BlindRSAMode.PSS).verify(Token.deserialize(BLIND_RSA, bytes(token)), await publicKey(spki)),
};

for await (const line of createInterface({ input: process.stdin })) {
  const { what, ...given } = JSON.parse(line);
  console.log(JSON.stringify(await answers[what](given)));
}
