"""The limit: the linear program that bounds every private method, its solver, and certificates of the bound."""
