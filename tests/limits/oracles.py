"""Independent twins of the limit: the linear programs as they stand in the text, solved by HiGHS."""

from itertools import combinations, product

import numpy as np
from scipy.optimize import linear_sum_assignment, linprog

from palmatch.limits.program import Group, make_program


def random_program(rng, *, groups=2, types=3, resources=3, epsilon=None, delta=0.0, most=2):
    """Return a small program with random priors, utilities, counts, capacities and budgets."""
    made = []
    for number in range(groups):
        prior = rng.dirichlet(np.ones(types))
        budget = rng.choice([0.0, 0.3, 1.0, 3.0]) if epsilon is None else epsilon
        table = rng.random((types, resources)) * 0.99 + 0.01
        made.append(
            Group(str(number), int(rng.integers(1, most + 1)), float(budget), prior, table, np.arange(resources))
        )
    return make_program(made, rng.integers(0, 3, resources).astype(float), delta=delta)


def value(program, *, minima=None, prices=None):
    """Return the value of the program, constraint by constraint; `prices` replace capacities."""
    sizes = [len(group.prior) * len(group.resources) for group in program.groups]
    first = np.concatenate(([0], np.cumsum(sizes)))
    cost, rows, limits = np.zeros(first[-1]), [], []
    use = np.zeros((len(program.capacities), first[-1]))
    for group, start in zip(program.groups, first, strict=False):
        width = len(group.resources)
        for x, j in product(range(len(group.prior)), range(width)):
            here = start + x * width + j
            worth = group.utilities[x, j] - (0.0 if prices is None else prices[group.resources[j]])
            cost[here] = -group.agents * group.prior[x] * worth
            use[group.resources[j], here] = group.agents * group.prior[x]
            for other in range(len(group.prior)):
                if other != x and np.isfinite(group.epsilon):
                    row = np.zeros(first[-1])
                    row[here], row[start + other * width + j] = 1.0, -np.exp(group.epsilon)
                    rows.append(row)
                    limits.append(program.delta)
        for x in range(len(group.prior)):
            row = np.zeros(first[-1])
            row[start + x * width : start + (x + 1) * width] = 1.0
            rows.append(row)
            limits.append(1.0)
    if prices is None:
        rows += list(use)
        limits += list(program.capacities)
    bounds = (0, None)
    if minima is not None:
        ratio = program.groups[0].ratio
        bounds = [(m, ratio * m) for _ in program.groups[0].prior for m in minima]
    answer = linprog(cost, A_ub=np.array(rows), b_ub=limits, bounds=bounds, method="highs")
    assert answer.status == 0
    return -answer.fun


def trusted_centre(program):
    """Return the largest expected welfare of any private mechanism of a trusted centre: M(assignment | all types).

    Exhaustive: a probability for every assignment and profile of types, (ε, δ)-close between any two profiles that
    differ in one agent.
    """
    agents = [group for group in program.groups for _ in range(group.agents)]
    resources = len(program.capacities)
    outcomes = [
        outcome
        for outcome in product(range(-1, resources), repeat=len(agents))
        if all(outcome.count(j) <= program.capacities[j] for j in range(resources))
    ]
    profiles = list(product(*(range(len(agent.prior)) for agent in agents)))
    place = {key: number for number, key in enumerate(product(profiles, outcomes))}
    cost = np.zeros(len(place))
    ratios, pairs = [], {}
    for (profile, outcome), here in place.items():
        chance = np.prod([agent.prior[x] for agent, x in zip(agents, profile, strict=True)])
        worth = [agent.utilities[x, j] for agent, x, j in zip(agents, profile, outcome, strict=True) if j >= 0]
        cost[here] = -chance * sum(worth)
        for number, agent in enumerate(agents):
            for x in range(len(agent.prior)):
                if x != profile[number]:
                    other = (*profile[:number], x, *profile[number + 1 :])
                    row = np.zeros(len(place))
                    row[here], row[place[other, outcome]] = 1.0, -np.exp(agent.epsilon)
                    ratios.append(row)
                    pairs.setdefault((profile, other), []).append(len(ratios) - 1)
    # What exceeds e^ε times the other probability, over all outcomes of a pair of profiles, is at most δ.
    spent = np.zeros((len(pairs), len(ratios)))
    for number, members in enumerate(pairs.values()):
        spent[number, members] = 1.0
    over = np.block([[np.array(ratios), -np.eye(len(ratios))], [np.zeros((len(pairs), len(place))), spent]])
    sums = np.array([[float(profile == own) for own, _ in place] for profile in profiles])
    answer = linprog(
        np.concatenate((cost, np.zeros(len(ratios)))),
        A_ub=over,
        b_ub=np.concatenate((np.zeros(len(ratios)), np.full(len(pairs), program.delta))),
        A_eq=np.hstack((sums, np.zeros((len(profiles), len(ratios))))),
        b_eq=np.ones(len(profiles)),
        bounds=(0, None),
        method="highs",
    )
    assert answer.status == 0
    return -answer.fun


def extreme_channels(types, epsilon):
    """Return all extreme ε-private channels (types x reports) of two or three types, as they stand in the literature.

    One tells nothing; a report is one of two complementary subsets (binary mechanisms), or one of all subsets of a size
    (randomised response, and its complement).
    """
    numbers = range(types)
    subsets = [set(some) for size in range(1, types) for some in combinations(numbers, size)]
    families = [[some, set(numbers) - some] for some in subsets if 0 in some]
    if types > 2:
        families += [[some for some in subsets if len(some) == size] for size in range(1, types)]
    tables = [np.exp(epsilon * np.array([[x in some for some in family] for x in numbers])) for family in families]
    return [np.ones((types, 1)), *(table / table.sum(axis=1, keepdims=True) for table in tables)]


def matched_on_reports(channels, prior, table):
    """Return the expected welfare of a centre that sees a report of each agent and matches by posterior means.

    Of a channel with some of its reports, only what is reached after these is counted.
    """
    total = 0.0
    for reports in product(*(range(channel.shape[1]) for channel in channels)):
        joint = [prior * channel[:, z] for channel, z in zip(channels, reports, strict=True)]
        worth = np.array([own @ table / max(own.sum(), 1e-300) for own in joint])
        rows, columns = linear_sum_assignment(worth, maximize=True)
        total += np.prod([own.sum() for own in joint]) * worth[rows, columns].sum()
    return total
