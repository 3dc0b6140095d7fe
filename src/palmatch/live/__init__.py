"""The live runtime: every agent on its own device, over a real network, with no party that has to be trusted.

The game's logic is elsewhere: a device's decisions in `palmatch.device`, a method's tables in `palmatch.methods`. Here
are messages, signatures, blind tokens, transports and the services that use them. Needs `pip install palmatch[live]`.
"""
