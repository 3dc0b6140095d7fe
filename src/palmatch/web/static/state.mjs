// What a visitor has chosen, as one plain object; the address of the page always says all of it. A round of -1 is the
// result.

export const START = { method: "once", against: "", epsilon: 1, edge: 1000, vehicles: 1, hour: 8, agents: 0, seed: 1, round: 0 };

export function fromAddress(hash) {
  const state = { ...START };
  for (const [name, text] of new URLSearchParams(hash.replace(/^#/, ""))) {
    if (!Object.hasOwn(START, name)) continue;
    const value = typeof START[name] === "number" ? Number(text) : text;
    if (typeof value === "string" || Number.isFinite(value)) state[name] = value;
  }
  return state;
}

export function toAddress(state) {
  const changed = Object.entries(state).filter(([name, value]) => value !== START[name] && value !== "");
  return `#${new URLSearchParams(changed)}`;
}

/** The part of the state that a scene or a game on the server follows from. */
export function query(state, method) {
  const { epsilon, edge, vehicles, hour, agents, seed } = state;
  return new URLSearchParams({ method, epsilon, edge, vehicles, hour, agents, seed }).toString();
}
