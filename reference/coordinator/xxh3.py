"""XXH3, 64 bits, without a seed: the hash by which Kafka detects changed topics (KIP-1101).

It is implemented here because the log has the hash: so a group that moves between this broker and Kafka is not
reassigned without need. It is called rarely, so it may be slow. Source: the XXH3 specification (xxHash 0.8).
"""

from __future__ import annotations

import struct

_PRIME32 = (0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D)
_PRIME64 = (0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5)
_PRIME_MX1 = 0x165667919E3779F9
_PRIME_MX2 = 0x9FB21C651E98DF25
_SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)
_MASK = (1 << 64) - 1
_STRIPE, _STRIPES_A_BLOCK = 64, 16
_LAST_SECRET = len(_SECRET) - _STRIPE


def xxh3_64(data: bytes) -> int:
    """The hash of `data`, unsigned."""
    size = len(data)
    if size <= 16:
        return _short(data)
    if size <= 240:
        return _medium(data)
    return _long(data)


def _short(data: bytes) -> int:
    size = len(data)
    if size > 8:
        low = _word(data, 0) ^ _word(_SECRET, 24) ^ _word(_SECRET, 32)
        high = _word(data, size - 8) ^ _word(_SECRET, 40) ^ _word(_SECRET, 48)
        return _avalanche(size + _swapped(low) + high + _folded(low, high))
    if size >= 4:
        both = _half(data, size - 4) + (_half(data, 0) << 32)
        return _strong_avalanche(both ^ _word(_SECRET, 8) ^ _word(_SECRET, 16), size)
    if size > 0:
        combined = data[0] << 16 | data[size >> 1] << 24 | data[-1] | size << 8
        return _old_avalanche(combined ^ _half(_SECRET, 0) ^ _half(_SECRET, 4))
    return _old_avalanche(_word(_SECRET, 56) ^ _word(_SECRET, 64))


def _medium(data: bytes) -> int:
    """Hash 17 to 240 bytes: pairs of words, from both ends or in a row."""
    size = len(data)
    total = size * _PRIME64[0]
    if size <= 128:
        for pair in range((size - 1) // 32 + 1):
            total += _mixed(data, 16 * pair, 32 * pair) + _mixed(data, size - 16 * (pair + 1), 32 * pair + 16)
        return _avalanche(total)
    total = _avalanche(total + sum(_mixed(data, 16 * at, 16 * at) for at in range(8)))
    total += sum(_mixed(data, 16 * at, 16 * (at - 8) + 3) for at in range(8, size // 16))
    return _avalanche(total + _mixed(data, size - 16, 136 - 17))


def _long(data: bytes) -> int:
    """Hash more than 240 bytes: stripes of eight words, with a scramble after each block of stripes."""
    size = len(data)
    sums = [_PRIME32[2], *_PRIME64[:4], _PRIME32[1], _PRIME64[4], _PRIME32[0]]
    for stripe in range((size - 1) // _STRIPE):
        place = stripe % _STRIPES_A_BLOCK
        _accumulate(sums, data, _STRIPE * stripe, 8 * place)
        if place == _STRIPES_A_BLOCK - 1 and _STRIPE * (stripe + 1) <= size - 1:
            _scramble(sums)
    _accumulate(sums, data, size - _STRIPE, _LAST_SECRET - 7)
    total = size * _PRIME64[0]
    for pair in range(4):
        secret = 11 + 16 * pair
        total += _folded(sums[2 * pair] ^ _word(_SECRET, secret), sums[2 * pair + 1] ^ _word(_SECRET, secret + 8))
    return _avalanche(total)


def _accumulate(sums: list[int], data: bytes, at: int, secret: int) -> None:
    words = struct.unpack_from("<8Q", data, at)
    keys = struct.unpack_from("<8Q", _SECRET, secret)
    for purpose, (word, key) in enumerate(zip(words, keys, strict=True)):
        keyed = word ^ key
        sums[purpose ^ 1] = (sums[purpose ^ 1] + word) & _MASK
        sums[purpose] = (sums[purpose] + (keyed & 0xFFFFFFFF) * (keyed >> 32)) & _MASK


def _scramble(sums: list[int]) -> None:
    keys = struct.unpack_from("<8Q", _SECRET, _LAST_SECRET)
    for purpose, key in enumerate(keys):
        sums[purpose] = ((sums[purpose] ^ sums[purpose] >> 47 ^ key) * _PRIME32[0]) & _MASK


def _mixed(data: bytes, at: int, secret: int) -> int:
    return _folded(_word(data, at) ^ _word(_SECRET, secret), _word(data, at + 8) ^ _word(_SECRET, secret + 8))


def _folded(left: int, right: int) -> int:
    product = left * right
    return product & _MASK ^ product >> 64


def _avalanche(number: int) -> int:
    number &= _MASK
    number = (number ^ number >> 37) * _PRIME_MX1 & _MASK
    return number ^ number >> 32


def _strong_avalanche(number: int, size: int) -> int:
    number ^= _rotated(number, 49) ^ _rotated(number, 24)
    number = number * _PRIME_MX2 & _MASK
    number = (number ^ (number >> 35) + size) * _PRIME_MX2 & _MASK
    return number ^ number >> 28


def _old_avalanche(number: int) -> int:
    """The final mix of XXH64, which XXH3 uses for at most 3 bytes."""
    number = (number ^ number >> 33) * _PRIME64[1] & _MASK
    number = (number ^ number >> 29) * _PRIME64[2] & _MASK
    return number ^ number >> 32


def _rotated(number: int, by: int) -> int:
    return (number << by | number >> 64 - by) & _MASK


def _swapped(number: int) -> int:
    return int.from_bytes(number.to_bytes(8, "little"), "big")


def _word(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 8], "little")


def _half(data: bytes, at: int) -> int:
    return int.from_bytes(data[at : at + 4], "little")
