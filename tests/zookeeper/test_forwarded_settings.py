"""Settings that change in ZooKeeper while a broker runs, and those that a broker has checked and forwarded to the controller."""

from __future__ import annotations

import pytest

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import TimestampMs
from tests.zookeeper.one_broker import KAFKAS, NODE, THIRD, Broker, change_settings, metadata, new_tree

VERSION = 1


def change_of(broker: int) -> IncrementalAlterConfigsRequest:
    change = IncrementalAlterConfigsRequest.AlterableConfig(
        name="log.cleaner.backoff.ms", config_operation=0, value="1"
    )
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=4, resource_name=str(broker), configs=[change]
    )
    return IncrementalAlterConfigsRequest(resources=[resource])


@pytest.fixture
def broker() -> Broker:
    found = Broker(new_tree())
    assert found.ask(metadata(found.node), 8).error_code == ErrorCode.NONE
    return found


def test_the_former_controller_passes_them_on(broker: Broker) -> None:
    """The broker that forwarded them had not learnt of the new one yet."""
    broker.put(change_of(THIRD), VERSION, client_id=f"node-{THIRD}")
    assert broker.answers == []
    assert [each.peer for each in broker.sent] == [KAFKAS]


def test_a_client_changes_the_settings_of_the_broker_that_it_asks(broker: Broker) -> None:
    broker.put(change_of(NODE), VERSION)
    assert broker.answers == [] and [each.peer for each in broker.sent] == [KAFKAS]
    assert broker.ask(change_of(THIRD), VERSION).responses[0].error_code == ErrorCode.INVALID_REQUEST


DEFAULT_BACKOFF_MS = 15_000


def test_a_rest_of_the_cleaner_that_has_begun_is_as_long_as_the_settings_say_now() -> None:
    broker = Broker(new_tree())
    (directory,) = broker.node.logs.directories
    broker.node.tick(broker.now)
    assert directory.cleaner.next_deadline() == broker.now + DEFAULT_BACKOFF_MS
    began, broker.now = broker.now, TimestampMs(broker.now + 10)
    change_settings(broker, log_cleaner_backoff_ms="700")
    assert broker.node.configuration.integer("log.cleaner.backoff.ms") == 700
    assert directory.cleaner.next_deadline() == began + 700
    assert broker.node.next_deadline() <= began + 700
