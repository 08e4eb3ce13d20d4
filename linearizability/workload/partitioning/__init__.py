"""Where a producer's records go.

- `murmur2`   the hash of keys, as Java's producer has it
- `partitioners`   given, by key, round robin, sticky, custom
- `comparison`   what they and the linger make of the same records, as the table of the page
"""
