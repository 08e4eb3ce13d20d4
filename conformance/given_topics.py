"""Topics of a target without CreateTopics, by auto-creation or from the caller; and configurations that a target lacks."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from conformance.results import Lack
from conformance.wire import Failed
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.create_topics import CreateTopicsRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.metadata import MetadataRequest

if TYPE_CHECKING:
    from conformance.broker import Broker

TOPIC_RESOURCE = 2
"""The resource type of topics in DescribeConfigs."""


def found_topic(
    broker: Broker, partitions: int, configs: Mapping[str, str], replication_factor: int, name: str
) -> Topic:
    """A topic of a target without CreateTopics: created by a Metadata request, or one of those in --topics."""
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


def skip_unknown_configs(broker: Broker, error: int, names: Collection[str]) -> None:
    """Skip where the target refused topic configurations that it does not support: its topics are described without them."""
    if error != ErrorCode.INVALID_CONFIG or not names:
        return
    unknown = {*names} - _described(broker)
    if unknown:
        broker.skip(f"needs {', '.join(sorted(unknown))} of topics, which the target does not know", Lack.CONFIGURATION)


def _described(broker: Broker) -> set[str]:
    """The names of the configurations that the target describes for a new topic; empty without DescribeConfigs."""
    if DescribeConfigsRequest.KEY not in broker.subject.api_versions:
        return set()
    name = broker.unused_name()
    broker.create_topic(name)
    broker.await_topic(name)
    asked = DescribeConfigsRequest.DescribeConfigsResource(
        resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None
    )
    answer = broker.call(DescribeConfigsRequest(resources=[asked]))
    return {config.name for result in answer.results for config in result.configs}
