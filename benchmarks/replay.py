"""How near the rounds of a crowd are to what memory allows: their recorded accesses again, without any logic.

    python -m benchmarks.replay [--people 1000000]

Plays `alma-patient` once, on one thread, and writes down, step by step, who attempts what, whose draws are read, and
where in the lists somebody looks. The replay does those reads and writes, and nothing else: no draws, no comparisons,
no calendar. Both are timed with memory that has been touched before, and the rounds as a whole besides.
"""

from __future__ import annotations

import argparse
from time import process_time
from typing import NamedTuple

import numba
import numpy as np

from palmatch.crowd.tables import own_lists
from palmatch.policies.alma import patient_chance
from palmatch.rounds import calendars, contests, lists
from palmatch.rounds.draws import streams
from palmatch.studies.bench import INTEREST, crowd_problem


class Step(NamedTuple):
    """What a step does to memory: attempts, names of who does not attempt alone, and places in the lists looked at."""

    who: np.ndarray
    wanted: np.ndarray
    contestants: np.ndarray
    places: np.ndarray


def recorded(wanted, names):
    """Return what each step of a game on one thread reads and writes."""
    agents, ranks = wanted.shape
    rounds = lists._Rounds(lists._game(wanted, patient_chance(), names, lists.MOST_STEPS), agents, 1)
    calendar, attempts, _ = rounds.room
    steps, flat = [], wanted.reshape(-1)
    who, at = np.arange(agents), wanted[:, 0].copy()
    while rounds.done < agents:
        step = rounds.step
        if step > 1:
            count = attempts.counts[0]
            again = waiting(calendar, calendars.RING + step % calendars.RING)
            entries = np.concatenate([attempts.entries[0, :count], again])
            who, rank = agent_and_rank(entries)
            at = flat[who * ranks + rank]
        often = np.bincount(at, minlength=agents)[at] > 1
        looking, rank = agent_and_rank(waiting(calendar, step % calendars.RING))
        places = looking * ranks + np.minimum(rank, ranks - contests.AHEAD)
        steps.append(Step(*(column.astype(np.uint32) for column in (who, at, who[often], places))))
        state = (rounds.game, rounds.board, rounds.parts, attempts, calendar)
        rounds.step = contests.play(step, step + 1, *state)
    return steps


def waiting(calendar, slot):
    """Return the entries of a slot of the calendar."""
    chunk, end, found = calendar.first[0, slot], calendar.end[0, slot], []
    while chunk != calendars.NONE:
        found.append(calendar.pool[0, int(chunk) * calendars.BATCH : int(end)])
        chunk = calendar.following[0, chunk]
        end = (int(chunk) + 1) * calendars.BATCH
    return np.concatenate(found) if found else np.empty(0, dtype=np.uint64)


def agent_and_rank(entries):
    rank = entries >> contests._PLACE & contests._PLACES
    return (entries & contests._WHO).astype(np.int64), rank.astype(np.int64)


@numba.njit
def replay_first(wanted, ranks, contestants, names, words, resource_of):
    """Do what everybody's first attempt does to memory."""
    total = np.uint64(0)
    for agent in range(np.uint64(len(resource_of))):
        resource = wanted[agent * ranks]
        words[resource] += 1
        resource_of[agent] = resource
    for agent in range(np.uint64(len(resource_of))):
        total += np.uint64(words[np.uint64(resource_of[agent])])
    for index in range(np.uint64(len(contestants))):
        total += names[contestants[index]]
    return total


@numba.njit
def replay(step, number, wanted, names, words, resource_of):
    """Do what a later step does to memory; looks a batch at a time, as in the rounds, so that reads wait together."""
    total, touched = np.uint64(0), np.uint32(0)
    for index in range(np.uint64(len(step.wanted))):
        words[step.wanted[index]] = number
    for index in range(np.uint64(len(step.wanted))):
        total += np.uint64(words[step.wanted[index]])
        resource_of[step.who[index]] = step.wanted[index]
    for index in range(np.uint64(len(step.contestants))):
        total += names[step.contestants[index]]
    looks = np.uint64(len(step.places))
    for begin in range(np.uint64(0), looks, calendars.SIZE):
        end = min(begin + calendars.SIZE, looks)
        for index in range(begin, end):
            touched |= wanted[step.places[index]] | wanted[step.places[index] + contests._AHEAD - np.uint64(1)]
        for index in range(begin, end):
            for further in range(contests._AHEAD):
                total += np.uint64(words[wanted[step.places[index] + further]])
    return total, touched


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--people", type=int, default=1_000_000)
    people = parser.parse_args().people
    problem = crowd_problem(people, 0)
    found = own_lists(problem.domain, problem.types, problem.resource_order, INTEREST)
    report(found.places, streams(0, np.arange(people, dtype=np.uint64)))


def report(wanted, names):
    """Time the rounds and their replay, and print both."""
    people, ranks = wanted.shape
    steps = recorded(wanted, names)
    flat = wanted.reshape(-1).view(np.uint32)
    words, resource_of = np.zeros(people, dtype=np.int16), np.zeros(people, dtype=np.int64)

    def again():
        replay_first(flat, np.uint64(ranks), steps[0].contestants, names, words, resource_of)
        for number, step in enumerate(steps[1:]):
            replay(step, number, flat, names, words, resource_of)

    def played():
        return lists.simulate_lists(wanted, patient_chance(), resources=people, names=names, threads=1)

    ends = played()
    bare, whole = shortest(again), shortest(played)
    looks, attempts = sum(len(step.places) for step in steps), sum(len(step.wanted) for step in steps)
    print(f"{people:,} people, {ends.steps} steps, {ends.actions / people:.2f} actions each, of which are carried out:")
    print(f"{attempts / people:.2f} attempts and {looks / people:.2f} looks; processor time, one thread")
    print(f"rounds {1e3 * whole:.1f} ms, {1e9 * whole / ends.actions:.1f} ns an action")
    print(f"replay {1e3 * bare:.1f} ms, {1e9 * bare / ends.actions:.1f} ns an action")
    print(f"ratio  {whole / bare:.1f}")


def shortest(work, times=12):
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
