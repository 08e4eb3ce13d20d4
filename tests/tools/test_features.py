"""kafka-features against the reference: what it says is what it says of Apache Kafka 4.3.1 (KIP-584, KIP-778)."""

from __future__ import annotations

import pytest

from tests.tools.conftest import Admin

pytestmark = pytest.mark.java

FAILED = "The update failed for all features since the following feature had an error: "


def levels(admin: Admin) -> dict[str, str]:
    """Feature -> its finalized level, as `describe` reports."""
    lines = [line.split() for line in admin("kafka-features", "describe").well().splitlines()]
    return {words[1]: words[words.index("FinalizedVersionLevel:") + 1] for words in lines}


FIRST = {
    "eligible.leader.replicas.version": "1",
    "group.version": "1",
    "kraft.version": "0",
    "metadata.version": "4.3-IV0",
    "share.version": "0",
    "streams.version": "0",
    "transaction.version": "2",
}


def test_a_level_goes_down_and_up(admin: Admin) -> None:
    assert levels(admin) == FIRST
    down = ("downgrade", "--feature", "transaction.version=1")
    assert admin("kafka-features", *down, "--dry-run").well().strip() == "transaction.version can be downgraded to 1."
    assert levels(admin) == FIRST
    assert admin("kafka-features", *down).well().strip() == "transaction.version was downgraded to 1."
    assert levels(admin) == FIRST | {"transaction.version": "1"}
    admin("kafka-features", "upgrade", "--feature", "transaction.version=2").well()
    assert levels(admin) == FIRST


def test_a_feature_is_disabled(admin: Admin) -> None:
    """Without group.version 1 consumers of the new protocol are turned away; what is there of classic groups is served."""
    topic = admin.topic("featured")
    admin.produce(topic, "a")
    read = ("kafka-console-consumer", "--topic", topic, "--from-beginning", "--max-messages", 1, "--timeout-ms", 20_000)
    of_protocol = ("--command-property", "group.protocol={}", "--group", "featured-{}")
    assert admin("kafka-features", "disable", "--feature", "group.version").well().strip() == (
        "group.version was disabled."
    )
    try:
        assert levels(admin) == FIRST | {"group.version": "0"}
        refused = admin(*read, *(each.format("consumer") for each in of_protocol))
        assert "UnsupportedVersionException" in refused.out + refused.errors
        assert admin(*read, *(each.format("classic") for each in of_protocol)).well().strip() == "a"
    finally:
        admin("kafka-features", "upgrade", "--feature", "group.version=1").well()
    assert admin(*read, *(each.format("consumer") for each in of_protocol)).well().strip() == "a"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("upgrade", "--feature", "group.version=1", "--feature", "transaction.version=9"),
            "Invalid update version 9 for feature transaction.version. Local controller 1 only supports versions 0-2",
        ),
        (
            ("downgrade", "--metadata", "4.0"),
            "Unsupported metadata.version downgrade from 30 to 25. Refusing to perform the requested downgrade because it "
            "might delete metadata information.",
        ),
        (
            ("downgrade", "--metadata", "4.0", "--unsafe"),
            "Unsupported metadata.version downgrade from 30 to 25. Unsafe metadata downgrade is not supported in this "
            "version.",
        ),
    ],
)
def test_refusals_say_why(admin: Admin, arguments: tuple[str, ...], said: str) -> None:
    refused = admin("kafka-features", *arguments)
    assert refused.code == 1
    assert FAILED + said in refused.out + refused.errors
    assert levels(admin) == FIRST
