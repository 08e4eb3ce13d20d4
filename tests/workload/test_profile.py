"""Each client declares what it relies on, and not more."""

import random
from typing import Literal

import pytest
from confluent_kafka import KafkaError

from linearizability.workload.outcomes import proves_nothing_appended, proves_nothing_committed
from linearizability.workload.partitioning.murmur2 import partition_of
from linearizability.workload.partitioning.partitioners import Outgoing, Topic
from linearizability.workload.producer import partitioner
from linearizability.workload.profile import Producing, Profile, Transacting, standard_profile
from reference.protocol.messages.join_group import JoinGroupRequest

PLACED: tuple[Literal["given", "by-key", "round-robin", "sticky"], ...] = ("given", "by-key", "round-robin", "sticky")


def plain_producers(profile: Profile) -> list[Producing]:
    return [producer for producer in profile.producers if isinstance(producer, Producing)]


def test_three_nodes_promise_two_copies():
    profile = standard_profile(3)
    contract = profile.contract()
    assert (contract.acks, contract.replication_factor, contract.min_isr) == ("all", 3, 2)
    assert contract.permits_loss() == ""
    assert profile.topic_configs() == {"min.insync.replicas": "2", "unclean.leader.election.enable": "false"}


def test_only_exact_idempotent_producers_rely_on_order_and_singleness():
    profile = standard_profile(3)
    claims = {(p.client, p.idempotence): profile.contract(p).idempotence for p in plain_producers(profile)}
    assert claims == {("exact", True): True, ("exact", False): False, ("librdkafka", True): False}


def test_all_clients_of_a_run_declare_one_cluster():
    profile = standard_profile(3, unclean_election=True)
    clusters = {
        (c.replication_factor, c.min_isr, c.unclean_election)
        for c in map(profile.contract, [None, *profile.producers, *profile.consumers])
    }
    assert clusters == {(3, 2, True)}


def test_transactions_are_one_more_producer_held_to_order_and_singleness():
    profile = standard_profile(3, transactions=True, rate_per_s=400)
    fourth = profile.producers[3]
    assert isinstance(fourth, Transacting)
    assert {producer.rate_per_s for producer in profile.producers} == {100}
    assert (profile.contract(fourth).idempotence, profile.contract(fourth).acks) == (True, "all")


def test_clients_are_at_work_once_every_kind_has_done_something():
    counts = {"ok": 1, "read": 1, "commits": 1, "committed": 1, "aborted": 1}
    profile = standard_profile(3, transactions=True)
    assert profile.at_work(counts)
    assert not any(profile.at_work(counts | {what: 0}) for what in counts)
    assert standard_profile(3).at_work(counts | {"committed": 0, "aborted": 0})
    assert standard_profile(3, acks="0").at_work({"read": 1, "commits": 1})


@pytest.mark.parametrize("acks", ["0", "1"])
def test_lower_acks_permit_losses_and_need_no_idempotence(acks):
    profile = standard_profile(3, acks=acks)
    assert profile.contract().permits_loss()
    assert not any(producer.idempotence for producer in plain_producers(profile))
    assert acks == "1" or {producer.client for producer in profile.producers} == {"librdkafka"}


def test_one_node_has_one_replica_and_old_brokers_no_idempotence():
    profile = standard_profile(1, served={JoinGroupRequest.KEY})
    assert (profile.replication_factor, profile.min_isr) == (1, 1)
    assert not any(producer.idempotence for producer in plain_producers(profile))


@pytest.mark.parametrize(
    ("code", "proof"),
    [
        (KafkaError.MSG_SIZE_TOO_LARGE, True),
        (KafkaError.NOT_ENOUGH_REPLICAS, False),
        (KafkaError.NOT_LEADER_FOR_PARTITION, False),
        (KafkaError._MSG_TIMED_OUT, False),
        (KafkaError._TRANSPORT, False),
        (KafkaError._UNKNOWN_PARTITION, False),  # also of what was sent before, and would be sent again
        (KafkaError.UNKNOWN, False),
    ],
)
def test_what_librdkafkas_last_error_proves_of_a_send(code, proof):
    assert proves_nothing_appended(KafkaError(code)) is proof


@pytest.mark.parametrize(
    ("code", "proof"),
    [
        (KafkaError.OFFSET_METADATA_TOO_LARGE, True),
        (KafkaError.REQUEST_TIMED_OUT, False),
        (KafkaError._TRANSPORT, False),
        (KafkaError.ILLEGAL_GENERATION, False),  # the last attempt's answer: an earlier one may have been written
        (KafkaError.UNKNOWN_MEMBER_ID, False),
        (KafkaError.REBALANCE_IN_PROGRESS, False),
    ],
)
def test_what_an_error_proves_of_a_commit(code, proof):
    assert proves_nothing_committed(KafkaError(code)) is proof


def test_only_who_sends_through_the_library_takes_a_partitioner():
    with pytest.raises(ValueError, match="takes no partitioner"):
        Producing(client="exact", partitioner="by-key")
    places = {name: partitioner(Producing(client="librdkafka", partitioner=name), random.Random(1)) for name in PLACED}
    topic = Topic("orders", 5)
    found = {name: [choose(Outgoing(b"customer 1", 400), topic) for _ in range(20)] for name, choose in places.items()}
    assert set(found["by-key"]) == {partition_of(b"customer 1", 5)}
    assert found["round-robin"] == [*range(5)] * 4
    assert len(set(found["given"])) > 2 and len(set(found["sticky"])) > 1
    assert found["sticky"][0] == found["sticky"][1] == found["sticky"][2], "three of these make a batch"
