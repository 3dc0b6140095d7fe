// A game round by round: what every agent and vehicle is about after a round, from the steps that an observer sees.

export const HOLDS = 0, STAYS = 1, BACKS_OFF = 2, FREE = 3, TAKEN = 4, LEADS = 5, LOSES = 6, REPORTS = 7;

// What an agent is about, for drawing.
export const WAITS = 0, TRIES = 1, LOOKS = 2, HAS = 3;

export class Game {
  constructor(played, vehicles) {
    Object.assign(this, played);
    this.agents = played.holder.length;
    this.vehicles = vehicles;
    this.last = played.rows ? played.step[played.rows - 1] : 0;
    this.starts = this.startsOfRounds();
    this.clear();
    this.changes = this.changedRounds();
  }

  startsOfRounds() {
    const starts = new Int32Array(this.last + 2).fill(this.rows);
    for (let row = this.rows - 1; row >= 0; row--) starts[this.step[row]] = row;
    for (let round = this.last; round >= 0; round--) starts[round] = Math.min(starts[round], starts[round + 1]);
    return starts;
  }

  /** The rounds after which an agent is about something else than before, in ascending order. */
  changedRounds() {
    const changes = [];
    let before = this.about.slice();
    while (this.round < this.last) {
      const holders = this.holderOf.slice();
      this.forward();
      const moved = this.about.some((about, agent) => about !== before[agent]) || this.holderOf.some((holder, vehicle) => holder !== holders[vehicle]);
      if (moved) changes.push(this.round);
      before = this.about.slice();
    }
    this.clear();
    return changes;
  }

  clear() {
    this.round = 0;
    this.about = new Uint8Array(this.agents);
    this.at = new Int32Array(this.agents).fill(-1);
    this.holderOf = new Int32Array(this.vehicles).fill(-1);
    this.price = new Float32Array(this.vehicles);
    this.tries = new Uint16Array(this.vehicles);
  }

  /** Go to a round; after the last one every agent holds what the result says. */
  go(round) {
    if (round < this.round) this.clear();
    while (this.round < Math.min(round, this.last)) this.forward();
    if (round > this.last) this.finish();
  }

  forward() {
    this.round += 1;
    this.tries.fill(0);
    for (let row = this.starts[this.round]; row < this.starts[this.round + 1]; row++) {
      const agent = this.agent[row], vehicle = this.resource[row], outcome = this.outcome[row];
      if (outcome === REPORTS) continue;
      this.at[agent] = vehicle;
      if (outcome === HOLDS || outcome === LEADS) this.take(agent, vehicle);
      else if (this.about[agent] !== HAS) this.about[agent] = outcome === FREE || outcome === TAKEN ? LOOKS : TRIES;
      if (outcome !== FREE && outcome !== TAKEN) this.tries[vehicle] += 1;
      if (outcome === LEADS) this.price[vehicle] = this.offer[row];
    }
  }

  take(agent, vehicle) {
    const before = this.holderOf[vehicle];
    if (before >= 0 && before !== agent) {
      this.about[before] = WAITS;
      this.at[before] = -1;
    }
    this.holderOf[vehicle] = agent;
    this.about[agent] = HAS;
  }

  finish() {
    this.round = this.last + 1;
    this.tries.fill(0);
    this.holderOf.fill(-1);
    for (let agent = 0; agent < this.agents; agent++) {
      const vehicle = this.holder[agent];
      this.at[agent] = vehicle;
      this.about[agent] = vehicle >= 0 ? HAS : WAITS;
      if (vehicle >= 0) this.holderOf[vehicle] = agent;
    }
  }

  counts() {
    const counts = [0, 0, 0, 0];
    for (const about of this.about) counts[about] += 1;
    const contested = this.tries.reduce((sum, tries) => sum + (tries > 1 ? 1 : 0), 0);
    return { waits: counts[WAITS], tries: counts[TRIES], looks: counts[LOOKS], has: counts[HAS], contested };
  }
}
