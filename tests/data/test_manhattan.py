import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from palmatch.data.tlc import _OUTLINE, manhattan

OUTLINE = np.array(_OUTLINE)
ON_THE_ISLAND = {
    "Times Square": (40.7580, -73.9855),
    "Battery Park City": (40.7115, -74.0160),
    "South Ferry": (40.7013, -74.0131),
    "Stuyvesant Town": (40.7318, -73.9777),
    "East River Park": (40.7170, -73.9750),
    "United Nations": (40.7489, -73.9680),
    "Hospital for Special Surgery": (40.7652, -73.9530),
    "Gracie Mansion": (40.7761, -73.9431),
    "Javits Center": (40.7575, -74.0027),
    "Chelsea Piers": (40.7465, -74.0080),
    "Columbia University": (40.8075, -73.9626),
    "Harlem, 125th Street station": (40.8052, -73.9391),
    "Polo Grounds": (40.8311, -73.9375),
    "George Washington Bridge bus station": (40.8489, -73.9388),
    "The Cloisters": (40.8649, -73.9319),
    "Inwood, 215th Street": (40.8694, -73.9152),
}
OFF_THE_ISLAND = {
    "Roosevelt Island tramway": (40.7574, -73.9540),
    "Roosevelt Island, Main Street": (40.7617, -73.9497),
    "Randalls Island": (40.7932, -73.9212),
    "Wards Island": (40.7830, -73.9310),
    "Governors Island": (40.6895, -74.0168),
    "Liberty Island": (40.6892, -74.0445),
    "Ellis Island": (40.6995, -74.0396),
    "Marble Hill station": (40.8746, -73.9111),
    "Marble Hill, 228th Street": (40.8763, -73.9105),
    "Yankee Stadium, Bronx": (40.8296, -73.9262),
    "Mott Haven, Bronx": (40.8085, -73.9230),
    "Riverdale, Bronx": (40.8860, -73.9130),
    "Long Island City, Queens": (40.7447, -73.9485),
    "Astoria, Queens": (40.7644, -73.9235),
    "Brooklyn Bridge Park": (40.7003, -73.9967),
    "Williamsburg, Brooklyn": (40.7145, -73.9613),
    "Hoboken, New Jersey": (40.7355, -74.0280),
    "Exchange Place, New Jersey": (40.7163, -74.0329),
    "Weehawken, New Jersey": (40.7690, -74.0200),
    "Fort Lee, New Jersey": (40.8509, -73.9701),
    "Kennedy Airport": (40.6413, -73.7781),
    "LaGuardia Airport": (40.7769, -73.8740),
    "a receiver without a fix": (0.0, 0.0),
}


def test_places_on_the_island_count_as_manhattan_and_places_across_the_water_do_not():
    assert [place for place, degrees in ON_THE_ISLAND.items() if not manhattan(*degrees)] == []
    assert [place for place, degrees in OFF_THE_ISLAND.items() if manhattan(*degrees)] == []


def test_an_unknown_place_is_not_in_manhattan_and_the_answer_has_the_shape_of_the_question():
    assert manhattan([np.nan, 40.7580, np.inf], [-73.9855, np.nan, -73.9855]).tolist() == [False, False, False]
    assert manhattan(np.full((2, 3), 40.7580), -73.9855).tolist() == [[True] * 3] * 2
    assert manhattan([], []).shape == (0,)


@given(north=st.floats(40.69, 40.89), east=st.floats(-74.03, -73.90))
@settings(max_examples=300)
def test_inside_is_what_the_outline_winds_around(north, east):
    # On the line itself neither answer is wrong.
    assume(_from_the_line(north, east) > 1e-9)
    assert bool(manhattan(north, east)) == _winds_around(north, east)


def _winds_around(north, east):
    """Sum the angles under which the edges are seen: a full turn from inside, none from outside."""
    seen = np.arctan2(OUTLINE[:, 0] - north, OUTLINE[:, 1] - east)
    turns = np.diff(np.append(seen, seen[0]))
    turns = (turns + np.pi) % (2 * np.pi) - np.pi
    return bool(abs(turns.sum()) > np.pi)


def _from_the_line(north, east):
    """Return how many degrees a place is from the nearest edge of the outline."""
    place, start = np.array([north, east]), OUTLINE
    along = np.roll(OUTLINE, -1, axis=0) - start
    share = np.clip(((place - start) * along).sum(axis=1) / (along**2).sum(axis=1), 0, 1)
    return float(np.hypot(*(start + share[:, None] * along - place).T).min())
