"""Responses to a client without permission, where Kafka 4.3.1 differs from the table of needs (found by drawn requests).

A malformed request is refused as such, and some refusals have more than an error.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, TypeAlias
from uuid import UUID

import pytest

from reference.node.configs import refused_by_broker
from reference.node.groups import Groups
from reference.node.node import Node
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.alter_configs import AlterConfigsRequest
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.delete_topics import DeleteTopicsRequest
from reference.protocol.messages.describe_client_quotas import DescribeClientQuotasRequest
from reference.protocol.messages.describe_configs import DescribeConfigsRequest
from reference.protocol.messages.describe_producers import DescribeProducersRequest
from reference.protocol.messages.describe_transactions import DescribeTransactionsRequest
from reference.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from reference.protocol.messages.feature_level_record import FeatureLevelRecord
from reference.protocol.messages.fetch import FetchRequest, FetchResponse
from reference.protocol.messages.find_coordinator import FindCoordinatorRequest
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from reference.protocol.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from reference.protocol.messages.metadata import MetadataRequest
from reference.protocol.messages.sync_group import SyncGroupRequest
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message
from tests.node.test_access import access, request
from tests.node.test_drawn_access import Guarded
from tests.node.three_nodes import IDS

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TOPIC, BROKER, UNKNOWN_TYPE = 2, 4, 5


def refused(body: Message, version: int) -> Any:
    """The refusal of a stranger's request; None if its handler gets the whole request."""
    admission = access().admit(request(body.KEY, version), body)
    assert admission.refusal is not None or admission.body is body
    return admission.refusal


def test_topic_ids_before_version_12_are_invalid_for_all() -> None:
    topic = MetadataRequest.MetadataRequestTopic(name="t", topic_id=UUID(int=9))
    assert refused(MetadataRequest(topics=[topic]), 11) is None, "the handler refuses it"


def test_a_refusal_of_reassignments_names_the_partitions() -> None:
    topic = ListPartitionReassignmentsRequest.ListPartitionReassignmentsTopics(name="t", partition_indexes=[0, 3])
    answer = refused(ListPartitionReassignmentsRequest(topics=[topic]), 0)
    assert answer.error_code == DENIED
    assert [(each.name, [one.partition_index for one in each.partitions]) for each in answer.topics] == [("t", [0, 3])]
    assert refused(ListPartitionReassignmentsRequest(topics=None), 0).topics == []


def test_a_refusal_of_credentials_has_a_result_for_each_user_without_its_name() -> None:
    users = [DescribeUserScramCredentialsRequest.UserName(name=name) for name in ("a", "b")]
    answer = refused(DescribeUserScramCredentialsRequest(users=users), 0)
    assert [(each.user, each.error_code) for each in answer.results] == [("", DENIED)] * 2
    assert refused(DescribeUserScramCredentialsRequest(users=None), 0).error_code == DENIED


def test_a_refusal_of_quotas_has_no_entries() -> None:
    assert refused(DescribeClientQuotasRequest(components=[]), 1).entries is None


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_refusal_to_join_names_no_protocol(version: int, name: str | None) -> None:
    assert refused(JoinGroupRequest(group_id="g"), version).protocol_name == name


def test_a_transaction_that_may_not_be_described_has_epoch_zero() -> None:
    (state,) = refused(DescribeTransactionsRequest(transactional_ids=["x"]), 0).transaction_states
    assert (state.error_code, state.producer_epoch) == (ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, 0)


@pytest.mark.parametrize(("version", "protocol", "is_refused"), [(5, None, False), (5, "p", True), (4, None, True)])
def test_a_sync_group_without_its_protocol_is_invalid_for_all(version: int, protocol: str, is_refused: bool) -> None:
    body = SyncGroupRequest(group_id="g", protocol_type=protocol, protocol_name=protocol)
    assert (refused(body, version) is not None) == is_refused


@pytest.mark.parametrize(("version", "code"), [(5, None), (6, DENIED)])
def test_the_coordinator_of_a_share_group_is_for_brokers(version: int, code: int | None) -> None:
    """The handler has none: it refuses all others."""
    answer = refused(FindCoordinatorRequest(key_type=2, coordinator_keys=["g:id:0"]), version)
    assert (answer and answer.coordinators[0].error_code) == code


def test_one_unknown_type_makes_a_description_of_settings_invalid_for_all() -> None:
    resource = DescribeConfigsRequest.DescribeConfigsResource
    broker = resource(resource_type=BROKER, resource_name="1")
    assert refused(DescribeConfigsRequest(resources=[broker]), 4).results[0].error_code == DENIED
    assert refused(DescribeConfigsRequest(resources=[broker, resource(resource_type=UNKNOWN_TYPE)]), 4) is None


def test_an_invalid_topic_of_producers_is_invalid_for_all() -> None:
    topic = DescribeProducersRequest.TopicRequest
    assert refused(DescribeProducersRequest(topics=[topic(name="bad name", partition_indexes=[0])]), 0) is None
    assert refused(DescribeProducersRequest(topics=[topic(name="t", partition_indexes=[0])]), 0) is not None


@pytest.mark.parametrize(
    "topics",
    [
        [{"name": "t", "topic_id": UUID(int=1)}],
        [{"name": None}],
        [{"name": "t"}, {"name": "t"}],
        [{"name": None, "topic_id": UUID(int=1)}] * 2,
    ],
)
def test_topics_that_are_named_wrongly_are_invalid_for_all(topics: list[dict[str, Any]]) -> None:
    state = DeleteTopicsRequest.DeleteTopicState
    body = DeleteTopicsRequest(topics=[state(**each) for each in topics])
    assert refused(body, 6) is None
    assert refused(DeleteTopicsRequest(topics=[state(name="t")]), 6) is not None


def test_a_broker_that_deletes_no_topics_says_so_to_every_client() -> None:
    body = DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="t")])
    admission = access(properties={"delete.topic.enable": "false"}).admit(request(body.KEY, 6), body)
    assert admission.refusal is None and admission.body is body


class Fetched(Guarded):
    """Keeps the responses to the stranger's fetches."""

    fetched: FetchResponse | None = None

    def _look_at_fetch(self, node: Node, answer: FetchResponse) -> None:
        self.fetched = answer


@pytest.mark.parametrize(
    ("replica", "code"), [(-1, ErrorCode.UNKNOWN_TOPIC_ID), (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
)
def test_a_followers_fetch_of_an_unknown_topic_is_refused_too(replica: int, code: ErrorCode) -> None:
    nodes = Fetched(1)
    partition = FetchRequest.FetchPartition(partition=0, partition_max_bytes=1)
    topic = FetchRequest.FetchTopic(topic_id=UUID(int=9), partitions=[partition])
    state = FetchRequest.ReplicaState(replica_id=replica)
    nodes.send(IDS[0], FetchRequest(replica_state=state, session_epoch=-1, topics=[topic]), 17)
    nodes.run_until(lambda: nodes.fetched)
    assert nodes.fetched is not None
    assert nodes.fetched.responses[0].partitions[0].error_code == code


# ---- changes of settings, which the receiving broker looks at before the controller checks access


Change: TypeAlias = tuple[int, str, list[tuple[str, str | None]]]
"""A type and a name of a resource, and its settings."""
MALFORMED: dict[str, Change] = {
    "no value": (TOPIC, "t", [("retention.ms", None)]),
    "twice": (TOPIC, "t", [("retention.ms", "1"), ("retention.ms", "2")]),
    "unknown type": (UNKNOWN_TYPE, "t", [("retention.ms", "1")]),
    "no broker id": (BROKER, "x", [("log.retention.ms", "1")]),
}


@pytest.mark.parametrize("form", [AlterConfigsRequest, IncrementalAlterConfigsRequest])
@pytest.mark.parametrize("malformed", MALFORMED.values(), ids=MALFORMED)
def test_a_malformed_change_of_settings_is_invalid_for_all(malformed: Change, form: Any) -> None:
    found = access()

    def codes(*resources: Change) -> list[int]:
        asked = [
            form.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[form.AlterableConfig(name=setting, value=value) for setting, value in settings],
            )
            for kind, name, settings in resources
        ]
        return [code for _, code, _ in refused_by_broker(found.configuration, form(resources=asked))]

    sound: Change = (TOPIC, "t", [("retention.ms", "1")])
    assert codes(sound) == [], "the controller refuses it"
    assert codes(malformed) == [ErrorCode.INVALID_REQUEST]
    assert codes(sound, sound) == [ErrorCode.INVALID_REQUEST] * 2


def test_what_the_elr_forbids_is_refused_behind_the_check_of_access() -> None:
    configuration = access().configuration
    configuration.image.apply(FeatureLevelRecord(name="eligible.leader.replicas.version", feature_level=1))
    setting = ConfigRecord(resource_type=BROKER, resource_name="", name="min.insync.replicas", value="2")
    configuration.image.apply(setting)
    removed = AlterConfigsRequest.AlterConfigsResource(resource_type=BROKER, resource_name="", configs=[])
    assert refused_by_broker(configuration, AlterConfigsRequest(resources=[removed])) == []


# ---- what is not about access


@pytest.mark.parametrize(("version", "name"), [(6, ""), (7, None)])
def test_a_protocol_without_a_name_is_none_since_version_7(version: int, name: str | None) -> None:
    answered: list[JoinGroupResponse] = []
    groups: Any = SimpleNamespace(coordination=SimpleNamespace(answer=lambda *arguments: answered.append(arguments[2])))
    Groups.answer(groups, 0, request(11, version), JoinGroupResponse(protocol_name=""), TimestampMs(0))
    assert [each.protocol_name for each in answered] == [name]
