"""The allowed names of topics. Source: requirement TOP-01; org.apache.kafka.common.internals.Topic."""

from __future__ import annotations

import re

from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import TopicName

MAX_NAME_LENGTH = 249
LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")


def validate_topic_name(name: TopicName) -> None:
    """Check a topic's name. Errors: KafkaError INVALID_TOPIC_EXCEPTION with the reason (TOP-01)."""
    reason = None
    if not name:
        reason = "the empty string is not allowed"
    elif name in (".", ".."):
        reason = f"'{name}' is not allowed"
    elif len(name) > MAX_NAME_LENGTH:
        reason = f"the length of '{name}' is longer than the max allowed length {MAX_NAME_LENGTH}"
    elif not LEGAL_NAME.fullmatch(name):
        reason = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    if reason:
        raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
