"""Random messages of any class and version, and the JSON that Kafka's own converters read."""

import base64
import importlib
import pkgutil
import random
from typing import Any
from uuid import UUID

import reference.protocol.messages
from reference.protocol.schema import Field, Message, default_of

BOUNDS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
ALPHABET = "abzAZ09._- äß€漢😀"


def message_classes() -> list[type[Message]]:
    """Every message of the fact table, in the order of its name."""
    found: set[type[Message]] = set()
    for entry in pkgutil.iter_modules(reference.protocol.messages.__path__):
        module = importlib.import_module(f"reference.protocol.messages.{entry.name}")
        for value in vars(module).values():
            if isinstance(value, type) and issubclass(value, Message) and value is not Message:
                found.add(value)
    return sorted(found, key=lambda cls: cls.__name__)


def random_message(chance: random.Random, cls: type[Message], version: int, depth: int = 0) -> Any:
    """A message with random values in the fields of the version, and defaults in the others."""
    message = cls()
    for field in cls.FIELDS:
        if version in field.versions:
            setattr(message, field.name, random_value(chance, field, version, depth))
    return message


def random_value(chance: random.Random, field: Field, version: int, depth: int) -> Any:
    if version in field.nullable and chance.random() < 0.2:
        return None
    if version in field.tagged and chance.random() < 0.3:
        return default_of(field)
    if field.kind == "array":
        count = chance.choice((0, 1, 1, 2, 3) if depth < 3 else (0, 1))
        return [random_element(chance, field.element, version, depth) for _ in range(count)]
    if field.kind == "struct":
        return random_message(chance, field.element, version, depth + 1)
    return random_primitive(chance, field.kind)


def random_element(chance: random.Random, element: Any, version: int, depth: int) -> Any:
    if isinstance(element, str):
        return random_primitive(chance, element)
    return random_message(chance, element, version, depth + 1)


def random_primitive(chance: random.Random, kind: str) -> Any:
    if kind == "bool":
        return chance.random() < 0.5
    if kind == "uint16":
        return chance.choice((0, 1, 65535, chance.randrange(65536)))
    if kind == "uint32":
        return chance.choice((0, 1, 4294967295, chance.randrange(1 << 32)))
    if kind == "float64":
        return chance.choice((0.0, -1.5, 1e300, chance.uniform(-1e6, 1e6)))
    if kind == "uuid":
        return UUID(int=chance.choice((0, 1, chance.getrandbits(128))))
    if kind == "string":
        return "".join(chance.choice(ALPHABET) for _ in range(chance.choice((0, 1, 5, 60, 140))))
    if kind in ("bytes", "records"):
        return chance.randbytes(chance.choice((0, 1, 20, 300)))
    half = 1 << (BOUNDS[kind] - 1)
    return chance.choice((0, 1, -1, half - 1, -half, chance.randrange(-half, half)))


def to_json(message: Any, version: int) -> dict[str, Any]:
    """The message as Kafka's JsonConverter classes read it."""
    return {
        field.kafka_name[0].lower() + field.kafka_name[1:]: value_to_json(getattr(message, field.name), field, version)
        for field in message.FIELDS
        if version in field.versions
    }


def value_to_json(value: Any, field: Field, version: int) -> Any:
    if value is None:
        return None
    if field.kind == "array":
        if not isinstance(field.element, str):
            return [to_json(item, version) for item in value]
        return [primitive_to_json(item, field.element) for item in value]
    if field.kind == "struct":
        return to_json(value, version)
    return primitive_to_json(value, field.kind)


def primitive_to_json(value: Any, kind: str) -> Any:
    if kind == "uuid":
        return base64.urlsafe_b64encode(value.bytes).decode().rstrip("=")
    if kind in ("bytes", "records"):
        return base64.b64encode(value).decode()
    return value
