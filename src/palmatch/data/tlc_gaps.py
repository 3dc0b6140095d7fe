"""What a cut of a taxi file may lack: trips that the file does not hold around a window.

A file that begins, ends or has a gap at a window gives a window all the same, with too few requests or with vehicles
from long ago. Nothing but times is looked at; what is found is said in sentences.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

import numpy as np

from palmatch.data.tlc_trips import Times

# A pause that chance makes less often than this is a gap in the file.
_BY_CHANCE: Final = 1e-5
# Shorter pauses than this share of a window do not change what is found in it, and times are of whole seconds.
_SHARE: Final = 0.2
_SHORTEST: Final = np.timedelta64(2, "s")
# How many windows on either side a window is held against, and by which factor it has to be emptier than they.
_BESIDE: Final = 10
_EMPTIER: Final = 5
# Fewer trips than this say nothing about how times are written, nor about how busy a file is.
_FEW: Final = 20
# Vehicles are where trips of the last minutes ended; a pause as long as this between these trips is worth a word.
_PAUSE: Final = np.timedelta64(30, "s")
_SECOND: Final = np.timedelta64(1, "s")
_MINUTE: Final = np.timedelta64(1, "m")


def room_after(length: np.timedelta64) -> np.timedelta64:
    """Return how much of a file after a window has to be read to tell whether the window lies in a gap."""
    return _BESIDE * length


def gap_warnings(times: Times, at: np.datetime64, length: np.timedelta64, *, freed: Times) -> tuple[str, ...]:
    """Say what a window [`at`, `at` + `length`) probably lacks.

    Parameters
    ----------
    times : ndarray of datetime64
        Ascending: when the trips around the window were asked for, inside or outside any area.
    freed : ndarray of datetime64
        When the trips were asked for at whose ends the window's vehicles stand.
    """
    inside = times[slice(*np.searchsorted(times, [at, at + length]))]
    if not len(inside):
        return ()
    seconds = float(length / _SECOND)
    if not _without_seconds(times):
        missing = _pause(inside, at, length) or _hardly_any(times, at, length, found=len(inside))
    elif length % _MINUTE:
        missing = (
            f"The times in this file have no seconds, so that a window of {seconds:g} seconds holds the trips of a "
            "whole minute; choose --seconds 60, or a file with seconds."
        )
    else:
        missing = None
    return (*((missing,) if missing else ()), *_old_vehicles(at, freed, rate=(len(inside), seconds)))


def _without_seconds(times: Times) -> bool:
    return len(times) >= _FEW and bool((times == times.astype("datetime64[m]")).all())


def _pause(inside: Times, at: np.datetime64, length: np.timedelta64) -> str | None:
    """Tell of a stretch of the window without trips that is too long for chance."""
    marks = np.concatenate(([at], inside, [at + length]))
    pauses = np.diff(marks)
    longest = int(pauses.argmax())
    pause = pauses[longest]
    if pause < max(_SHARE * length, _SHORTEST) or _chance_of_pause(len(inside), float(pause / length)) > _BY_CHANCE:
        return None
    where = "begins" if longest == 0 else "ends" if longest == len(pauses) - 1 else "has a gap"
    return (
        f"The file {where} within this window: for {pause / _SECOND:g} of its {length / _SECOND:g} seconds, from "
        f"{marks[longest].astype(datetime):%H:%M:%S} on, it holds no trip, and {len(inside):,} in the others; requests "
        "are missing."
    )


def _chance_of_pause(trips: int, share: float) -> float:
    """Return how likely it is at most that trips at random times leave such a share of a window empty at a stretch.

    One of trips + 1 spacings is longer than the share with probability (1 - share)^trips each.
    """
    return (trips + 1) * max(0.0, 1.0 - share) ** trips


def _hardly_any(times: Times, at: np.datetime64, length: np.timedelta64, *, found: int) -> str | None:
    """Tell of a window with hardly any trips beside windows with many."""
    starts = at + np.arange(-_BESIDE, _BESIDE + 1) * length
    counts = np.searchsorted(times, starts + length) - np.searchsorted(times, starts)
    usual = float(np.quantile(counts, 0.75))
    if usual < _FEW or _EMPTIER * found >= usual:
        return None
    return (
        f"Hardly any trips: {found} in this window, and {usual:,.0f} and more in a quarter of the windows around it; "
        "the file has a gap here, or holds a part of the trips only."
    )


def _old_vehicles(at: np.datetime64, freed: Times, *, rate: tuple[int, float]) -> tuple[str, ...]:
    """Tell of vehicles from before a gap: trips of the last minutes are missing, so these come from earlier ones."""
    if not len(freed):
        return ()
    pauses = np.diff(np.append(np.sort(freed), at))
    longest = int(pauses.argmax())
    trips, seconds = rate
    # If trips came as often in the pause as in the window, all of them would have to fall into the window by chance.
    by_chance = (seconds / (seconds + float(pauses[longest] / _SECOND))) ** trips
    if pauses[longest] < _PAUSE or by_chance > _BY_CHANCE:
        return ()
    return (
        f"{longest + 1} of {len(freed)} vehicles stand where trips from before a gap of {_words(pauses[longest])} "
        "ended, because the file begins or has a gap shortly before this window; choose a later time for vehicles of "
        "the last minutes.",
    )


def _words(pause: np.timedelta64) -> str:
    seconds = float(pause / _SECOND)
    for length, unit in ((86400, "days"), (3600, "hours"), (60, "minutes")):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} seconds"
