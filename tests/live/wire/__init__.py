"""The audit of live games: many are played with either place of one device, and all captured traffic is compared.

`games` plays them, in memory with a virtual clock or over a broker on the loopback (`networks`); `capture` makes of the
traffic what the black-box tests read; `attack` learns a test, and holds the ε that it measures against the guaranteed
one.
"""

from live.wire.attack import WireAttack, attack_wire
from live.wire.games import AuditSetup

__all__ = ["AuditSetup", "WireAttack", "attack_wire"]
