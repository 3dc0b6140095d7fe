"""A proof of the limit that any reader can check: whole numbers only, and no solver.

Utilities are rounded up, a prior is known to within one unit for each type, and e^ε is replaced by a rational number
that is not below it. All are whole numbers, so that `check` is exact: for every group and resource it compares two
integers. docs/limit.md proves that the bound then holds. This module must not know how dual prices and multipliers were
found.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Context, Decimal
from fractions import Fraction
from math import inf, isfinite, isinf, nextafter
from typing import Any

import numpy as np

from palmatch.errors import InputError
from palmatch.limits.program import Group, Program, layout_of
from palmatch.limits.solver import Solution, repair_dual
from palmatch.problem import FloatArray, IntArray

FORMAT = "palmatch-limit-2"

# Utilities are multiples of 1 / 65535, rounded up; prices and multipliers are 4096 times finer; priors are rounded to
# multiples of 2^-48, which is coarser than the rounding of floating-point numbers that sum to 1.
STEPS, FINER, MASS = 65535, 4096, 2**48
UNIT = STEPS * FINER

# Of fewer types than this no sum that `check` forms is beyond 63 bits.
_MOST_TYPES = 2**17

# A larger ε counts as infinite, which is the weaker guarantee: what is proved for it holds.
_LARGEST = 700.0


@dataclass(frozen=True, slots=True, eq=False)
class GroupProof:
    """One group of a certificate, in whole numbers.

    Attributes
    ----------
    region, agents, epsilon:
        The region's name, how many agents it has with this ε, and that ε.
    resources:
        Row numbers of the resources that its agents may hold.
    utilities:
        (types, resources): multiples of 1 / `STEPS`, not below the true ones.
    weights:
        The prior in multiples of 1 / `MASS`, to within one.
    multipliers:
        λ of each type, in multiples of 1 / `UNIT`.
    """

    region: str
    agents: int
    epsilon: float
    resources: IntArray
    utilities: IntArray
    weights: IntArray
    multipliers: IntArray


@dataclass(frozen=True, slots=True, eq=False)
class Certificate:
    """Dual prices and multipliers that prove `bound`: no method with this guarantee has a larger expected welfare.

    `prices` are multiples of 1 / `UNIT`, one for each resource; `capacities` say how many agents may hold each.
    """

    groups: tuple[GroupProof, ...]
    prices: IntArray
    capacities: IntArray
    delta: float
    bound: float


def certify(program: Program, solution: Solution) -> Certificate:
    """Return a certificate with the prices of a solution and multipliers that are just large enough."""
    prices = np.clip(np.ceil(solution.prices * UNIT), 0, UNIT).astype(np.int64)
    rounded = [_rounded(group) for group in program.groups]
    coarse = [
        Group(g.region, g.agents, g.epsilon, w / w.sum(), u / STEPS, g.resources)
        for g, (u, w) in zip(program.groups, rounded, strict=True)
    ]
    kept = [own[w > 0] for own, (_, w) in zip(solution.multipliers, rounded, strict=True)]
    layout = layout_of(Program(tuple(coarse), program.capacities))
    needed = repair_dual(layout, np.concatenate(kept), prices / UNIT, np.ones(len(layout.at), dtype=np.bool_))
    proofs = []
    for group, (utilities, weights), own, more in zip(
        program.groups, rounded, solution.multipliers, needed, strict=True
    ):
        proofs.append(_proof(group, utilities, weights, own + more, prices))
    capacities = program.capacities.astype(np.int64)
    draft = Certificate(tuple(proofs), prices, capacities, program.delta, inf)
    return Certificate(draft.groups, prices, capacities, program.delta, above(_value(draft)))


def _rounded(group: Group) -> tuple[IntArray, IntArray]:
    utilities = np.clip(np.ceil(group.utilities * (STEPS * (1 + 1e-12))), 0, STEPS).astype(np.int64)
    return utilities, np.rint(group.prior * MASS).astype(np.int64)


def _proof(
    group: Group, utilities: IntArray, weights: IntArray, multipliers: FloatArray, prices: IntArray
) -> GroupProof:
    """Return the group's part, with multipliers raised by as few units as make every comparison hold."""
    whole = np.ceil(np.clip(multipliers, 0.0, 1.0) * UNIT).astype(np.int64)
    # A type that never occurs costs nothing, and must not gain: it may occur by as much as rounding.
    gains = (FINER * utilities - prices[group.resources]).max(axis=1, initial=0)
    whole = np.where(weights > 0, whole, np.maximum(whole, gains))
    more = 0
    while True:
        lifted = np.minimum(whole + more, UNIT)
        proof = GroupProof(group.region, group.agents, group.epsilon, group.resources, utilities, weights, lifted)
        # At λ = 1 everything holds, since no utility is above 1.
        if _first_failure(proof, prices) is None or (lifted == UNIT).all():
            return proof
        more = 2 * more + 1


def check(certificate: Certificate | Mapping[str, Any], program: Program | None = None) -> Fraction:
    """Return the bound that a certificate proves, in exact arithmetic.

    Parameters
    ----------
    certificate:
        A `Certificate`, or what stands under "certificate" in the JSON of `palmatch limit`.
    program:
        What the certificate has to be about. Without one, the bound is about the regions, agents, priors, utilities and
        capacities that the certificate itself states.

    Returns
    -------
    The expected welfare that no method exceeds. An `InputError` says where a certificate proves nothing, or less than
    it states, or something about other agents or resources.

    References
    ----------
    Page "The limit", [Theorem][] and [The certificate][].
    """
    proof = certificate if isinstance(certificate, Certificate) else from_json(certificate)
    resources = len(proof.capacities)
    if not _whole(proof.prices, UNIT) or proof.prices.shape != (resources,):
        raise InputError(f"The certificate proves nothing: expected {resources} prices from 0 to 1.")
    if not _whole(proof.capacities) or not 0.0 <= proof.delta < 1.0 or not isfinite(proof.bound):
        raise InputError(
            "The certificate proves nothing: expected a finite bound, capacities of at least 0, and delta from 0 to 1."
        )
    for group in proof.groups:
        _check_group(group, proof.prices)
    value = _value(proof)
    if not value <= Fraction(proof.bound):
        raise InputError(
            f"The certificate states {proof.bound}, but its prices and multipliers prove {above(value)} only."
        )
    if program is not None:
        _check_subject(proof, program)
    return value


def _whole(values: IntArray, most: int | None = None) -> bool:
    """Tell whether these are whole numbers from 0 to `most`."""
    return values.dtype == np.int64 and bool((values >= 0).all()) and (most is None or bool((values <= most).all()))


def _check_group(group: GroupProof, prices: IntArray) -> None:
    types, columns = len(group.weights), len(group.resources)
    where = f"The certificate proves nothing in region {group.region}: "
    if group.utilities.shape != (types, columns) or group.multipliers.shape != (types,):
        raise InputError(where + f"expected utilities and multipliers of {types} types and {columns} resources.")
    if not _whole(group.resources, len(prices) - 1) or len(set(group.resources.tolist())) < columns:
        raise InputError(where + "expected different resources that have a price.")
    if not (isinstance(group.agents, int) and group.agents >= 0 and group.epsilon >= 0):
        raise InputError(where + "expected a whole number of agents and epsilon, both of at least 0.")
    if not _whole(group.weights, MASS) or not abs(sum(group.weights.tolist()) - MASS) <= types < _MOST_TYPES:
        raise InputError(where + "expected the weights of a prior.")
    if not _whole(group.utilities, STEPS):
        raise InputError(where + "expected utilities from 0 to 1.")
    if not _whole(group.multipliers, UNIT):
        raise InputError(where + "expected multipliers from 0 to 1.")
    failure = _first_failure(group, prices)
    if failure is not None:
        raise InputError(where + f"a channel gains on resource {group.resources[failure]} at these prices.")


def _check_subject(proof: Certificate, program: Program) -> None:
    """Refuse a certificate that says less than what a program is about; saying more only raises the bound."""
    where = "The certificate is about something else: "
    if len(proof.groups) != len(program.groups):
        raise InputError(where + f"expected {len(program.groups)} groups of agents, got {len(proof.groups)}.")
    if proof.capacities.shape != program.capacities.shape or not (proof.capacities >= program.capacities).all():
        raise InputError(where + "its capacities are others.")
    if proof.delta < program.delta:
        raise InputError(where + f"expected delta = {program.delta:g}, got {proof.delta:g}.")
    for own, group in zip(proof.groups, program.groups, strict=True):
        inside = where + f"in region {group.region}, "
        if own.agents < group.agents or own.epsilon < group.epsilon:
            raise InputError(
                inside + f"expected {group.agents} agents with epsilon = {group.epsilon:g}, "
                f"got {own.agents} with {own.epsilon:g}."
            )
        if not np.array_equal(own.resources, group.resources):
            raise InputError(inside + "its resources are others.")
        # Half a unit of rounding, and room for arithmetic that differs by processor.
        if own.weights.shape != group.prior.shape or not (abs(own.weights - group.prior * MASS) <= 0.75).all():
            raise InputError(inside + "its prior is another.")
        if own.utilities.shape != group.utilities.shape or not _covers(own.utilities, group.utilities):
            raise InputError(inside + "its utilities are below the true ones.")


def _covers(stated: IntArray, true: FloatArray) -> bool:
    """Tell whether multiples of 1 / `STEPS` are not below the true utilities."""
    near = stated < true * (STEPS * (1 + 1e-12))
    return all(Fraction(u) * STEPS <= s for u, s in zip(true[near].tolist(), stated[near].tolist(), strict=True))


def _first_failure(group: GroupProof, prices: IntArray) -> int | None:
    """Return a column on which some channel gains, None where Σ π φ(λ + p - u) >= 0 for all of them."""
    with_room, without = _sides(group, prices)
    if group.epsilon > _LARGEST:
        return next((column for column, gain in enumerate(without) if gain > 0), None)
    ratio = exp_above(group.epsilon)
    for column, (room, gain) in enumerate(zip(with_room, without, strict=True)):
        if room * ratio.denominator < gain * ratio.numerator:
            return column
    return None


def _sides(group: GroupProof, prices: IntArray) -> tuple[list[int], list[int]]:
    """Return a number not above Σ π (λ + p - u)_+ and one not below Σ π (u - λ - p)_+ of every column.

    In units of 1 / (`MASS` · `UNIT`): a prior is at least its weight less one unit, and at most its weight and one.
    """
    room = group.multipliers[:, None] + prices[group.resources][None, :] - FINER * group.utilities
    least, most = np.maximum(group.weights - 1, 0), group.weights + 1
    return _product(least, np.maximum(room, 0)), _product(most, np.maximum(-room, 0))


def _product(weights: IntArray, table: IntArray) -> list[int]:
    """Return weights @ table exactly: in two parts that fit into 63 bits, since entries are below 2^29."""
    high, low = (weights >> 16) @ table, (weights & 0xFFFF) @ table
    return [(one << 16) + other for one, other in zip(high.tolist(), low.tolist(), strict=True)]


def _value(proof: Certificate) -> Fraction:
    """Return Σ capacity·p + Σ agents (Σ π λ + δ Σ π (u - λ - p)_+), with every prior at its largest."""
    total = Fraction(sum(c * p for c, p in zip(proof.capacities.tolist(), proof.prices.tolist(), strict=True)), UNIT)
    for group in proof.groups:
        own = Fraction(_product(group.weights + 1, group.multipliers[:, None])[0])
        if proof.delta > 0:
            own += Fraction(proof.delta) * sum(_sides(group, proof.prices)[1])
        total += group.agents * own / (MASS * UNIT)
    return total


def exp_above(epsilon: float) -> Fraction:
    """Return a rational number that is not below e^ε and above it by less than one part in 10^50, for ε <= 700."""
    # Decimal's exponential is correctly rounded at any precision.
    rounded = Context(prec=60).exp(Decimal(epsilon))
    return Fraction(rounded) * (1 + Fraction(1, 10**55)) if epsilon else Fraction(1)


def above(value: Fraction) -> float:
    """Return a floating-point number that is not below a rational one."""
    near = float(value)
    return near if Fraction(near) >= value else nextafter(near, inf)


def to_json(certificate: Certificate) -> dict[str, Any]:
    """Return a certificate as plain data; arrays are compressed."""
    return {
        "format": FORMAT,
        "bound": certificate.bound,
        "delta": certificate.delta,
        "capacities": _packed(certificate.capacities),
        "prices": _packed(certificate.prices),
        "groups": [
            {
                "region": group.region,
                "agents": group.agents,
                "epsilon": "inf" if isinf(group.epsilon) else group.epsilon,
                "types": len(group.weights),
                "resources": _packed(group.resources),
                "weights": _packed(group.weights),
                "multipliers": _packed(group.multipliers),
                "utilities": _packed(group.utilities),
            }
            for group in certificate.groups
        ],
    }


def from_json(content: Mapping[str, Any]) -> Certificate:
    """Return the certificate that `to_json` wrote."""
    try:
        if content["format"] != FORMAT:
            raise InputError(f"Expected a certificate of format {FORMAT}, got {content['format']!r}.")
        return Certificate(
            groups=tuple(_group_from(group) for group in content["groups"]),
            prices=_unpacked(content["prices"]),
            capacities=_unpacked(content["capacities"]),
            delta=float(content["delta"]),
            bound=float(content["bound"]),
        )
    except (AttributeError, KeyError, TypeError, ValueError, zlib.error) as error:
        raise InputError(f"This is no certificate of `palmatch limit`: {error!r}.") from None


def _group_from(content: Mapping[str, Any]) -> GroupProof:
    resources, weights = _unpacked(content["resources"]), _unpacked(content["weights"])
    return GroupProof(
        region=str(content["region"]),
        agents=content["agents"],
        epsilon=float(content["epsilon"]),
        resources=resources,
        utilities=_unpacked(content["utilities"]).reshape(len(weights), len(resources)),
        weights=weights,
        multipliers=_unpacked(content["multipliers"]),
    )


def _packed(values: IntArray) -> str:
    """Return whole numbers as base64 of compressed little-endian bytes, after the width of a number and a colon."""
    width = next(w for w in (2, 4, 8) if values.size == 0 or values.max() < 2 ** (8 * w - (w == 8)))
    return f"{width}:" + base64.b64encode(zlib.compress(values.astype(f"<u{width}").tobytes(), 9)).decode("ascii")


def _unpacked(text: str) -> IntArray:
    width, _, body = text.partition(":")
    if width not in ("2", "4", "8"):
        raise ValueError("a list of numbers that begins with its width")
    return np.frombuffer(zlib.decompress(base64.b64decode(body)), dtype=f"<u{width}").astype(np.int64)
