"""Dispatch the taxis of Eclipse SUMO by palmatch, and tell how long passengers wait: --out FOLDER [--net FILE]."""

import argparse
import subprocess
import xml.etree.ElementTree as ET
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import matplotlib.pyplot as plt
import numpy as np
import polars as pl
import sumolib
import traci
from scipy.stats import t

import palmatch as pm

METHODS = ("greedy", "hungarian", "hungarian-region", "once", "published")
EDGE, EPSILON, EVERY, LONGEST = 1000.0, 1.0, 30, 4 * 3600
# The net is put where a degree has the same length either way, so that degrees follow from its metres.
ORIGIN, METRES_PER_DEGREE = (0.0, 0.0), 111_195.08


def write_demand(folder, net, agents, taxis, seed):
    """Write taxis that stand somewhere, and passengers who ask for a ride within half an hour."""
    rng = np.random.default_rng(seed)
    edges, routes = [edge for edge in net.getEdges() if edge.allows("taxi")], ET.Element("routes")
    ET.SubElement(
        ET.SubElement(routes, "vType", id="taxi", vClass="taxi"), "param", key="has.taxi.device", value="true"
    )
    for number, row in enumerate(rng.integers(len(edges), size=taxis)):
        taxi = ET.SubElement(routes, "vehicle", id=f"taxi-{number}", type="taxi", depart="0", departPos="random_free")
        ET.SubElement(taxi, "route", edges=edges[row].getID())
    for number, depart in enumerate(np.sort(rng.integers(1800, size=agents))):
        start, end = (edges[row] for row in rng.integers(len(edges), size=2))
        first, last = (f"{rng.uniform(0.1, 0.9) * edge.getLength():.1f}" for edge in (start, end))
        agent = ET.SubElement(routes, "person", id=f"agent-{number}", depart=f"{depart}", departPos=first)
        ET.SubElement(agent, "ride", {"from": start.getID(), "to": end.getID(), "arrivalPos": last, "lines": "taxi"})
    ET.ElementTree(routes).write(folder / "demand.rou.xml")


def places(ids, positions):
    """Return a table of places, in degrees."""
    north, east = np.array(positions)[:, ::-1].T / METRES_PER_DEGREE
    return pl.DataFrame({"id": ids, "lat": north, "lon": east})


def match_paying_once(agents, taxis, method, seed, paid):
    """Match by a method that keeps no reports: a passenger who was not matched has no ε left in the next batch."""
    epsilon = pl.Series([0.0 if name in paid else EPSILON for name in agents["id"]])
    paid.update(agents["id"])
    problem = pm.mobility.problem(agents.with_columns(epsilon=epsilon), taxis, edge=EDGE, origin=ORIGIN)
    return pm.match(problem, method, seed=seed)


def play(net_file, method, agents, taxis, seed):
    """Return how many seconds each passenger waited until the taxi came."""
    with (
        TemporaryDirectory() as name,
        pm.Session(store=f"{name}/budgets.ledger", epsilon=EPSILON, edge=EDGE, origin=ORIGIN, seed=seed) as session,
    ):
        match = session.match if method == "once" else partial(match_paying_once, method=method, seed=seed, paid=set())
        write_demand(folder := Path(name), sumolib.net.readNet(str(net_file)), agents, taxis, seed)
        traci.start([
            sumolib.checkBinary("sumo"), "-n", str(net_file), "-r", str(folder / "demand.rou.xml"), "--seed", str(seed),
            "--device.taxi.dispatch-algorithm", "greedy" if method == "greedy" else "traci",
            "--device.taxi.dispatch-period", str(EVERY), "--tripinfo-output", str(folder / "trips.xml"),
            "--no-step-log", "--no-warnings",
        ], stdout=subprocess.DEVNULL)  # fmt: skip
        arrived = 0
        for now in range(1, LONGEST):
            traci.simulationStep()
            arrived += len(traci.simulation.getArrivedPersonIDList())
            if arrived == agents:
                break
            waiting = {} if now % EVERY else {one.persons[0]: one.id for one in traci.person.getTaxiReservations(3)}
            if waiting and method != "greedy" and (free := traci.vehicle.getTaxiFleet(0)):
                asking = places(list(waiting), [traci.person.getPosition(agent) for agent in waiting])
                matching = match(asking, places(free, [traci.vehicle.getPosition(taxi) for taxi in free]))
                for agent, taxi in matching.pairs:
                    traci.vehicle.dispatchTaxi(taxi, [waiting[agent]])
                session.end(agent for agent, _ in matching.pairs)
        traci.close()
        waits = np.array([float(ride.get("waitingTime")) for ride in ET.parse(folder / "trips.xml").iter("ride")])
        return waits if len(waits) == agents else exit(f"{method}: found {len(waits)} rides of {agents} passengers.")


def main():
    """Play all methods on the same requests, and write the table and the picture."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--net", type=Path, help="a SUMO net; otherwise a grid of 4 km by 4 km is made")
    for name, value in (("agents", 300), ("taxis", 60), ("seeds", 5)):
        parser.add_argument(f"--{name}", type=int, default=value)
    (chosen := parser.parse_args()).out.mkdir(parents=True, exist_ok=True)
    if (net := chosen.net) is None:
        grid = ("--grid", "--grid.number", "21", "--grid.length", "200", "-o", str(net := chosen.out / "grid.net.xml"))
        subprocess.run([sumolib.checkBinary("netgenerate"), *grid], check=True, stdout=subprocess.DEVNULL)
    rows = []
    for method in METHODS:
        waits = [play(net, method, chosen.agents, chosen.taxis, seed) for seed in range(chosen.seeds)]
        both = np.array([[found.mean(), np.quantile(found, 0.9)] for found in waits])
        interval = t.ppf(0.975, chosen.seeds - 1) * both.std(axis=0, ddof=1) / chosen.seeds**0.5
        rows.append((method, *np.column_stack((both.mean(axis=0), interval)).ravel().round(1).tolist()))
    table = pl.DataFrame(rows, ["method", "mean", "mean ±", "90 %", "90 % ±"], orient="row")
    table.write_csv(chosen.out / "waits.csv")
    print(table)
    figure, axes = plt.subplots(layout="constrained")
    for name in ("mean", "90 %"):
        axes.errorbar(table["method"], table[name], table[f"{name} ±"], fmt="o", capsize=4, label=name)
    axes.set_ylabel("seconds until the taxi comes")
    axes.legend()
    figure.savefig(chosen.out / "waits.png", dpi=150)


if __name__ == "__main__":
    main()
