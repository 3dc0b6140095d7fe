"""The audit as a black box: a method is played many times with either type of one agent, and what is seen is compared.

The auditor knows how to prepare and to play a method, and what an observer sees. It knows no policy, no channel, no
charge and no accountant: an import contract keeps it so.
"""
