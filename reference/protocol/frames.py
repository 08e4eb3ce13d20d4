"""Frames on the wire: a 32-bit size, a header, a message (FRM-01, FRM-12)."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache

from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError, Part, decode_from, encode, encode_into
from reference.protocol.messages.header import RequestHeader, ResponseHeader
from reference.protocol.primitives import Buffer
from reference.protocol.schema import Message

API_VERSIONS = 18
CONTROLLED_SHUTDOWN = 7

_KEY_AND_VERSION = struct.Struct(">hh")
_SIZE_KEY_VERSION_CORRELATION = struct.Struct(">ihhi")
_FIXED_HEADER_BYTES = 8
"""Of a request: its key, its version and the correlation id."""
_SIZE_AND_CORRELATION = struct.Struct(">ii")
_CORRELATION_BYTES = 4


class UnknownApi(CodecError):
    """A request with an unknown API key."""


class UnknownVersion(CodecError):
    """A request of a known API in a version that the table does not have; `header` is set where it could be read."""

    def __init__(self, message: str, header: RequestHeader | None) -> None:
        super().__init__(message)
        self.header = header


@dataclass(frozen=True, slots=True)
class Form:
    """How one version of one API is framed."""

    request: type[Message]
    response: type[Message]
    request_header_version: int
    response_header_version: int


_forms: dict[tuple[int, int], Form] = {}


def form_of(key: int, version: int) -> Form:
    """The form of an API's version. Errors: UnknownApi, UnknownVersion."""
    form = _forms.get((key, version))
    return form if form is not None else _learn_form(key, version)


def _learn_form(key: int, version: int) -> Form:
    api = APIS.get(key)
    if api is None:
        raise UnknownApi(f"there is no API with key {key}")
    request, response = api.request, api.response
    if version not in request.VERSIONS:
        raise UnknownVersion(f"{api.name} has no version {version}, only {request.VERSIONS}", None)
    old_header = key == CONTROLLED_SHUTDOWN and version == 0
    form = Form(
        request,
        response,
        2 if version in request.FLEXIBLE else 0 if old_header else 1,
        1 if version in response.FLEXIBLE and key != API_VERSIONS else 0,
    )
    _forms[key, version] = form
    return form


def decode_request(frame: Buffer) -> tuple[RequestHeader, Form, memoryview, int]:
    """Read a request's header; returns it, the form of its body, the frame as a view and the body's position.

    Errors: UnknownApi, UnknownVersion (with the header, for an ApiVersions response), CodecError.
    """
    view = memoryview(frame)
    if len(view) < 4:
        raise CodecError(f"a request of {len(view)} bytes has no header")
    key, version = _KEY_AND_VERSION.unpack_from(view)
    try:
        form = form_of(key, version)
    except UnknownVersion as error:
        header, _ = decode_from(RequestHeader, 1, view, 0)
        raise UnknownVersion(str(error), header) from None
    header, position = decode_from(RequestHeader, form.request_header_version, view, 0)
    return header, form, view, position


def encode_request(key: int, version: int, correlation_id: int, client_id: str | None, body: Message) -> bytes:
    """A whole request frame, its size first. Errors: CodecError, UnknownApi, UnknownVersion."""
    rest_of_header = _rest_of_header(form_of(key, version).request_header_version, client_id)
    parts: list[Part] = [rest_of_header]
    encode_into(body, version, parts)
    data = b"".join(parts)  # type: ignore[arg-type]  # requests hold no slices of files
    return _SIZE_KEY_VERSION_CORRELATION.pack(_FIXED_HEADER_BYTES + len(data), key, version, correlation_id) + data


@lru_cache(maxsize=256)
def _rest_of_header(header_version: int, client_id: str | None) -> bytes:
    """The bytes after the correlation id in a request's header, cached: a node sends the same with each request."""
    header = RequestHeader(client_id=client_id if header_version > 0 else "")
    return encode(header, header_version)[_FIXED_HEADER_BYTES:]


def encode_response(key: int, version: int, correlation_id: int, body: Message) -> list[Part]:
    """A whole response frame as buffers, its size first; slices of files are not read."""
    parts: list[Part] = []
    encode_into(body, version, parts)
    head = b"\x00" if form_of(key, version).response_header_version else b""
    size = _CORRELATION_BYTES + len(head) + sum(map(len, parts))
    first = parts[0]
    assert isinstance(first, bytes), "a response begins with something, and not with records"
    parts[0] = _SIZE_AND_CORRELATION.pack(size, correlation_id) + head + first
    return parts


def decode_response(key: int, version: int, frame: Buffer) -> tuple[int, Message]:
    """Read a response frame (without its size): the correlation id and the message. Errors: CodecError."""
    form = form_of(key, version)
    view = memoryview(frame)
    header, position = decode_from(ResponseHeader, form.response_header_version, view, 0)
    body, end = decode_from(form.response, version, view, position)
    if end != len(view):
        raise CodecError(f"{form.response.__name__} v{version}: {len(view) - end} bytes after the end")
    return header.correlation_id, body
