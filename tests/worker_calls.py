"""What the tests have workers of a cluster compute: in a module that a worker can import."""

import os
import time

import polars as pl

from palmatch.errors import InputError


def square(number: int) -> pl.DataFrame:
    return pl.DataFrame({"number": [number], "square": [number**2], "process": [os.getpid() != MAIN]})


MAIN = int(os.environ.setdefault("PALMATCH_TEST_MAIN", str(os.getpid())))


def mistaken(number: int) -> pl.DataFrame:
    raise InputError(f"The number {number} cannot be used.")


def broken(number: int) -> pl.DataFrame:
    raise ZeroDivisionError(f"in cell {number}")


def slow(number: int) -> pl.DataFrame:
    time.sleep(120)
    return square(number)
