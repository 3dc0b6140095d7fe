"""Optimal assignments of many small crowds, compiled: what scipy's `linear_sum_assignment` finds, ties included.

Scipy's takes half a second to be imported, and crowds whose agents often share a row differ in nothing but their rows.
Shortest augmenting paths (Crouse 2016), in the order in which scipy looks at rows and columns.
"""

from __future__ import annotations

import numba
import numpy as np

from palmatch.problem import FloatArray, IntArray


def assignments(costs: FloatArray, rows: IntArray) -> IntArray:
    """Return `linear_sum_assignment(costs[some])` for each row `some` of `rows`, shape (crowds, 2, pairs)."""
    pairs: IntArray = compiled_assignments(np.ascontiguousarray(costs), np.ascontiguousarray(rows))
    return pairs


@numba.njit(cache=True, nogil=True)
def compiled_assignments(costs, rows):  # type: ignore[no-untyped-def]  # compiled
    """Return the pairs of all crowds; see `assignments`."""
    agents, columns = rows.shape[1], costs.shape[1]
    few, many = min(agents, columns), max(agents, columns)
    pairs, table = np.empty((len(rows), 2, few), dtype=np.int64), np.empty((few, many))
    for crowd in range(len(rows)):
        # There are at least as many columns as rows.
        for agent in range(agents):
            for column in range(columns):
                cost = costs[rows[crowd, agent], column]
                if agents <= columns:
                    table[agent, column] = cost
                else:
                    table[column, agent] = cost
        column_of = _assigned(table)
        if agents <= columns:
            for agent in range(few):
                pairs[crowd, 0, agent], pairs[crowd, 1, agent] = agent, column_of[agent]
        else:
            for place, column in enumerate(np.argsort(column_of)):
                pairs[crowd, 0, place], pairs[crowd, 1, place] = column_of[column], column
    return pairs


@numba.njit(cache=True, nogil=True)
def _assigned(table):  # type: ignore[no-untyped-def]  # compiled
    """Return the column of each row."""
    rows, columns = table.shape
    of_rows, of_columns, shortest = np.zeros(rows), np.zeros(columns), np.empty(columns)
    column_of, row_of = np.full(rows, -1, dtype=np.int64), np.full(columns, -1, dtype=np.int64)
    came_from, remaining = np.empty(columns, dtype=np.int64), np.empty(columns, dtype=np.int64)
    looked_at = np.empty(rows, dtype=np.int64)
    for new in range(rows):
        # In reverse order, so that equal costs give the identity.
        for place in range(columns):
            remaining[place], shortest[place] = columns - place - 1, np.inf
        row, length, left, seen, sink = new, 0.0, columns, 0, -1
        while sink < 0:
            looked_at[seen] = row
            seen += 1
            index, lowest = -1, np.inf
            for place in range(left):
                column = remaining[place]
                reduced = length + table[row, column] - of_rows[row] - of_columns[column]
                if reduced < shortest[column]:
                    shortest[column], came_from[column] = reduced, row
                # Of equal ones, one that ends the path.
                if shortest[column] < lowest or (shortest[column] == lowest and row_of[column] < 0):
                    index, lowest = place, shortest[column]
            length, column = lowest, remaining[index]
            if row_of[column] < 0:
                sink = column
            else:
                row = row_of[column]
            left -= 1
            # What was reached is behind those that remain.
            remaining[index], remaining[left] = remaining[left], column
        of_rows[new] += length
        for place in range(1, seen):
            of_rows[looked_at[place]] += length - shortest[column_of[looked_at[place]]]
        for place in range(left, columns):
            of_columns[remaining[place]] -= length - shortest[remaining[place]]
        column = sink
        while True:
            row = came_from[column]
            row_of[column] = row
            column_of[row], column = column, column_of[row]
            if row == new:
                break
    return column_of
