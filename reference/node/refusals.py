"""How each request that only the active controller can answer is refused as a whole.

A response has its error where its schema put it: at the top, or once for each thing that was asked for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from reference.protocol.errors import ErrorCode
from reference.protocol.messages.allocate_producer_ids import AllocateProducerIdsResponse
from reference.protocol.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from reference.protocol.messages.alter_partition import AlterPartitionResponse
from reference.protocol.messages.alter_partition_reassignments import AlterPartitionReassignmentsResponse
from reference.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from reference.protocol.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from reference.protocol.messages.broker_heartbeat import BrokerHeartbeatResponse
from reference.protocol.messages.broker_registration import BrokerRegistrationResponse
from reference.protocol.messages.controller_registration import ControllerRegistrationResponse
from reference.protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from reference.protocol.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from reference.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from reference.protocol.messages.describe_quorum import DescribeQuorumResponse
from reference.protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from reference.protocol.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsResponse
from reference.protocol.messages.unregister_broker import UnregisterBrokerResponse
from reference.protocol.messages.update_features import UpdateFeaturesResponse
from reference.protocol.schema import Message

FIRST_ELECTION_WITH_ERROR_AT_THE_TOP = 1


def _create_topics(body: CreateTopicsRequest, code: ErrorCode) -> Message:
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(topics=[result(name=topic.name, error_code=code) for topic in body.topics])


def _delete_topics(body: DeleteTopicsRequest, code: ErrorCode) -> Message:
    result = DeleteTopicsResponse.DeletableTopicResult
    named = [result(name=topic.name, topic_id=topic.topic_id, error_code=code) for topic in body.topics]
    return DeleteTopicsResponse(responses=named or [result(name=name, error_code=code) for name in body.topic_names])


def _create_partitions(body: CreatePartitionsRequest, code: ErrorCode) -> Message:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(results=[result(name=topic.name, error_code=code) for topic in body.topics])


def _alter_configs(body: AlterConfigsRequest, code: ErrorCode) -> Message:
    result = AlterConfigsResponse.AlterConfigsResourceResponse
    return AlterConfigsResponse(
        responses=[
            result(error_code=code, resource_type=each.resource_type, resource_name=each.resource_name)
            for each in body.resources
        ]
    )


def _incremental_alter_configs(body: IncrementalAlterConfigsRequest, code: ErrorCode) -> Message:
    result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    return IncrementalAlterConfigsResponse(
        responses=[
            result(error_code=code, resource_type=each.resource_type, resource_name=each.resource_name)
            for each in body.resources
        ]
    )


def _elect_leaders(body: ElectLeadersRequest, code: ErrorCode) -> Message:
    """Version 0 has no error at the top, so that each partition bears it; asked for all, the answer names none."""
    election, result = ElectLeadersResponse.ReplicaElectionResult, ElectLeadersResponse.PartitionResult
    return ElectLeadersResponse(
        replica_election_results=[
            election(
                topic=topic.topic,
                partition_result=[result(partition_id=index, error_code=code) for index in topic.partitions],
            )
            for topic in body.topic_partitions or ()
        ]
    )


def _alter_scram(body: AlterUserScramCredentialsRequest, code: ErrorCode) -> Message:
    result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
    names = dict.fromkeys(each.name for each in (*body.deletions, *body.upsertions))
    return AlterUserScramCredentialsResponse(
        results=[result(user=name, error_code=code, error_message=None) for name in names]
    )


def _at_the_top(response: type[Message]) -> Callable[[Any, ErrorCode], Message]:
    return lambda body, code: response(error_code=code)


_REFUSALS: dict[int, Callable[[Any, ErrorCode], Message]] = {
    19: _create_topics,
    20: _delete_topics,
    33: _alter_configs,
    37: _create_partitions,
    43: _elect_leaders,
    44: _incremental_alter_configs,
    45: _at_the_top(AlterPartitionReassignmentsResponse),
    51: _alter_scram,
    46: _at_the_top(ListPartitionReassignmentsResponse),
    55: _at_the_top(DescribeQuorumResponse),
    56: _at_the_top(AlterPartitionResponse),
    73: _at_the_top(AssignReplicasToDirsResponse),
    57: _at_the_top(UpdateFeaturesResponse),
    62: _at_the_top(BrokerRegistrationResponse),
    63: _at_the_top(BrokerHeartbeatResponse),
    64: _at_the_top(UnregisterBrokerResponse),
    67: _at_the_top(AllocateProducerIdsResponse),
    70: _at_the_top(ControllerRegistrationResponse),
}
"""API key -> the response that says nothing but the error."""


def refusal(key: int, version: int, body: Message, code: ErrorCode) -> Message:
    """The response that refuses a request as a whole with one error."""
    response = _REFUSALS[key](body, code)
    if isinstance(response, ElectLeadersResponse) and version >= FIRST_ELECTION_WITH_ERROR_AT_THE_TOP:
        response.error_code = code
    return response
