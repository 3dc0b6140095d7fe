"""What a second thread gains, and what it costs while another program keeps one of two processors busy.

    python -m benchmarks.threads [--people 1000000] [--times 3]

PALMA whole (rank sets, public tables, rounds) on one thread and on all, in turns, each in a process of its own; then
the same while a process that does nothing but count runs beside it. The shortest time of each counts.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import get_context

from palmatch.rounds.threads import usual_threads
from palmatch.studies.bench import in_a_process_of_its_own, measure


def _count() -> None:
    number = 0
    while True:
        number += 1


@contextmanager
def busy(processes: int) -> Iterator[None]:
    """Keep so many processors busy."""
    others = [get_context("spawn").Process(target=_count, daemon=True) for _ in range(processes)]
    for other in others:
        other.start()
    try:
        yield
    finally:
        for other in others:
            other.kill()
            other.join()


def shortest(people: int, ways: tuple[int, ...], times: int) -> dict[int, float]:
    """Return the shortest time on each number of threads, tried in turns."""
    found = [{way: in_a_process_of_its_own(measure, people, way).seconds for way in ways} for _ in range(times)]
    return {way: min(one[way] for one in found) for way in ways}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=1_000_000)
    parser.add_argument("--times", type=int, default=3)
    given = parser.parse_args()
    ways = (1, usual_threads())
    for what, others in (("nothing beside it", 0), ("one processor busy", 1)):
        with busy(others):
            seconds = shortest(given.people, ways, given.times)
        alone, together = seconds[ways[0]], seconds[ways[1]]
        print(f"{what:20} 1 thread {alone:.2f} s, {ways[1]} threads {together:.2f} s, ratio {alone / together:.2f}")


if __name__ == "__main__":
    main()
