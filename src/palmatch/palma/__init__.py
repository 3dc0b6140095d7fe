"""PALMA's rounds: how agents act, what acting costs, and the game that they play."""
