from mutants.run import load, misfits


def test_every_mutant_has_its_place_and_its_killer():
    assert misfits(load()) == []
