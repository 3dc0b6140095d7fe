"""Every agent acts: one device at a time in plain Python, or all of them compiled. Same draws, same matching."""
