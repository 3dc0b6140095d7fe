"""The protocol as an AsyncAPI 3 document, made from the message types and the table of topics.

`python -m docs.asyncapi` prints it; `docs/live.asyncapi.yaml` is its output, and a test compares the two.
"""

from __future__ import annotations

import sys
from typing import Any

import msgspec

from palmatch.device.messages import VERSION, TokenReply, TokenRequest
from palmatch.live.codec import struct_of
from palmatch.live.topics import KINDS, Kind

_PARAMETERS = {
    "game": "The name of a game, percent-encoded.",
    "region": "The name of a region, percent-encoded.",
    "table": "The name of a region, a tilde and the number of an ε class, percent-encoded.",
    "resource": "The name of a resource, percent-encoded.",
    "nonce": "The marker's random number, in hexadecimal.",
}

_DESCRIPTION = """\
Topics begin with "pm/1" in all versions, so that a device finds games of another version and says so. Every payload is
a packet: the CBOR array [version, body, signature, padding]. The body is the message in canonical
CBOR; the signature (Ed25519) covers "palmatch/2", the topic and the body, with a line feed between them. The schemas
below are those of the bodies, whose binary fields are byte strings. Quality of service is 0 throughout.
"""


def document() -> dict[str, Any]:
    """Return the document as plain data."""
    types = [struct_of(kind) for kind in (*(kind.message for kind in KINDS.values()), TokenRequest, TokenReply)]
    _, schemas = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    return {
        "asyncapi": "3.0.0",
        "info": {"title": "palmatch live", "version": f"{VERSION}.0.0", "description": _DESCRIPTION},
        "defaultContentType": "application/cbor",
        "channels": {name: _channel(kind) for name, kind in KINDS.items()},
        "operations": {f"{kind.writer}-sends-{name}": _operation(kind) for name, kind in KINDS.items()},
        "components": {
            "messages": {name: _message(kind) for name, kind in KINDS.items()},
            # Through JSON, so that a default of () is a list like any other.
            "schemas": msgspec.json.decode(msgspec.json.encode(schemas, order="sorted")),
            "parameters": {name: {"description": text} for name, text in _PARAMETERS.items()},
        },
    }


def _channel(kind: Kind) -> dict[str, Any]:
    names = ["game", *([kind.parameter] if kind.parameter else [])]
    end = f"/{{{kind.parameter}}}" if kind.parameter else ""
    return {
        "address": f"pm/1/{{game}}/{kind.name}{end}",
        "description": f"Published by: {kind.writer}. Read by: {', '.join(kind.readers)}.",
        "parameters": {name: {"$ref": f"#/components/parameters/{name}"} for name in names},
        "messages": {kind.name: {"$ref": f"#/components/messages/{kind.name}"}},
        "bindings": {"mqtt": {"bindingVersion": "0.2.0"}},
    }


def _operation(kind: Kind) -> dict[str, Any]:
    return {
        "action": "send",
        "channel": {"$ref": f"#/channels/{kind.name}"},
        "messages": [{"$ref": f"#/channels/{kind.name}/messages/{kind.name}"}],
        "bindings": {"mqtt": {"qos": 0, "retain": kind.retained, "bindingVersion": "0.2.0"}},
    }


def _message(kind: Kind) -> dict[str, Any]:
    size = f"padded to {kind.padded} bytes" if kind.padded else f"at most {kind.limit} bytes"
    return {
        "title": kind.message.__name__,
        "summary": f"{(kind.message.__doc__ or '').strip().splitlines()[0]} The packet is {size}.",
        "contentType": "application/cbor",
        "payload": {"$ref": f"#/components/schemas/{kind.message.__name__}"},
    }


if __name__ == "__main__":
    import yaml  # a tool of the developers', not a dependency

    sys.stdout.write(yaml.safe_dump(document(), sort_keys=False, width=120, allow_unicode=True))
