"""What PALMA is held against: centralised, obfuscated, greedy and random matchings. All return a `Matching`."""
