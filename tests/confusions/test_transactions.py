"""Exactly-once between topics."""

from __future__ import annotations

from confluent_kafka import Producer

from tests.confusions.applications import PATIENCE_S, Applications, take_messages, text

VALUES = ["a", "b", "c", "d"]


def test_a_copy_is_exactly_once_only_with_transactions(applications: Applications, topic: str) -> None:
    applications.write(topic, VALUES)
    repeated = applications.new_topic()
    copy(applications, topic, repeated, VALUES[:2], dies=True)
    copy(applications, topic, repeated, VALUES, dies=False)
    assert applications.read_all(repeated) == ["a", "b", *VALUES]

    exact = applications.new_topic()
    copy_in_transactions(applications, topic, exact, VALUES[:2], dies=True)
    copy_in_transactions(applications, topic, exact, VALUES, dies=False)
    assert applications.read_all(exact) == VALUES
    assert applications.read_all(exact, isolation="read_uncommitted") == ["a", "b", *VALUES]
    assert applications.committed(f"copies-to-{exact}", topic) == len(VALUES)


def copy(applications: Applications, source: str, target: str, expected: list[str], *, dies: bool) -> None:
    """Consume, produce, commit; one that dies does so before it commits."""
    with applications.consumer(f"copies-to-{target}", [source]) as consumer:
        taken = take_messages(consumer, len(expected))
        applications.write(target, [text(each.value()) for each in taken])
        if not dies:
            consumer.commit(asynchronous=False)


def copy_in_transactions(
    applications: Applications, source: str, target: str, expected: list[str], *, dies: bool
) -> None:
    """As `copy`, with the offsets committed in the transaction that holds the records."""
    producer: Producer = applications.producer({"transactional.id": f"copies-to-{target}"})
    producer.init_transactions(PATIENCE_S)
    with applications.consumer(f"copies-to-{target}", [source]) as consumer:
        producer.begin_transaction()
        for each in take_messages(consumer, len(expected)):
            producer.produce(target, each.value())
        assert producer.flush(PATIENCE_S) == 0
        if not dies:
            places = consumer.position(consumer.assignment())
            producer.send_offsets_to_transaction(places, consumer.consumer_group_metadata(), PATIENCE_S)
            producer.commit_transaction(PATIENCE_S)
