"""HIS: delivery histories. Guarantees to clients while brokers are killed, stopped and frozen, judged from what the clients saw.

All requirements judge the history of one short hunt (see `conformance.hunting`), each by its own rules.
"""

from collections.abc import Callable, Mapping
from typing import Any

from conformance.broker import Broker
from conformance.hunting import KNOWN, Hunt, expect_none, hunted
from conformance.requirement import Test, requirement
from conformance.wire import Failed

ENDS = ("kill", "restart")
FAST = {
    "broker.heartbeat.interval.ms": "500",
    "broker.session.timeout.ms": "6000",
    "replica.lag.time.max.ms": "3000",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "10000",
}
"""Timeouts with which dead and lagging brokers are detected within seconds. The guarantees do not depend on them.

The interval of the search for transactions that time out is Kafka's default. At 200 ms Kafka 4.3.1 left a transaction without a
marker in each of three hunts (KAFKA-20734), which would hide other findings.
"""
WITHOUT_A_MARKER = (
    "what Kafka 4.3.1 does (KAFKA-20734, see TXV-23): a transaction that ends while a partition has no leader gets no marker "
    "there, and the next one of its producer decides over both; only of such transactions, found in the log itself"
)
DEADLINE_S = 420.0
"""The deadline; it includes the hunt, which the first of these requirements runs."""


def of_the_hunt(id: str, *, apis: Mapping[str, int] | None = None, **fields: Any) -> Callable[[Test], Test]:
    """Register a requirement that is judged by the hunt's history. The hunt creates its own topics."""
    return requirement(
        id, hooks=ENDS, configs=FAST, apis={"CreateTopics": 0, **(apis or {})}, deadline_s=DEADLINE_S, **fields
    )


def sends(broker: Broker) -> dict[str, int]:
    """The numbers of acknowledged sends, of records read, and of faults in the hunt."""
    result = hunted(broker).result
    return {
        "acknowledged sends": result.acknowledged,
        "records read": result.read,
        "faults": sum(result.faults.values()),
    }


@of_the_hunt(
    "HIS-01",
    notices="data: acknowledged records are lost",
    source="documentation, design, replication and message delivery semantics",
    sentence="A record that was acknowledged with acks=-1 is read by any client that reads the whole log after the "
    "faults are over.",
    accepted="every acknowledged record in the last full scan of every partition",
    tolerated=WITHOUT_A_MARKER,
)
def no_lost_write(broker: Broker) -> None:
    expect_none(broker, "lost-write", evidence=sends(broker))


@of_the_hunt(
    "HIS-02",
    notices="data: consumers pass over acknowledged records",
    source="documentation: records below the high watermark can be read",
    sentence="After the faults are over every acknowledged record is given to a consumer that reads on to the end.",
    accepted="no acknowledged record that a consumer passed over or never came to",
    tolerated=WITHOUT_A_MARKER,
)
def no_unseen_write(broker: Broker) -> None:
    expect_none(broker, "unseen", "not-delivered", evidence=sends(broker))


@of_the_hunt(
    "HIS-03",
    notices="data: consumers read different records at one offset",
    source="documentation, design: an offset names one record for ever",
    sentence="An offset of a partition names one record, in every answer to every client, and is given to one record only.",
    accepted="no offset with two records, and no record from nowhere, in answers, polls and replicas",
)
def one_offset_one_record(broker: Broker) -> None:
    rules = ("inconsistent-offsets", "offset-reuse", "replica-divergence", "phantom-read", "nonlinearizable")
    expect_none(broker, *rules, evidence=sends(broker))


@of_the_hunt(
    "HIS-04",
    notices="data: records of an idempotent producer are doubled",
    source="KIP-98",
    sentence="A record of an idempotent producer is in the log once, however often its request was sent.",
    accepted="no second copy of an idempotent producer's record; of others only where the outcome was unknown",
    apis={"InitProducerId": 0},
)
def no_duplicate(broker: Broker) -> None:
    expect_none(broker, "duplicate", evidence=sends(broker))


@of_the_hunt(
    "HIS-05",
    notices="data: a consumer goes back, or passes over records",
    source="documentation, consumer position and ordering guarantees",
    sentence="A consumer's offsets grow, within a poll and from poll to poll, and pass over no record that is there.",
    accepted="no poll that goes back or leaves a known record out, as long as the assignment lasts",
)
def polls_go_forward(broker: Broker) -> None:
    rules = ("nonmonotonic-poll", "int-nonmonotonic-poll", "poll-skip", "int-poll-skip")
    expect_none(broker, *rules, evidence=sends(broker))


@of_the_hunt(
    "HIS-06",
    notices="data: an idempotent producer's records change their order",
    source="documentation, ordering guarantees; KIP-98",
    sentence="What one idempotent producer sends to one partition lies in the log in the order in which it was sent.",
    accepted="growing offsets of each such producer's records",
    apis={"InitProducerId": 0},
)
def producers_keep_their_order(broker: Broker) -> None:
    expect_none(broker, "nonmonotonic-send", "int-nonmonotonic-send", evidence=sends(broker))


@of_the_hunt(
    "HIS-07",
    notices="data: a record lies before one that was acknowledged earlier",
    source="Herlihy and Wing, linearizability; documentation, design: a partition is one log",
    sentence="A record whose send begins after another one of the same partition was acknowledged lies behind it, whichever "
    "client sent them.",
    accepted="no record before one that was acknowledged earlier, and none that was read before it was sent",
)
def time_goes_forward(broker: Broker) -> None:
    expect_none(broker, "realtime-order", "future-read", evidence=sends(broker))


def transactions(broker: Broker) -> dict[str, int]:
    """The numbers of committed and aborted transactions, and of records read, in the hunt."""
    result = hunted(broker).result
    return {
        "committed transactions": result.committed, "aborted transactions": result.aborted, "records read": result.read
    }  # fmt: skip


@of_the_hunt(
    "HIS-08",
    notices="data: read_committed consumers read aborted records",
    source="Adya's G1a and G1b; KIP-98",
    sentence="A consumer with read_committed is given no record of an aborted transaction, and none before the commit was "
    "asked for.",
    accepted="neither in any poll",
    tolerated=WITHOUT_A_MARKER,
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def no_aborted_read(broker: Broker) -> None:
    expect_none(broker, "G1a", "G1b", evidence=transactions(broker))


@of_the_hunt(
    "HIS-09",
    notices="data: a part of a committed transaction is lost",
    source="KIP-98",
    sentence="A committed transaction is there as a whole: in all its partitions, or in none.",
    accepted="no transaction of which a part was read and another part is lost",
    tolerated=WITHOUT_A_MARKER,
    apis={"AddPartitionsToTxn": 0, "EndTxn": 0},
)
def whole_transactions(broker: Broker) -> None:
    expect_none(broker, "torn-transaction", "zombie-producer", evidence=transactions(broker))


@of_the_hunt(
    "HIS-10",
    notices="data: a group passes over records, or reads them again without a fault",
    source="documentation, message delivery semantics and consumer offsets",
    sentence="A group's committed offset is the last that was committed, and lies behind no record that the group was not "
    "given.",
    accepted="no fetch of an offset that was replaced before it began, and no committed offset beyond what was given out",
    apis={"OffsetCommit": 0, "OffsetFetch": 1},
)
def committed_offsets(broker: Broker) -> None:
    rules = ("committed-offset-regression", "committed-offset-loss", "commit-past-undelivered")
    expect_none(broker, *rules, evidence=sends(broker) | {"accepted commits": hunted(broker).count("commit:ok")})


@of_the_hunt(
    "HIS-11",
    notices="data: two members of a generation read and commit one partition",
    source="documentation, consumer groups",
    sentence="In one generation of a group a partition belongs to one member, and no other one's commit for it is taken.",
    accepted="no two members with one partition, by assignment or by accepted commit, in any generation",
    apis={"JoinGroup": 0, "SyncGroup": 0},
)
def one_owner(broker: Broker) -> None:
    expect_none(broker, "two-owners", evidence=sends(broker) | {"assignments": hunted(broker).count("subscribe:ok")})


def of_other_rules(found: Hunt) -> set[str]:
    """The reasons why the verdict on rules other than progress is unknown, for example that no leader epoch is reported."""
    rules = {each.rule for each in found.judgement.findings} - {"no-progress", "unseen", "not-delivered"}
    return {reason for reason in found.judgement.reasons if any(f" × {rule}: " in reason for rule in rules)}


@of_the_hunt(
    "HIS-12",
    notices="client: producers and consumers wait longer than a minute after the faults are over",
    source="documentation, design, replication: availability",
    sentence="When the faults are over every partition has its leader and its replicas in sync again, and sends succeed.",
    accepted="within a minute no send without success; every replica in sync; every partition read to its end",
    tolerated=WITHOUT_A_MARKER,
)
def progress(broker: Broker) -> None:
    found = hunted(broker)
    others = of_other_rules(found)
    unexplained = [reason for reason in found.unexplained if reason not in others]
    if found.result.stuck:  # it waits for the target or a busy machine: what other clients saw counts
        expect_none(broker, "no-progress", evidence=sends(broker))
        broker.skip("; ".join(unexplained))
    if unexplained:
        raise Failed("; ".join(unexplained))
    if reasons := [reason for reason in found.result.reasons if reason not in others]:
        broker.tolerate(f"{KNOWN}: {'; '.join(reasons)}")
        return
    expect_none(broker, "no-progress", evidence=sends(broker))
