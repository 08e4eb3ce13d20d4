"""The broker is restarted under each client, in good order and by kill -9: nothing is lost, nothing is doubled.

The Java client's restart is in `test_java_tools`.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from threading import Event

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from linearizability.targets import Target
from tests.clients.client import StreamingClient
from tests.clients.confluent import Confluent

PART = 400
"""Records between two restarts."""
PAUSE_S = 0.002
BEGIN_WITHIN_S = 60


@pytest.mark.sampled(days=3)
def test_idempotent_producer_and_consumer_outlive_restarts(
    broker: Target, streaming_client: StreamingClient, topic: str
) -> None:
    client = streaming_client
    create(broker, topic)
    stream = client.stream(topic)
    sent = [str(number) for number in range(3 * PART)]
    stream.send(sent[0])
    with ThreadPoolExecutor(2) as aside:
        hurts = []
        began = Event()
        reading = aside.submit(client.read_on, topic, len(sent), began)
        for number, value in enumerate(sent[1:], start=1):
            if number == PART:
                assert began.wait(BEGIN_WITHIN_S), "the consumer has not begun"
                hurts.append(aside.submit(stop_and_start, broker))
            if number == 2 * PART:
                hurts[0].result()
                hurts.append(aside.submit(kill_and_start, broker))
            stream.send(value)
            time.sleep(PAUSE_S)
        stream.finish()
        for hurt in hurts:
            hurt.result()
        stored = Confluent(broker.bootstrap).read(topic, len(sent))
        assert [message.value for message in stored] == sent
        assert Confluent(broker.bootstrap).end_offset(topic) == len(sent)
        assert [message.value for message in reading.result()] == sent


def create(broker: Target, topic: str) -> None:
    """The topic is there before a client asks for it: a client that asks too early may look again only minutes later (kcat does)."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic(topic, 1)])[topic].result(BEGIN_WITHIN_S)


def stop_and_start(broker: Target) -> None:
    broker.stop(1)
    broker.restart(1)


def kill_and_start(broker: Target) -> None:
    broker.kill(1)
    broker.restart(1)
