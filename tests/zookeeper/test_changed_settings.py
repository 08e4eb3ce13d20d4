"""Settings that change in ZooKeeper while a broker runs."""

from __future__ import annotations

from reference.protocol.primitives import TimestampMs
from tests.zookeeper.one_broker import Broker, change_settings, new_tree

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
