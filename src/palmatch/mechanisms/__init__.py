"""What an agent reveals: finite channels that keep ε in whole numbers, and noisy places."""
