"""Public tables of all regions in one flat (CSR) layout, whatever the domain; one region is a view of them.

Everything in here follows from the partition, the resources and their public ids, never from a real agent; `own.py`
alone lays out what agents act on.
"""
