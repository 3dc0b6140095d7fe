"""ALMA's rounds for a crowd: everybody goes down a list of its own, and only what can change something is played.

The game is that of `rounds.kernel` on tables in which every rank set is one resource: same draws, same matching, same
number of steps and actions. `rounds.contests` has the compiled loops; this room hands them out to threads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from palmatch.errors import DidNotConverge
from palmatch.problem import IntArray
from palmatch.rounds import calendars, contests
from palmatch.rounds.calendars import Calendar
from palmatch.rounds.contests import ACTIONS, AHEAD, FINISHED, LATEST, LONGEST, NEXT, WORK, Attempts, Board, Game, Parts
from palmatch.rounds.draws import Keys
from palmatch.rounds.game import MOST_STEPS, Outcomes
from palmatch.rounds.meetings import a_group, together
from palmatch.rounds.threads import Pace, most_threads, usual_threads

# Below so many looks and attempts in a step, one thread goes on alone.
FEW = 10_000

# Below so many, threads that are together part.
TOO_FEW = 500

_STEPS_AT_ONCE = 256

_State: TypeAlias = tuple[Game, Board, Parts, Attempts, Calendar]


class _Room(NamedTuple):
    """What a game needs besides its result."""

    calendar: Calendar
    attempts: Attempts
    words: NDArray[np.int16]


# That of the last game, by its size. Memory that is touched for the first time is slow, and whoever plays one game
# plays another.
_ROOMS: dict[tuple[int, int, int], _Room] = {}


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
    workers = min(usual_threads() if threads is None else threads, most_threads())
    rounds = _Rounds(_game(lists, backoff, names, most_steps), resources, workers)
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
        spent=np.broadcast_to(np.int64(0), agents),
        charged=np.broadcast_to(np.int64(0), agents),
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
        cuts = np.arange(count + 1)
        self.parts = Parts(cuts * resources // count, cuts * agents // count, np.zeros((count, 8), dtype=np.int64))
        kept: _Room | None = _ROOMS.pop((agents, resources, count), None)
        self.room = kept or _new_room(agents, resources, count)
        # Whoever plays gets its entry of `resource_of` in the first step.
        self.board = Board(np.empty(agents, dtype=np.int64), self.room.words, 0)
        self.step = 1

    def leave(self) -> None:
        """Let the next game of this size have the room of this one, now that it is over."""
        calendars.empty(self.room.calendar)
        self.room.words[:] = 0
        _ROOMS.clear()
        _ROOMS[len(self.game.names), len(self.room.words), len(self.parts.tally)] = self.room

    @property
    def done(self) -> int:
        return int(self.parts.tally[:, FINISHED].sum())

    def go_on(self) -> None:
        """Play some steps: on several threads while there is enough to do for them, or on one."""
        calendar, attempts, _ = self.room
        until = self.step + _STEPS_AT_ONCE
        self.board = contests.moved_on(self.board, self.step, until)
        state = (self.game, self.board, self.parts, attempts, calendar)
        work = len(self.game.names) if self.step == 1 else contests.left_to_do(self.step, attempts, calendar)
        enough = work >= FEW and self.workers > 1
        self.pace.start()
        meeting = self._together(until, state) if enough and self.pace.together() else None
        if meeting is None:
            self.step = contests.play(self.step, self.step + 1 if enough else until, *state)
        else:
            self.step, work = int(meeting[NEXT]), work + int(meeting[WORK])
        if enough:
            self.pace.stop(meeting is not None, work)

    def _together(self, until: int, state: _State) -> NDArray[np.int64] | None:
        """Play on several threads and return what they left, or None if that cannot be now."""

        def play(part: int, meeting: NDArray[np.int64]) -> None:
            contests.play_together(part, self.step, until, TOO_FEW, *state, meeting)

        with a_group(self.workers) as can:
            meeting = together(play, self.workers) if can else None
        if can and meeting is None:
            # The other threads have something else to do: no need to wait for them again.
            self.workers = 1
        return meeting


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


def _new_room(agents: int, resources: int, parts: int) -> _Room:
    attempts = Attempts(
        entries=np.empty((parts, agents), dtype=np.uint64),
        wanted=np.empty((parts, agents), dtype=np.uint32),
        counts=np.zeros(parts, dtype=np.int64),
        claims=np.empty((parts, agents), dtype=np.uint64),
        claimed=np.empty((parts, agents), dtype=np.uint32),
        own=np.zeros(parts, dtype=np.int64),
    )
    return _Room(calendars.new_calendar(agents, parts), attempts, np.zeros(resources, dtype=np.int16))
