"""Configuration of a Mosquitto broker for live games: listeners, TLS, users and an access list by topic; one to run.

The access list is read off the table of topics (`topics.KINDS`), like the hub's checks. Written for Mosquitto 2.0 as
Debian ships it; each setting that is there for a measured reason says so in the file.
"""

from __future__ import annotations

import base64
import hashlib
import os
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from palmatch.errors import InputError
from palmatch.live.topics import LARGEST, Role, readable, writable
from palmatch.live.transport.hub import is_loopback

_ITERATIONS = 10_000
_MEMORY = 2 * 2**30


@dataclass(frozen=True, slots=True)
class Mosquitto:
    """What a broker needs to know.

    Attributes
    ----------
    host, port:
        Where it listens.
    certificate, key:
        PEM files for TLS: the server's chain and its key. Without them only the loopback is allowed.
    gateways:
        For each resource or gateway, by user name, the resources that it serves.
    allow_plain:
        Whether to listen without TLS outside of the loopback.
    run_as:
        The user that a Mosquitto started by root changes to, if not its default; it must be able to read the files.
    """

    host: str = "127.0.0.1"
    port: int = 8883
    certificate: Path | None = None
    key: Path | None = None
    gateways: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    allow_plain: bool = False
    run_as: str = ""

    def write(self, folder: Path) -> dict[str, str]:
        """Write mosquitto.conf, its access list and its users into a folder; return the passwords by user."""
        self._check()
        folder.mkdir(parents=True, exist_ok=True)
        # Mosquitto may be started anywhere.
        folder = folder.resolve()
        # Written again, for new resources, passwords that parties have stay as they are.
        known = read_passwords(folder / "passwords") if (folder / "passwords").exists() else {}
        passwords = {user: known.get(user) or secrets.token_urlsafe(24) for user in self.users()}
        _write(folder / "users", "".join(f"{user}:{_hashed(word)}\n" for user, word in passwords.items()), 0o600)
        _write(folder / "access", self.access(), 0o600)
        _write(folder / "mosquitto.conf", self.configuration(folder), 0o644)
        _write(folder / "passwords", "".join(f"{user} {word}\n" for user, word in passwords.items()), 0o600)
        return passwords

    def users(self) -> dict[str, tuple[Role, tuple[str, ...]]]:
        """Return role and own names of each user; a device has no user name."""
        return {
            "board": ("board", ()),
            "issuer": ("issuer", ()),
            **{user: ("resource", names) for user, names in self.gateways.items()},
        }

    def access(self) -> str:
        """Return the access list: devices are anonymous, all other parties have a user."""
        parts = ["# Devices, which have no user name.", *_rules("device", ())]
        for user, (role, names) in self.users().items():
            parts += ["", f"user {user}", *_rules(role, names)]
        return "\n".join(parts) + "\n"

    def configuration(self, folder: Path) -> str:
        """Return mosquitto.conf."""
        own = f"\nuser {self.run_as}" if self.run_as else ""
        template = Path(__file__).with_name("mosquitto.conf").read_text(encoding="utf-8")
        files = {"users": folder / "users", "access": folder / "access"}
        return template.format(**files, own=own, largest=LARGEST + 4096, memory=_MEMORY) + self._listener()

    def _listener(self) -> str:
        lines = [f"listener {self.port} {self.host}", "max_connections -1"]
        if self.certificate is not None:
            files = (self.certificate.resolve(), (self.key or self.certificate).resolve())
            lines += [f"certfile {files[0]}", f"keyfile {files[1]}", "tls_version tlsv1.2"]
        return "\n".join(lines) + "\n"

    def _check(self) -> None:
        if (self.certificate is None) != (self.key is None):
            raise InputError("Expected a certificate and its key, or neither.")
        if self.certificate is None and not is_loopback(self.host) and not self.allow_plain:
            raise InputError("A broker without TLS would be open to other machines: give a certificate and a key.")
        for user in self.users():
            if not user or not user.isprintable() or user != user.strip() or set(user) & set(":+#\\"):
                raise InputError(f"Found the user name {user!r}, which a Mosquitto access list cannot hold.")


def read_passwords(path: Path) -> dict[str, str]:
    """Return the passwords of a file that was written with a configuration, by user."""
    try:
        return dict(line.split(" ", 1) for line in path.read_text().splitlines())
    except (OSError, ValueError):
        raise InputError(f"{path}: expected lines of a user and a password.") from None


def _rules(role: Role, names: tuple[str, ...]) -> list[str]:
    rules = [f"topic write {pattern}" for pattern in writable(role, names)]
    return rules + [f"topic read {pattern}" for pattern in readable(role, names)]


def _hashed(password: str) -> str:
    """Return a password as `mosquitto_passwd` hashes it: PBKDF2 with SHA-512."""
    salt = os.urandom(12)
    digest = hashlib.pbkdf2_hmac("sha512", password.encode(), salt, _ITERATIONS)
    return f"$7${_ITERATIONS}${base64.b64encode(salt).decode()}${base64.b64encode(digest).decode()}"


def _write(path: Path, text: str, mode: int) -> None:
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w") as file:
        file.write(text)
