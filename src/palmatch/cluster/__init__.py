"""Many machines: studies spread over workers, and one large game cut into tiles. Needs `palmatch[dask]`."""
