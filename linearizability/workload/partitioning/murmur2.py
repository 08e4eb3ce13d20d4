"""Murmur2 as Kafka's producers hash keys: every client that agrees on it sends a key to the same partition.

32 bits, the seed is a constant, words are little-endian. Source: org.apache.kafka.common.utils.Utils.murmur2.
"""

from __future__ import annotations

SEED = 0x9747B28C
MULTIPLIER = 0x5BD1E995
SHIFT = 24
MASK = 0xFFFFFFFF
WORD_BYTES = 4
MOST_POSITIVE = 0x7FFFFFFF


def murmur2(data: bytes) -> int:
    """The hash, unsigned (Java's is the same 32 bits with a sign)."""
    whole = len(data) - len(data) % WORD_BYTES
    digest = SEED ^ len(data)
    for start in range(0, whole, WORD_BYTES):
        word = int.from_bytes(data[start : start + WORD_BYTES], "little") * MULTIPLIER & MASK
        word = (word ^ word >> SHIFT) * MULTIPLIER & MASK
        digest = digest * MULTIPLIER & MASK ^ word
    if whole < len(data):
        digest = (digest ^ int.from_bytes(data[whole:], "little")) * MULTIPLIER & MASK
    digest = (digest ^ digest >> 13) * MULTIPLIER & MASK
    return digest ^ digest >> 15


def partition_of(key: bytes, partitions: int) -> int:
    """The key's partition: the hash without its sign bit, modulo their number. More partitions move most keys."""
    return (murmur2(key) & MOST_POSITIVE) % partitions
