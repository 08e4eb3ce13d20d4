"""Mutants of the reference's code: each differs from it in one place, which a tool chooses.

`python -m linearizability.mutants.code run` draws them from the four packages that keep the log's promises. Two judges run on
each change: the unit tests of its package, and the simulation with its invariants. A change that only the unit tests detect
breaks a promise that the simulation does not check.
"""
