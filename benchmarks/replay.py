"""How near the rounds of a crowd are to what memory allows: their recorded accesses again, without any logic.

    python -m benchmarks.replay [--people 1000000]

Plays `alma-patient` once and writes down, step by step, whose list is read where and which resource's word is written
and read. The replay does those reads and writes, and nothing else: no draws, no comparisons, nobody leaves.
"""

from __future__ import annotations

import argparse
from time import process_time

import numba
import numpy as np

from palmatch.crowd.tables import own_lists
from palmatch.policies.alma import patient_chance
from palmatch.rounds import lists
from palmatch.rounds.draws import streams
from palmatch.studies.bench import INTEREST, crowd_problem


def recorded(wanted, names):
    """Return, for each step, the places in the lists that are read, the words written, and the words read."""
    agents, ranks = wanted.shape
    game = (wanted.reshape(-1), ranks, names, patient_chance(), np.empty(0, dtype=np.int64))
    words, places = np.zeros(agents, dtype=np.int64), lists._places(agents, wanted)
    bounds = np.append(np.arange(0, agents, lists._BLOCK), agents)
    counts, steps, step = np.diff(bounds), [], 1
    while True:
        lists.claim_blocks(True, step, bounds, counts, places, game, words, 0, len(counts))
        if not counts.sum():
            return steps
        here = np.concatenate([np.arange(b, b + n) for b, n in zip(bounds, counts, strict=False)])
        who, at, rank, _, _, mode = (column[here] for column in places)
        attempts = mode == lists.ATTEMPTS
        following = who[~attempts].astype(np.int64) * ranks + (rank[~attempts] + 1) % ranks
        read = at.copy()
        read[~attempts] = wanted.reshape(-1)[following]
        steps.append((following, at[attempts], read))
        lists.act_blocks(step, bounds, counts, places, game, words, 0, len(counts))
        step += 1


@numba.njit
def replay(following, written, read, wanted, words, step):
    """Do what a step does to memory."""
    total = 0
    for place in range(len(written)):
        words[written[place]] = step
    for place in range(len(following)):
        total += wanted[following[place]]
    for place in range(len(read)):
        total += words[read[place]]
    return total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=1_000_000)
    people = parser.parse_args().people
    problem = crowd_problem(people, 0)
    found = own_lists(problem.domain, problem.types, problem.resource_order, INTEREST)
    names = streams(0, np.arange(people, dtype=np.uint64))
    steps = recorded(found.places, names)
    actions = sum(len(read) for _, _, read in steps)
    flat, words = found.places.reshape(-1), np.zeros(people, dtype=np.int64)

    def again():
        for number, (following, written, read) in enumerate(steps):
            replay(following, written, read, flat, words, number)

    def played():
        lists.simulate_lists(found.places, patient_chance(), resources=people, names=names, threads=1)

    bare, whole = shortest(again), shortest(played)
    print(f"{people:,} people, {len(steps)} steps, {actions / people:.2f} actions each; processor time, one thread")
    print(f"rounds {whole:.3f} s, {1e9 * whole / actions:.0f} ns an action")
    print(f"replay {bare:.3f} s, {1e9 * bare / actions:.0f} ns an action")
    print(f"ratio  {whole / bare:.1f}")


def shortest(work, times=5):
    """Return the shortest processor time."""
    work()
    best = np.inf
    for _ in range(times):
        start = process_time()
        work()
        best = min(best, process_time() - start)
    return best


if __name__ == "__main__":
    main()
