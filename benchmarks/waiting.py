"""What waiting costs: for another thread, within compiled code and through Python, and for memory.

    python -m benchmarks.waiting

Two threads meet many times and do nothing else; two threads are handed as many pieces of no work through Python; some
memory is written to for the first time and again; and what a game on lists keeps for the next one is looked at.
"""

from __future__ import annotations

from time import perf_counter

import numba
import numpy as np

from palmatch.crowd.tables import own_lists
from palmatch.policies.alma import patient_chance
from palmatch.rounds import lists
from palmatch.rounds.draws import streams
from palmatch.rounds.lists import simulate_lists
from palmatch.rounds.meetings import a_group, meet, together
from palmatch.rounds.threads import spread
from palmatch.studies.bench import INTEREST, crowd_problem

TURNS, PIECES, BYTES, PEOPLE = 20_000, 2_000, 1 << 28, 1_000_000


@numba.njit(nogil=True)
def only_meet(turns, meeting):
    for turn in range(1, turns + 1):
        meet(turn, 2, meeting)


def seconds(work):
    start = perf_counter()
    work()
    return perf_counter() - start


def shortest(work):
    work()
    return min(seconds(work) for _ in range(5))


def kept_by_a_game():
    """Return the size of what the last game left for the next one; not all of it has been touched."""
    problem = crowd_problem(PEOPLE, 0)
    wanted = own_lists(problem.domain, problem.types, problem.resource_order, INTEREST).places
    names = streams(0, np.arange(PEOPLE, dtype=np.uint64))
    simulate_lists(wanted, patient_chance(), resources=PEOPLE, names=names, threads=2)
    [(calendar, attempts, words)] = lists._ROOMS.values()
    return sum(array.nbytes for array in (*calendar, *attempts, words))


def main() -> None:
    with a_group(2) as can:
        if not can:
            raise SystemExit("Two threads cannot meet here.")
        meeting = shortest(lambda: together(lambda _, board: only_meet(TURNS, board), 2)) / TURNS
    piece = shortest(lambda: [spread(lambda *_: None, 2, at_a_time=1, threads=2) for _ in range(PIECES)]) / PIECES
    memory = np.empty(BYTES, dtype=np.uint8)
    first, again = seconds(lambda: memory.fill(1)), seconds(lambda: memory.fill(1))
    print(f"a meeting of two threads            {1e6 * meeting:8.2f} µs")
    print(f"two pieces of no work, by Python    {1e6 * piece:8.2f} µs")
    print(f"a byte of memory, first and again   {1e9 * first / BYTES:8.2f} and {1e9 * again / BYTES:.2f} ns")
    print(f"kept by a game, at most             {kept_by_a_game() / PEOPLE:8.0f} bytes an agent")


if __name__ == "__main__":
    main()
