"""Faults of a node's disk and clock: a small library in C between the broker and the C library.

- `interposer.c`   the interposed functions, and the model of a power loss
- `building`       compiles it on first use; `obstacle` explains why where it cannot
- `handle`         one node's: breaks its disk, sets its clock, discards the bytes that it has not fsynced

It works for every program that calls the C library dynamically: CPython, the JVM. It is loaded only where a run needs these
faults.
"""
