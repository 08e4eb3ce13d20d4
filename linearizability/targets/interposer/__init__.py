"""A node's disk and clock, as a fault wants them: a small library in C between the broker and the C library.

- `interposer.c`   what is done, and the model of a loss of power
- `building`       compiles it on first use; says why it cannot be had where it cannot
- `handle`         one node's: breaks its disk, sets its clock, takes what it has not fsynced

It works for every program that calls the C library dynamically: CPython, the JVM. Nothing of it runs where no fault
asks for it.
"""
