"""What is guaranteed on the wire, and what a device has revealed, each in a sentence."""

from __future__ import annotations

from palmatch.device.ledger import epsilon_text, units_of
from palmatch.device.rounds import RoundsMachine
from palmatch.device.state import Machine
from palmatch.guarantee import FRESH_RANDOMNESS, pldp_statement, simulated
from palmatch.matching import Guarantee
from palmatch.methods.registry import METHODS

NOT_COVERED = (
    "The region itself, and that a device takes part, when, and from which network address.",
    "The resource that serves an agent learns its position, a gateway those of all agents that it serves; that the "
    "board and this resource collude.",
    "Further requests, and in `rounds` further games: each is charged to the device's ledger, and guarantees of one "
    "agent add up.",
    "Whether and when its owner cancels, waits for a further game, or does not come: the device accepts what it got.",
    "How long the machine of a device takes to compute, measured by programs on the same machine.",
)


def on_the_wire(protocol: str, epsilon: float, *, seeded: bool) -> Guarantee:
    """Return the guarantee against all other parties together, but for the resource that serves the agent.

    It is that of one request, which in `rounds` is played in one game.
    """
    method = next(method for method in METHODS.values() if protocol in method.live)
    found = Guarantee(
        epsilon=epsilon,
        delta=0.0,
        notion="PLDP",
        accountant="pure" if method.game is not None else "one report",
        statement=pldp_statement(epsilon),
        assumptions=(
            "The observer sees all traffic, its sizes and times, and may be the board, the broker, the issuer, the "
            "other devices and the other resources together.",
            "The device runs this code, keeps its ledger, and was given the operator's trust file.",
            FRESH_RANDOMNESS,
        ),
        applies_to="every device that takes part; one with a smaller ε has that ε",
        not_covered=NOT_COVERED,
    )
    return simulated(found) if seeded else found


def revealed(machine: Machine, edge: float, *, charged: bool, served_by: str | None = None) -> str:
    """Return one sentence about what a device has revealed in a game, `served_by` being the resource that it got."""
    square = f"its region {machine.owner.place.region}, a square of {edge:g} m"
    region = f"that it takes part, and {square}"
    served = "" if served_by is None else f" To {served_by} alone: its position."
    if machine.left:
        return (
            "Revealed: to the issuer, that it asked for a token; to the hub or broker, where it listened, "
            f"{square}. The budget did not suffice, and the device left before it joined."
        )
    if not charged:
        again = "; its stored report again, which is free" if machine.waits else ""
        return f"Revealed: {region}{again}, and nothing else.{served}"
    spent = epsilon_text(units_of(machine.epsilon))
    how = "noisy claims that are" if isinstance(machine, RoundsMachine) else "one report that is"
    return (
        f"Revealed: {region}, and {how} at most e^{spent} times as likely from its place as from any other of "
        f"the {machine.owner.spots} places of that square.{served}"
    )
