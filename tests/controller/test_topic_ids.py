"""No topic id begins with a dash, so that Kafka's tools accept each as an argument."""

import base64
from random import Random
from unittest.mock import Mock

import pytest

from reference.controller.topics import new_topic_id


@pytest.mark.parametrize("drawn", [62 << 122, (63 << 122) - 1, 62 << 122 | 7])
def test_no_id_begins_with_a_dash(drawn: int) -> None:
    """As in Kafka: `--topic-id -GHBW...` names no topic."""
    id = new_topic_id(Mock(getrandbits=lambda bits: drawn))
    assert not base64.urlsafe_b64encode(id.bytes).startswith(b"-")
    assert id.version == 4


def test_others_are_as_they_are_drawn() -> None:
    chance = Random(7)
    ids = [new_topic_id(chance) for _ in range(2_000)]
    assert len({*ids}) == len(ids) and not any(base64.urlsafe_b64encode(id.bytes).startswith(b"-") for id in ids)
    assert {base64.urlsafe_b64encode(id.bytes)[:1] for id in ids} >= {b"_", b"A", b"e", b"9"}
