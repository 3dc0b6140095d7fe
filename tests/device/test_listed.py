"""A table's resources are on the list of the game, or the table is refused; the tree against one by definition."""

from contextlib import suppress
from dataclasses import replace
from hashlib import sha256
from random import Random
from struct import pack, unpack

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from palmatch.device import checks as module
from palmatch.device import messages as m
from palmatch.device import state
from palmatch.device.checks import check_listed, leaf_hash, list_hash, node_hash
from palmatch.device.ledger import units_of
from palmatch.device.messages import pack as packed
from palmatch.device.records import Listed
from palmatch.errors import Refused
from palmatch.live.listing import ListTree
from palmatch.live.records import listed_record

from .games import ROOT, MemoryStore, forged_leaf, outcome, shown
from .test_machines import TABLE, started, told, until_table


def top_by_definition(leaves):
    """The hash of a tree by RFC 6962, section 2.1: the left part has the largest power of two below the whole."""
    if len(leaves) == 1:
        return leaves[0]
    left = 1 << (len(leaves) - 1).bit_length() - 1
    parts = top_by_definition(leaves[:left]) + top_by_definition(leaves[left:])
    return sha256(b"\1" + parts).digest()


def order_by_definition(entries, by=1):
    """Halve the entries by latitude and longitude in turns."""
    if len(entries) < 2:
        return entries
    left = 1 << (len(entries) - 1).bit_length() - 1
    first = sorted(entries, key=lambda entry: (entry[by], entry[0]))[:left]
    rest = [entry for entry in entries if entry not in first]
    return order_by_definition(first, 3 - by) + order_by_definition(rest, 3 - by)


def a_list(random, size):
    names = tuple(f"v{number}" if number % 3 else f"vé{number}" for number in random.sample(range(1000), size))
    at = [(random.choice([40.7, random.uniform(-90, 90)]), random.choice([-74.0, 180.0])) for _ in names]
    return m.ResourceList(names=names, at=packed("d", [degree for place in at for degree in place]))


def entries(listed):
    degrees = unpack(f"<{2 * len(listed.names)}d", listed.at)
    return list(zip(listed.names, degrees[::2], degrees[1::2], strict=True))


def proof_of(tree, names):
    proof = listed_record(tree.proof(names))
    assert proof is not None
    return proof


def is_accepted(names, proof, root):
    return outcome(lambda: check_listed(names, proof, root)) == {"value": None}


@settings(max_examples=150)
@given(st.integers(1, 70), st.integers(0, 10**6))
def test_any_part_of_a_list_is_shown_by_the_fewest_hashes_and_the_root_is_that_of_the_definition(size, seed):
    random = Random(seed)
    listed = a_list(random, size)
    tree, root = ListTree(listed), ListTree(listed).root.hex()
    order = order_by_definition(entries(listed))
    top = top_by_definition([sha256(b"\0" + name.encode()).digest() for name, *_ in order])
    positions = sha256(b"\3" + b"".join(pack("<2d", *at) for _, *at in order)).digest()
    assert root == sha256(b"\2" + pack(">I", size) + top + positions).hexdigest()
    # The order in which the list is written does not matter.
    again = random.sample(entries(listed), size)
    moved = m.ResourceList(names=tuple(one[0] for one in again), at=packed("d", [d for one in again for d in one[1:]]))
    assert ListTree(moved).root.hex() == root
    names = tuple(random.sample(listed.names, random.randint(1, size)))
    proof = proof_of(tree, names)
    assert is_accepted(names, proof, root)
    assert [order[place][0] for place in proof.places] == list(names)
    assert len(proof.hashes) == siblings(size, set(proof.places))
    assert proof_of(tree, listed.names).hashes == ()


def siblings(size, places):
    """How many subtrees without any of these leaves have a sibling with one."""
    if not places:
        return 1
    if size == 1:
        return 0
    left = 1 << (size - 1).bit_length() - 1
    parts = {place for place in places if place < left}, {place - left for place in places if place >= left}
    return siblings(left, parts[0]) + siblings(size - left, parts[1])


def test_two_names_cannot_claim_one_leaf():
    forged = forged_leaf(TABLE)
    assert forged.resources == ("0 forged", "b")
    assert is_accepted(("b",), shown(("b",)), ROOT)
    assert not is_accepted(forged.resources, forged.listed, ROOT)


def test_neighbours_share_most_of_their_proof():
    """10,000 resources evenly spread over 10 km; those of a square of 1.5 km, and as many anywhere."""
    random = Random(1)
    at = [(random.uniform(40.7, 40.79), random.uniform(-74.0, -73.88)) for _ in range(10_000)]
    names = tuple(f"v{number}" for number in range(len(at)))
    tree = ListTree(m.ResourceList(names=names, at=packed("d", [degree for place in at for degree in place])))
    near = tuple(
        name
        for name, (lat, lon) in zip(names, at, strict=True)
        if 0.02 < lat - 40.7 < 0.0335 and 0.03 < lon + 74 < 0.048
    )
    anywhere = tuple(random.sample(names, len(near)))
    assert len(near) > 150
    assert 8 * len(proof_of(tree, near).hashes) < len(proof_of(tree, anywhere).hashes)


NAMES = ("a", "b")
OTHERS = ListTree(m.ResourceList(names=("a", "b", "x"), at=packed("d", [40.0, -74.0, 40.01, -74.0, 41.0, -74.0])))


def forged(proof):
    """Tables that name something which is not on the list, or do not show that it is."""
    swapped = replace(proof, places=proof.places[::-1])
    return {
        "not on the list": (("a", "x"), proof),
        "of another game": (("a", "x"), proof_of(OTHERS, ("a", "x"))),
        "swapped leaves": (NAMES, swapped),
        "swapped names": (NAMES[::-1], proof),
        "other positions": (NAMES, replace(proof, positions=sha256(b"elsewhere").hexdigest())),
        "too few hashes": (NAMES, replace(proof, hashes=proof.hashes[:-1])),
        "too many hashes": (NAMES, replace(proof, hashes=(*proof.hashes, proof.hashes[-1]))),
        "no hashes": (NAMES, replace(proof, hashes=())),
        "an entry twice": (("a", "a"), replace(proof, places=proof.places[:1] * 2)),
        "a resource more": ((*NAMES, "x"), proof),
        "no resource": ((), replace(proof, places=())),
        "another size": (NAMES, replace(proof, size=proof.size + 1)),
        "no proof": (NAMES, None),
    }


@pytest.mark.parametrize("forgery", forged(proof_of(OTHERS, NAMES)))
def test_a_table_with_a_resource_that_is_not_on_the_list_is_refused_before_anything_is_charged(forgery):
    good = shown(NAMES)
    assert good is not None
    names, proof = forged(good)[forgery]
    # As for the rest the tables are all right: with a list of their own they would be played.
    table = replace(TABLE, resources=names, listed=proof)
    store = MemoryStore(units_of(10.0))
    with pytest.raises(Refused) as refusal:
        told(started(store=store), *until_table(table=table))
    assert refusal.value.code == "listed"
    assert store.charges == []


def test_a_device_that_did_not_look_at_the_list_would_be_found(monkeypatch):
    """A planted bug: the check is left out."""
    monkeypatch.setattr(state, "check_listed", lambda *_: None)
    store = MemoryStore(units_of(10.0))
    told(started(store=store), *until_table(table=replace(TABLE, resources=("a", "x"))))
    assert store.charges == [units_of(1.0)]


POSITIONS = bytes(32)


def oversized(names, proof):
    """What a device could hash for as long as a board likes."""
    many = tuple(f"v{number}" for number in range(m.MANY + 1))
    return {
        "too many hashes": (names, replace(proof, hashes=proof.hashes * 10_000)),
        "too large a list": (names, replace(proof, size=m.MANY + 1)),
        "too many entries": (many, Listed(len(many), tuple(range(len(many))), (), proof.positions)),
        "too long a name": (("a" * (m.LONGEST_NAME + 1), *names[1:]), proof),
    }


def hashes_of_oversized(monkeypatch):
    """How many hashes are computed before each is refused."""
    good = shown(NAMES)
    assert good is not None
    counted: list[bytes] = []
    monkeypatch.setattr(module, "sha256", lambda data: counted.append(data) or sha256(data))
    found = {}
    for what, (names, proof) in oversized(NAMES, good).items():
        counted.clear()
        # Refused, or whatever else a device does that goes on with it.
        with suppress(Refused, StopIteration):
            check_listed(names, proof, "00" * 32)
        found[what] = len(counted)
    return found


def test_a_proof_that_is_too_large_is_refused_before_any_of_it_is_hashed(monkeypatch):
    assert set(hashes_of_oversized(monkeypatch).values()) == {0}
    longest = m.ResourceList(names=("é" * m.LONGEST_NAME, "v2"), at=packed("d", [40.0, -74.0, 40.1, -74.0]))
    tree = ListTree(longest)
    assert is_accepted(longest.names, proof_of(tree, longest.names), tree.root.hex())


def test_sizes_that_are_not_looked_at_first_would_be_found(monkeypatch):
    """A planted bug: everything fits."""
    monkeypatch.setattr(module, "_fits", lambda *_: True)
    assert all(hashes_of_oversized(monkeypatch).values())


def raw_leaf(prefix):
    """As `leaf_hash`, also of names that are no text."""
    return lambda name: sha256(prefix + name.encode("utf-8", "surrogateescape")).digest()


def test_an_inner_node_is_no_entry(monkeypatch):
    """Its two hashes, read as a name: a planted bug, leaves that begin as nodes do, would accept it."""
    leaves = [leaf_hash(name) for name in "abcd"]
    left, right = node_hash(*leaves[:2]), node_hash(*leaves[2:])
    name = (leaves[0] + leaves[1]).decode("utf-8", "surrogateescape")
    for prefix, accepted in ((b"\0", False), (b"\1", True)):
        monkeypatch.setattr(module, "leaf_hash", raw_leaf(prefix))
        # In a list that is said to have two entries; its true number of entries would be refused in any case.
        for size in (2, 4):
            proof, root = (
                Listed(2, (0,), (right.hex(),), POSITIONS.hex()),
                list_hash(size, node_hash(left, right), POSITIONS),
            )
            assert is_accepted((name,), proof, root.hex()) == (accepted and size == 2)


def test_an_entry_is_shown_in_its_place_and_in_no_other(monkeypatch):
    """Of three entries the last one is beside an inner node: the root has their number, which a planted bug forgets."""
    leaves = [leaf_hash(name) for name in "abc"]
    top = node_hash(node_hash(*leaves[:2]), leaves[2])
    root = list_hash(3, top, POSITIONS).hex()
    good = Listed(3, (2,), (node_hash(*leaves[:2]).hex(),), POSITIONS.hex())
    bad = replace(good, size=2, places=(1,))
    assert is_accepted(("c",), good, root)
    assert not is_accepted(("c",), bad, root)
    monkeypatch.setattr(module, "list_hash", lambda _size, found, _positions: found)
    assert is_accepted(("c",), bad, top.hex())


def test_two_lists_that_differ_have_different_roots():
    """Other names, other positions, or two names exchanged, also at the same latitude."""
    at = [(40.0, -74.0), (40.0, -73.9), (40.0, -73.8), (40.1, -74.0)]
    kinds = [
        ("abcd", at),
        ("abdc", at),
        ("bacd", at),
        ("abce", at),
        ("abc", at[:3]),
        ("abcd", [*at[:3], (40.2, -74.0)]),
    ]
    lists = [
        m.ResourceList(names=tuple(names), at=packed("d", [d for one in where for d in one])) for names, where in kinds
    ]
    assert len({ListTree(one).root for one in lists}) == len(kinds)


def test_a_list_is_refused_with_a_name_twice_or_without_positions_on_earth():
    for names, at in (
        (("a", "a"), [1.0, 2.0, 3.0, 4.0]),
        (("a", "b"), [1.0, 2.0]),
        (("a",), [91.0, 0.0]),
        (("a",), [0.0, -180.1]),
    ):
        with pytest.raises(ValueError, match="expected"):
            m.ResourceList(names=names, at=packed("d", at))


def test_the_root_of_a_known_list():
    """Written down, so that another implementation can compare."""
    known = m.ResourceList(names=("v1", "v2", "vé3"), at=packed("d", [40.75, -73.99, 40.76, -73.98, 40.75, -73.99]))
    assert ListTree(known).root.hex() == "201319f30a254a2b6bb277bb60bb177ce3a0d6e47fa2f19e94099f0d999af54c"
