"""One device alone: what an agent decides, what that costs, and what it must check before it acts.

Standard library only: this package imports nothing of palmatch but `errors`, so that it runs where no numerical
library does. Records come in and records go out; the ledger is the one part that touches a file. `device.mjs` is its
twin for browsers.
"""
