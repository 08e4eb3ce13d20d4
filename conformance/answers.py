"""Required parts of responses, read with a `Failed` where they are missing; and values as text."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, NoReturn, TypeVar, cast

from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.primitives import Buffer
from reference.protocol.schema import Message

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")

BRACKETS: dict[type[Any], str] = {list: "[]", tuple: "()", set: "{}", frozenset: "{}"}


def errors_in(answer: Message) -> list[int]:
    """All error codes in a response, at any depth."""
    return [int(code) for code in re.findall(r"error_code=(-?\d+)", repr(answer))]


class AnswerParts(dict[K, V]):
    """The parts of a response by key. A missing key raises Failed (the target's failure), not `KeyError`."""

    def __missing__(self, key: object) -> NoReturn:
        raise Failed(f"the answer has no entry for {shown(key)}, only for {shown(list(self))}")


def only(items: Sequence[T], what: str) -> T:
    """The only element of a list that must have exactly one. Errors: Failed for any other number."""
    if len(items) != 1:
        raise Failed(f"{len(items)} instead of one {what}")
    return items[0]


def asked_for(topic: Topic, partition: int, reported: Any, name: str, partitions: Sequence[Any]) -> Any:
    """The only partition of a response, which must be the requested one. Errors: Failed where it is another one, or missing."""
    index = "partition_index" if hasattr(reported, "partitions") else "index"
    found = only(partitions, "partition in the answer")
    if (name != topic.name and reported.topic_id != topic.id) or getattr(found, index) != partition:
        seen = f"{name or reported.topic_id}, partition {getattr(found, index)}"
        raise Failed(f"the answer about {topic.name or topic.id}, partition {partition}, is about {seen}")
    return found


def number(text: str | None, what: str) -> int:
    """The number in a text field of a response. Errors: Failed where the text is no number."""
    try:
        return int(text or "")
    except ValueError as error:
        raise Failed(f"{what} is {shown(text)}, no number") from error


def error_name(code: int) -> str:
    """`CORRUPT_MESSAGE(2)`, or the bare number of a code that Kafka does not have."""
    try:
        return f"{ErrorCode(code).name}({int(code)})"
    except ValueError:
        return f"error {code}"


def shown(value: object) -> str:
    """A value as text for a sentence: errors and topics by name, bytes in hex, the rest as `repr`; cut after 200 characters."""
    if isinstance(value, bytes | bytearray | memoryview):
        data = bytes(cast(Buffer, value))
        return f"{len(data)} bytes {data[:32].hex(' ')}"
    text = _named(value)
    return text if len(text) <= 200 else text[:197] + "..."


def as_codes(seen: Any, wanted: Any) -> Any:
    """What was seen, with numbers as error codes at the places where the wanted value has error codes."""
    if isinstance(wanted, ErrorCode):
        return next((code for code in ErrorCode if code == seen), seen)
    kind = cast("type[Any]", type(seen))
    if not wanted or kind is not type(wanted):
        return seen
    if kind is dict:
        any_wanted = next(iter(wanted.values()))
        return {key: as_codes(value, wanted.get(key, any_wanted)) for key, value in seen.items()}
    if kind in (list, tuple):
        return cast("Any", kind)(map(as_codes, seen, [*wanted, *wanted[-1:] * len(seen)][: len(seen)]))
    return seen


def _named(value: Any) -> str:
    """`repr`, with errors and topics by name, also within a collection."""
    if isinstance(value, ErrorCode):
        return error_name(value)
    if isinstance(value, Topic):
        return value.name or str(value.id)
    kind = cast("type[Any]", type(value))  # no tuple with names of its own
    if kind is dict:
        return "{" + ", ".join(f"{_named(key)}: {_named(value[key])}" for key in value) + "}"
    if kind in BRACKETS and value:
        opening, closing = BRACKETS[kind]
        return opening + ", ".join(map(_named, value)) + closing
    return repr(value)


def message_of(result: Any) -> str:
    """The `error_message` beside an error code; empty where the version has none."""
    return getattr(result, "error_message", None) or ""
