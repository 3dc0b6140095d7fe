// Requests to the explorer's own server, and nothing else.

import { query } from "./state.mjs";

async function asked(address, signal) {
  const response = await fetch(address, { signal });
  if (!response.ok) {
    const told = await response.json().catch(() => ({ error: `The server answered ${response.status}.` }));
    throw new Error(told.error);
  }
  return response;
}

export const about = async () => (await asked("/api/about")).json();
export const map = async (state) => (await asked(`/api/map?${query(state, state.method)}`)).json();
export const losses = async (state, signal) => (await asked(`/api/losses?${query(state, state.method)}`, signal)).json();

/** A game: its figures, each agent's vehicle, and its steps as typed arrays. */
export async function play(state, method) {
  const bytes = await (await asked(`/api/play?${query(state, method)}`)).arrayBuffer();
  const length = new DataView(bytes).getUint32(0, true);
  const figures = JSON.parse(new TextDecoder().decode(new Uint8Array(bytes, 4, length)));
  let at = 4 + length;
  const [agents, rows] = new Int32Array(bytes, at, 2);
  at += 8;
  const column = (Type, count) => {
    const part = new Type(bytes, at, count);
    at += 4 * count;
    return part;
  };
  const holder = column(Int32Array, agents);
  const [step, agent, resource, outcome] = [0, 1, 2, 3].map(() => column(Int32Array, rows));
  return { figures, holder, rows, step, agent, resource, outcome, offer: column(Float32Array, rows) };
}
