"""Turns frames into text, for the explanation of a run."""

from __future__ import annotations

from typing import Any, cast

from reference.protocol.codec import CodecError, decode_from
from reference.protocol.frames import decode_request, decode_response
from reference.protocol.schema import Message

MAX_OUTLINE = 160


def outline(body: Message) -> str:
    """A message in one short line: fields that differ from their defaults, bytes as their count."""
    text = _outline(body)
    return text if len(text) <= MAX_OUTLINE else text[:MAX_OUTLINE] + " …"


def _outline(value: Any) -> str:
    if isinstance(value, Message):
        fields = [(field.name, getattr(value, field.name)) for field in value.FIELDS]
        blank = type(value)()
        return " ".join(f"{name}={_outline(each)}" for name, each in fields if each != getattr(blank, name))
    if isinstance(value, list):
        return "[" + "; ".join(_outline(each) for each in cast("list[object]", value)) + "]"
    if isinstance(value, bytes | bytearray | memoryview):
        return f"{len(cast(bytes, value))} bytes"
    return str(value)


def request_text(frame: bytes) -> tuple[str, str]:
    """A request's short name (by which its response is read), and its text; `frame` begins with its size."""
    try:
        header, form, view, position = decode_request(frame[4:])
        body, _ = decode_from(form.request, header.request_api_version, view, position)
    except CodecError as error:
        return "", f"{len(frame)} bytes that are no request: {error}"
    key, version = header.request_api_key, header.request_api_version
    name = type(body).__name__.removesuffix("Request")
    return f"{key} {version} {name}", f"{name} v{version} {outline(body)}"


def response_text(request: str, frame: bytes | bytearray) -> str:
    """The text of a response to the request of this short name; `frame` comes without its size."""
    try:
        key, version, name = request.split()
        _, body = decode_response(int(key), int(version), bytes(frame))
    except (CodecError, ValueError) as error:
        return f"{len(frame)} bytes that are no answer: {error}"
    return f"{name} {outline(body)}"
