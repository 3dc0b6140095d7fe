"""A domain of one's own: chargers on a road. A type is (km, how much a euro matters), a region a stretch and a purse.

    palmatch match drivers.csv chargers.csv --domain chargers:Chargers --set stretch=10 --out charging.csv

Everything that a region tells is public: here the stretch of road, and the purse.
"""

from pathlib import Path

import numpy as np
import polars as pl

import palmatch as pm


class Chargers:
    """Chargers at `km` of a road with a `price`; the possible drivers of a stretch stand at every km."""

    # What tables and pages call them.
    nouns = (("agent", ("driver", "drivers")), ("resource", ("charger", "chargers")))

    def __init__(self, km, price, stretch):
        self.km, self.price, self.stretch = np.asarray(km), np.asarray(price), int(stretch)

    @classmethod
    def from_frames(cls, agents, resources, stretch=10):
        """Make the domain, and the drivers' types, of two files; `--set stretch=20` gives longer stretches."""
        domain = cls(resources["km"], resources["price"], stretch)
        return domain, agents.select("km", "purse").to_numpy()

    def utility(self, types, columns=None):
        """Return what each charger is worth to each type, in (0, 1]."""
        km, price = (each if columns is None else each[columns] for each in (self.km, self.price))
        return np.exp(-np.abs(types[:, :1] - km) / 10 - types[:, 1:] * price)

    def region_of(self, types):
        """Return the public region of each type."""
        return [(int(km // self.stretch), float(purse)) for km, purse in types]

    def types_of(self, region):
        """Return the possible types of a region."""
        number, purse = region
        return np.array([(number * self.stretch + km, purse) for km in range(self.stretch)], dtype=float)

    def representative(self, region):  # noqa: ARG002 - the same place in every stretch
        """Return which of the possible types stands for the region."""
        return self.stretch // 2


if __name__ == "__main__":
    here = Path(__file__).parent
    drivers, chargers = pl.read_csv(here / "drivers.csv"), pl.read_csv(here / "chargers.csv")
    domain, types = Chargers.from_frames(drivers, chargers)
    problem = pm.make_problem(domain, types, agent_ids=drivers["id"], resource_ids=chargers["id"])
    print(pm.match(problem, epsilon=2.0).to_frame())
