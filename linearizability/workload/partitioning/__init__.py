"""Where a producer's records go.

- `murmur2`   the hash of keys, as Java's producer has it
- `partitioners`   by key, round robin, sticky
"""
