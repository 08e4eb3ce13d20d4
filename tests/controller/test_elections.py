"""Elections that are asked for, and those that the controller holds by itself.

Requests that are drawn beside Kafka have no test here (`test_kafka_decides_alike`).
"""

import pytest

from reference.controller import elections
from reference.controller.elections import PREFERRED_ELECTION, UNCLEAN_ELECTION
from reference.controller.image import NO_LEADER, RECOVERING
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.clear_elr_record import ClearElrRecord
from reference.protocol.messages.config_record import ConfigRecord
from reference.protocol.messages.elect_leaders import ElectLeadersRequest
from tests.controller.cluster import TOPIC, ControlledCluster

Partitions = ElectLeadersRequest.TopicPartitions


def three_brokers(**settings: str) -> ControlledCluster:
    cluster = ControlledCluster(settings={"min.insync.replicas": "2", **settings})
    cluster.start(0, 1, 2)
    cluster.create(TOPIC, [0, 1, 2], [1, 2, 0])
    return cluster


def elect(cluster: ControlledCluster, kind: int, *indexes: int, topic: str = TOPIC) -> list[int]:
    request = ElectLeadersRequest(election_type=kind, topic_partitions=[Partitions(topic=topic, partitions=[*indexes])])
    return [each.error_code for each in cluster.elect(request).replica_election_results[0].partition_result]


def bring_back(cluster: ControlledCluster, broker: int) -> None:
    """Unfence the broker and add it to all ISRs again."""
    cluster.heartbeat(broker)
    for index, partition in cluster.image.topics[TOPIC].partitions.items():
        assert cluster.alter_isr(sorted({*partition.isr, broker}), index=index) == 0


@pytest.mark.step("replication", "ElectLeader")
def test_the_preferred_replica_leads_when_it_is_asked_for() -> None:
    cluster = three_brokers()
    cluster.fence(0)
    bring_back(cluster, 0)
    epoch = cluster.partition().leader_epoch
    assert elect(cluster, PREFERRED_ELECTION, 0, 1) == [0, ErrorCode.ELECTION_NOT_NEEDED]
    assert (cluster.partition().leader, cluster.partition().leader_epoch) == (0, epoch + 1)
    assert len(cluster.written) == 1


@pytest.mark.step("replication", "ElectUncleanLeader")
def test_an_unclean_election_is_for_partitions_without_a_leader() -> None:
    cluster = three_brokers()
    assert elect(cluster, UNCLEAN_ELECTION, 0) == [ErrorCode.ELECTION_NOT_NEEDED]
    cluster.fence(0)
    cluster.fence(1)
    cluster.fence(2)
    assert elect(cluster, UNCLEAN_ELECTION, 0) == [ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE]
    cluster.heartbeat(0)
    assert cluster.partition().leader == NO_LEADER
    assert elect(cluster, UNCLEAN_ELECTION, 0) == [0]
    partition = cluster.partition()
    assert (partition.leader, partition.isr, partition.eligible_leader_replicas) == (0, [0], [])
    assert partition.leader_recovery_state == RECOVERING


def test_an_election_for_all_partitions_returns_only_those_that_needed_it() -> None:
    cluster = three_brokers()
    cluster.fence(0)
    bring_back(cluster, 0)
    answer = cluster.elect(ElectLeadersRequest(election_type=PREFERRED_ELECTION, topic_partitions=None))
    (result,) = answer.replica_election_results
    assert [(each.partition_id, each.error_code) for each in result.partition_result] == [(0, 0)]


def test_one_decision_holds_a_limited_number_of_elections(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(elections, "MAX_ELECTIONS_AT_ONCE", 1)
    cluster = ControlledCluster()
    cluster.start(0, 1)
    cluster.create(TOPIC, [0, 1], [0, 1], [0, 1])
    cluster.fence(0)
    bring_back(cluster, 0)
    decision = elections.balance_leaders(cluster.image, cluster.configuration)
    assert (len(decision.records), decision.response) == (1, True)


@pytest.mark.step("replication", "ChangeMinIsr")
def test_another_min_isr_clears_the_eligible_replicas() -> None:
    cluster = three_brokers()
    changes = [
        ConfigRecord(resource_type=kind, resource_name=name, name=setting, value="1")
        for kind, name, setting in [
            (2, TOPIC, "min.insync.replicas"),
            (2, TOPIC, "retention.ms"),
            (4, "", "min.insync.replicas"),
        ]
    ]
    records = elections.change_min_isr(cluster.image, changes)
    assert records == [ClearElrRecord(topic_name=TOPIC), ClearElrRecord(topic_name="")]
    assert elections.change_min_isr(ControlledCluster(has_elr=False).image, changes) == []
