"""Topics of a target without CreateTopics: made by asking for them, or given by the caller."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from conformance.results import Lack
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from conformance.broker import Broker


def found_topic(
    broker: Broker, partitions: int, configs: Mapping[str, str], replication_factor: int, name: str
) -> Topic:
    """A topic of a target without CreateTopics: made by asking for it, or one of those that were given."""
    source, most = broker.subject.profile.topics_by, broker.subject.profile.default_partitions
    if source == "none" and CreateTopicsRequest.KEY in broker.subject.api_versions:
        raise Failed(f"no topic can be made: {broker.subject.profile.unknown.get('topics', 'no way works')}")
    if configs or replication_factor > 1 or (name and source == "--topics"):
        broker.skip(
            "needs CreateTopics, for a topic with a configuration, replication factor or name of its own", Lack.API
        )
    if most and partitions > most:
        broker.skip(
            f"needs a topic of {partitions} partitions; without CreateTopics the target gives it {most}", Lack.API
        )
    if source == "auto-creation":
        made = name or broker.unused_name()
        broker.metadata([MetadataRequest.MetadataRequestTopic(name=made)], auto_create=True)
        return broker.await_topic(made, partitions)
    with broker.subject.lock:
        given = broker.subject.profile.given_topics
        for one in [*given]:
            if broker.await_topic(one).partitions < partitions:
                continue  # it is left for those that need fewer
            given.remove(one)
            topic = broker.await_topic(one, partitions)
            if all(broker.end_offset(topic, n) == 0 for n in range(topic.partitions)):
                return topic
    size = f" of {partitions} partitions" if partitions > 1 else ""
    broker.skip(f"needs CreateTopics, auto-creation, or another empty topic{size} in --topics", Lack.API)
