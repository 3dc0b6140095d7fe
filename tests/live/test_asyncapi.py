from pathlib import Path

import yaml
from docs.asyncapi import document

from node_packages import Node, node_packages
from palmatch.live.topics import KINDS

FILE = Path(__file__).parents[2] / "docs" / "live.asyncapi.yaml"


def test_the_published_protocol_is_the_one_that_is_spoken():
    assert yaml.safe_load(FILE.read_text()) == document(), "python -m docs.asyncapi > docs/live.asyncapi.yaml"


def test_the_parser_of_the_standard_finds_nothing_wrong_and_a_planted_error():
    text = FILE.read_text()
    with Node(Path(__file__).with_name("asyncapi.mjs"), node_packages()) as parser:
        assert parser.ask(text=text) == {"wrong": [], "channels": len(KINDS)}
        assert parser.ask(text=text.replace("action: send", "action: shout", 1))["wrong"] != []
