"""How one agent acts: from utilities to chances. Nothing in here adds up costs or plays rounds."""
