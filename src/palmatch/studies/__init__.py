"""Many runs, with spread: methods held against each other on the same problems."""
