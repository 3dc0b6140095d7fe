"""ALMA's rounds for a crowd: everybody goes down a list of its own, and only what can change something is played.

The game is that of `rounds.kernel` on tables in which every rank set is one resource: same draws, same matching, same
number of steps and actions. `rounds.contests` has the compiled loops; this room hands them out to threads.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.problem import IntArray
from palmatch.rounds import calendars, contests
from palmatch.rounds.calendars import Calendar
from palmatch.rounds.contests import ACTIONS, AHEAD, FINISHED, LATEST, LONGEST, Attempts, Game, Parts
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import MOST_STEPS, Outcomes
from palmatch.rounds.threads import Pace, spread, usual_threads

# Below so many looks and attempts in a step, one thread goes on alone.
FEW = 10_000

_STEPS_AT_ONCE = 256

# The calendar and the attempts of the last game, by its size. Memory that is touched for the first time is slow, and
# whoever plays one game plays another.
_ROOM: dict[tuple[int, int], tuple[Calendar, Attempts]] = {}


def simulate_lists(
    lists: NDArray[np.int32],
    backoff: int | IntArray,
    *,
    resources: int,
    names: Keys,
    threads: int | None = None,
    most_steps: int = MOST_STEPS,
    progress: Callable[[int, int], None] | None = None,
) -> Outcomes:
    """Play until everybody holds something or has nothing left to hope for.

    Parameters
    ----------
    lists:
        (agents x K): what each agent wants, best first.
    backoff:
        The chance over GRID of giving way after a collision: one for all, or one for each entry of `lists`, in order.
    names:
        Each agent's stream of draws.
    """
    agents = len(lists)
    workers = usual_threads() if threads is None else threads
    rounds = _Rounds(_game(lists, backoff, names, most_steps), resources, workers)
    rounds.begin()
    while rounds.done < agents:
        # Who left in time may be found out when it wakes; who is found to act later is not done.
        if rounds.step > most_steps + LONGEST:
            still = agents - rounds.done
            raise DidNotConverge(f"{still} of {agents} agents were still playing after {most_steps:,} steps.")
        rounds.go_on()
        if progress is not None:
            progress(rounds.done, agents)
    tally = rounds.parts.tally
    rounds.leave()
    return Outcomes(
        resource_of=rounds.board.resource_of,
        spent=np.zeros(agents, dtype=np.int64),
        charged=np.zeros(agents, dtype=np.int64),
        steps=int(tally[:, LATEST].max()),
        trace=None,
        actions=int(tally[:, ACTIONS].sum()),
    )


class _Rounds:
    """A game that is being played: what the compiled loops share, and which step comes next."""

    def __init__(self, game: Game, resources: int, workers: int) -> None:
        agents = len(game.names)
        count = 1 if workers == 1 or agents < FEW else workers
        self.game, self.workers, self.pace = game, workers, Pace(workers)
        self.board = contests.new_board(agents, resources)
        cuts = np.arange(count + 1)
        self.parts = Parts(cuts * resources // count, cuts * agents // count, np.zeros((count, 8), dtype=np.int64))
        kept: tuple[Calendar, Attempts] | None = _ROOM.pop((agents, count), None)
        self.calendar, self.attempts = kept or (
            calendars.new_calendar(agents, count),
            _attempts(count, 0 if count == 1 else agents // count + 1),
        )
        self.step = 1

    def leave(self) -> None:
        """Let the next game of this size have the room of this one, now that it is over."""
        _ROOM.clear()
        _ROOM[len(self.game.names), len(self.parts.tally)] = calendars.emptied(self.calendar), self.attempts

    @property
    def done(self) -> int:
        return int(self.parts.tally[:, FINISHED].sum())

    def begin(self) -> None:
        """Let everybody attempt what is first on its list."""
        self._on_threads(lambda part: contests.begin(part, self.game, self.board, self.parts, self.attempts))

    def go_on(self) -> None:
        """Play a step on several threads, or some on one."""
        looks = calendars.room_for_looks(self.calendar, self.step)
        self._make_room(int(looks.max()))
        work = len(self.game.names) if self.step == 1 else int(looks.sum() + self.attempts.counts.sum())
        together = work >= FEW and self.pace.together()
        until = self.step + (_STEPS_AT_ONCE if self.workers == 1 or work < FEW else 1)
        self.board = contests.moved_on(self.board, self.step, until)
        state = (self.game, self.board, self.parts, self.attempts, self.calendar)
        self.pace.start()
        if together:
            self._on_threads(lambda part: contests.attempt(self.step, part, *state))
            self._on_threads(lambda part: contests.look(self.step, part, *state))
            self.step += 1
        else:
            self.step = contests.play(self.step, until, *state)
        if work >= FEW:
            self.pace.stop(together, work)

    def _make_room(self, looks: int) -> None:
        if looks > self.attempts.entries.shape[1]:
            old, count = self.attempts, int(self.attempts.counts.max())
            self.attempts = _attempts(len(old.counts), looks)
            self.attempts.entries[:, :count] = old.entries[:, :count]
            self.attempts.wanted[:, :count] = old.wanted[:, :count]
            self.attempts.counts[:] = old.counts

    def _on_threads(self, phase: Callable[[int], object]) -> None:
        def work(first: int, last: int) -> None:
            for part in range(first, last):
                phase(part)

        spread(work, len(self.parts.tally), at_a_time=1, threads=self.workers)


def _game(lists: NDArray[np.int32], backoff: int | IntArray, names: Keys, most_steps: int) -> Game:
    chances = np.empty((len(lists), 0), dtype=np.int64) if isinstance(backoff, int) else backoff.reshape(lists.shape)
    # Going round a list twice is going once round the list written twice.
    times = -(-AHEAD // lists.shape[1])
    if times > 1:
        lists, chances = np.tile(lists, times), np.tile(chances, times)
    return Game(
        lists=np.ascontiguousarray(lists, dtype=np.int32).reshape(-1).view(np.uint32),
        ranks=np.uint64(lists.shape[1]),
        names=np.ascontiguousarray(names),
        chance=backoff if isinstance(backoff, int) else 0,
        chances=np.ascontiguousarray(chances, dtype=np.int64).reshape(-1),
        most_steps=most_steps,
    )


def _attempts(parts: int, room: int) -> Attempts:
    entries, wanted = np.empty((parts, room), dtype=np.uint64), np.empty((parts, room), dtype=np.uint32)
    return Attempts(entries, wanted, np.zeros(parts, dtype=np.int64))
