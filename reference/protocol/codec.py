"""Bytes to messages and back.

For each (message class, version) the codec writes one Python function from the fact table and compiles it when it is
first needed (about 2 ms): `codec_decoding`, `codec_encoding`. A generated function is one straight walk over the bytes:
neighbouring fields of fixed width are one `struct` call, one-byte varints are read in place, structures are laid out inside
of their parents' loops.

Decoding does not copy bytes and records: they are `memoryview`s of the given buffer. Decoding of any bytes ends with a message
or with `CodecError`, in time and memory bounded by their number. It checks each length against the bytes that are left before
it allocates. A request also has a budget of elements, because one loop reads the requests of all clients. Values that no table
knows (error codes, tagged fields, bytes that are not UTF-8) survive a round trip.

Encoding returns a list of buffers: one for all bytes between two records fields, and each records field as the given object.
So the runtime sends a slice of a file without reading it.
"""

from __future__ import annotations

import struct

from reference.protocol.codec_decoding import DecoderWriter
from reference.protocol.codec_encoding import EncoderWriter
from reference.protocol.codec_writer import CodecError, Decoder, Encoder, M, Part
from reference.protocol.primitives import Buffer
from reference.protocol.schema import Message

__all__ = ["CodecError", "Part", "decode", "decode_from", "encode", "encode_into"]


def decode(message: type[M], version: int, buffer: Buffer) -> M:
    """Read one message that fills the buffer.

    Errors: CodecError when the bytes are not such a message, are too few, or go on after its end.
    """
    decoded, end = decode_from(message, version, memoryview(buffer), 0)
    if end != len(buffer):
        raise CodecError(f"{message.__name__} v{version}: {len(buffer) - end} bytes after the end")
    return decoded


def decode_from(message: type[M], version: int, view: memoryview, position: int) -> tuple[M, int]:
    """Read one message at a position; returns it and the position after it.

    Errors: CodecError as for `decode`, but bytes may follow the message.
    """
    try:
        return (_decoders.get((message, version)) or _decoder(message, version))(view, position, len(view))
    except (struct.error, IndexError) as error:
        raise CodecError(f"{message.__name__} v{version}: ends too early") from error


def encode(message: Message, version: int) -> bytes:
    """Write one message as bytes.

    Errors: CodecError when the version lacks the field of a value that is set, or a value does not fit its type.
    """
    parts: list[Part] = []
    encode_into(message, version, parts)
    return b"".join(parts)  # type: ignore[arg-type]  # a FileSlice here is a programming error and join says so


def encode_into(message: Message, version: int, parts: list[Part]) -> None:
    """Append one message to a list of buffers; records fields are not copied. Errors: as for `encode`."""
    cls = type(message)
    try:
        (_encoders.get((cls, version)) or _encoder(cls, version))(message, parts)
    except (struct.error, TypeError, AttributeError, UnicodeEncodeError) as error:
        raise CodecError(f"{cls.__name__} v{version}: {error}") from error


# ---- compiling


_decoders: dict[tuple[type[Message], int], Decoder] = {}
_encoders: dict[tuple[type[Message], int], Encoder] = {}


def _check_version(message: type[Message], version: int) -> None:
    if version not in message.VERSIONS:
        raise CodecError(f"{message.__name__} has no version {version}, only {message.VERSIONS}")


def _decoder(message: type[Message], version: int) -> Decoder:
    _check_version(message, version)
    function = DecoderWriter(version, version in message.FLEXIBLE).compile(message)
    _decoders[message, version] = function
    return function


def _encoder(message: type[Message], version: int) -> Encoder:
    _check_version(message, version)
    function = EncoderWriter(version, version in message.FLEXIBLE).compile(message)
    _encoders[message, version] = function
    return function
