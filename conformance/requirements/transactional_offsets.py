"""TXV: visibility of offsets that a group commits in transactions."""

from conformance.answers import only
from conformance.broker import Broker
from conformance.committed_offsets import LOADING, NOTHING, Found, committed, expect_committed
from conformance.requirement import requirement
from conformance.transaction_client import TRANSACTIONS, Protocol, TransactionalClient, in_each_protocol
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.offset_fetch import OffsetFetchRequest

STABLE_SINCE = 7
"""The first version of OffsetFetch with require_stable (KIP-447)."""
OFFSETS = TRANSACTIONS | {"TxnOffsetCommit": 0, "AddOffsetsToTxn": 0}
UNSTABLE = ErrorCode.UNSTABLE_OFFSET_COMMIT


def reported_of(
    broker: Broker, group: str, topic: Topic, partition: int = 0, *, stable: bool = False, version: int | None = None
) -> tuple[int, int]:
    """Offset and error code of one partition in OffsetFetch; `stable` is require_stable."""

    def reported() -> Found | None:
        found = committed(broker, group, [(topic, partition)], version=version, require_stable=stable)
        return None if found.error_code in LOADING else found

    found = broker.eventually(reported, f"the offsets of {group} are reported")
    broker.expect_equal("the error of OffsetFetch", found.error_code, ErrorCode.NONE)
    offset = only([*found.partitions.values()], "partition in the answer to OffsetFetch").offset
    return offset, only([*found.errors.values()], "error in the answer to OffsetFetch")


def expect_reported(broker: Broker, what: str, group: str, topic: Topic, offset: int, partition: int = 0) -> None:
    """Expect this committed offset; waits until no transaction with the group's offsets is pending."""
    stable = broker.versions_of(OffsetFetchRequest)[1] >= STABLE_SINCE

    def reported() -> tuple[int, int] | None:
        found = reported_of(broker, group, topic, partition, stable=stable)
        return None if found[1] == UNSTABLE or not (stable or found[0] == offset) else found

    found = broker.eventually(reported, f"{what}: the offset of {group} is stable")
    broker.expect_equal(what, found, (offset, ErrorCode.NONE))


@requirement(
    "TXV-08",
    notices="data: records are processed twice, or never: position and output of a transaction part",
    source="KIP-98; OffsetMetadataManager.pendingTransactionalOffsets",
    sentence="An offset that a transaction commits for a group is reported once the transaction is committed, and never if it is "
    "aborted.",
    accepted="the offset of before, or -1 where there was none, while the transaction is open and after an abort; the new one "
    "after a commit; other partitions are not touched",
    apis=OFFSETS,
)
def offsets_of_a_transaction(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(2), broker.unused_name("group")
        client = TransactionalClient(broker, protocol)
        before = NOTHING
        for offset, ends_well in ((5, False), (6, True), (7, False), (3, True)):
            client.write_offsets(group, {(topic, 0): offset})
            reported = reported_of(broker, group, topic)
            broker.expect_equal(f"while {offset} is pending", reported, (before, ErrorCode.NONE))
            client.finish(committed=ends_well)
            before = offset if ends_well else before
            expect_reported(
                broker, f"after {offset} was {'committed' if ends_well else 'aborted'}", group, topic, before
            )
        expect_reported(broker, "the other partition", group, topic, NOTHING, partition=1)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-09",
    notices="data: Streams and Java with exactly-once begin at an offset that the pending transaction has passed already",
    source="KIP-447; OffsetMetadataManager.fetchOffsets",
    sentence="OffsetFetch with require_stable is UNSTABLE_OFFSET_COMMIT for a partition whose offset a transaction has "
    "pending; without it, the offset of before is reported.",
    accepted="UNSTABLE_OFFSET_COMMIT(88) and offset -1 in every version from 7 on, for that partition alone; NONE(0) without "
    "require_stable, and once the transaction has ended either way",
    since="2.5",
    apis=OFFSETS | {"OffsetFetch": STABLE_SINCE},
)
def unstable_offsets(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(2), broker.unused_name("group")
        expect_committed(broker, group, {(topic, 0): 1, (topic, 1): 2})
        client = TransactionalClient(broker, protocol)
        lowest, highest = broker.versions_of(OffsetFetchRequest)
        for ends_well in (False, True):
            client.write_offsets(group, {(topic, 0): 5})
            for version in range(max(lowest, STABLE_SINCE), highest + 1):
                reported = reported_of(broker, group, topic, stable=True, version=version)
                broker.expect_equal(f"v{version}, require_stable", reported, (NOTHING, UNSTABLE))
                reported = reported_of(broker, group, topic, 1, stable=True, version=version)
                broker.expect_equal(f"v{version}, the other partition", reported, (2, ErrorCode.NONE))
                reported = reported_of(broker, group, topic, version=version)
                broker.expect_equal(f"v{version}, without require_stable", reported, (1, ErrorCode.NONE))
            client.finish(committed=ends_well)
            expect_reported(broker, "after the end", group, topic, 5 if ends_well else 1)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-17",
    notices="data: positions of some groups do not move with the transaction, and their records are processed twice",
    source="KIP-98; OffsetMetadataManager.replayEndTransactionMarker",
    sentence="A transaction may commit offsets of several groups, and several for a partition: all count with its commit, of "
    "those for one partition the last.",
    accepted="each group's last offset for each partition, after one commit; none after an abort",
    apis=OFFSETS,
)
def several_groups_and_offsets(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic = broker.topic(2)
        one, other = (broker.unused_name(f"group-{number}") for number in range(2))
        client = TransactionalClient(broker, protocol)
        for ends_well in (False, True):
            client.write_offsets(one, {(topic, 0): 5, (topic, 1): 6})
            client.write_offsets(other, {(topic, 0): 50})
            client.write_offsets(one, {(topic, 1): 4})
            client.finish(committed=ends_well)
            for group, partition, offset in ((one, 0, 5), (one, 1, 4), (other, 0, 50), (other, 1, NOTHING)):
                reported = f"{'one' if group == one else 'the other'} group, partition {partition}"
                expect_reported(broker, reported, group, topic, offset if ends_well else NOTHING, partition)

    in_each_protocol(broker, judge)


@requirement(
    "TXV-18",
    notices="data: an older position comes back when a transaction ends, and records are processed twice",
    source="KAFKA-5259; OffsetMetadataManager.replayEndTransactionMarker (recordOffset)",
    sentence="Of offsets for one partition that were committed in and outside of transactions, the one that was written last "
    "counts, in whichever order the transactions end.",
    accepted="a plain commit after the transaction's stays when that is committed; of two transactions the one that wrote last; "
    "UNSTABLE_OFFSET_COMMIT(88) until both have ended",
    since="2.5",
    apis=OFFSETS | {"OffsetFetch": STABLE_SINCE},
)
def the_last_one_written(broker: Broker) -> None:
    def judge(protocol: Protocol) -> None:
        topic, group = broker.topic(), broker.unused_name("group")
        first, second = (TransactionalClient(broker, protocol) for _ in range(2))
        first.write_offsets(group, {(topic, 0): 5})
        expect_committed(broker, group, {(topic, 0): 3})
        reported = reported_of(broker, group, topic)
        broker.expect_equal("a plain commit while another is pending", reported, (3, ErrorCode.NONE))
        first.finish(committed=True)
        expect_reported(broker, "after the pending one's commit", group, topic, 3)
        first.write_offsets(group, {(topic, 0): 7})
        second.write_offsets(group, {(topic, 0): 6})
        second.finish(committed=True)
        broker.eventually(lambda: reported_of(broker, group, topic)[0] == 6, "the second one's offset is reported")
        reported = reported_of(broker, group, topic, stable=True)
        broker.expect_equal("require_stable while the first is pending", reported, (NOTHING, UNSTABLE))
        first.finish(committed=True)
        expect_reported(broker, "after the first one's commit", group, topic, 6)

    in_each_protocol(broker, judge)
