"""The files that most tests of the command use."""

import polars as pl
import pytest

import palmatch as pm


@pytest.fixture(scope="module")
def town(tmp_path_factory):
    """Return a folder with agents.csv and vehicles.csv: 17 of each, of the synthetic city at night."""
    folder = tmp_path_factory.mktemp("town")
    batch = pm.data.city.batch(5.0)
    for name, places in (("agents", batch.requests), ("vehicles", batch.vehicles)):
        ids = [f"{name[0]}{n}" for n in range(len(places))]
        pl.DataFrame({"id": ids, "lat": places[:, 0], "lon": places[:, 1]}).write_csv(folder / f"{name}.csv")
    return folder
