"""OFF: offsets that a group's member commits in a transaction: from which members they are accepted. TXV has their visibility."""

from conformance.answers import only
from conformance.broker import Broker
from conformance.classic_groups import Group
from conformance.committed_offsets import NOTHING, await_offset, expect_offset
from conformance.requirement import requirement, untestable
from conformance.transaction_client import CLASSIC, TRANSACTIONS, TransactionalClient
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.txn_offset_commit import TxnOffsetCommitRequest

WITH_MEMBERS = 3
"""The first version of TxnOffsetCommit with generation and member (KIP-447)."""


def commit_in_transaction(
    client: TransactionalClient,
    group: str,
    topic: Topic,
    offset: int,
    *,
    generation: int = -1,
    member_id: str = "",
    instance_id: str | None = None,
) -> int:
    """The error code of TxnOffsetCommit for partition 0 of a topic."""
    table = TxnOffsetCommitRequest
    partition = table.TxnOffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    request = table(
        transactional_id=client.name,
        group_id=group,
        producer_id=client.id,
        producer_epoch=client.epoch,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        group_instance_id=instance_id,
        topics=[table.TxnOffsetCommitRequestTopic(name=topic.name, topic_id=topic.id, partitions=[partition])],
    )
    answer = client.broker.call(request, client.protocol.commit_offsets, to=client.broker.coordinator(group))
    return only(only(answer.topics, "topic in the answer").partitions, "partition in the answer").error_code


@requirement(
    "OFF-17",
    notices="data: a member that lost its partitions commits for them in a transaction: records are processed twice",
    source="KIP-447; ClassicGroup.validateOffsetCommit (isTransactional); "
    "OffsetMetadataManager.validateTransactionalOffsetCommit",
    sentence="TxnOffsetCommit in another generation is refused with ILLEGAL_GENERATION, of an unknown member with "
    "UNKNOWN_MEMBER_ID, of a static member that was replaced with FENCED_INSTANCE_ID; unlike OffsetCommit it is taken while the "
    "group waits for the leader's assignment.",
    accepted="22, 25, 82, and nothing of it is reported afterwards; NONE(0) for the member, joined and not yet synchronised, and "
    "for who reports neither generation nor member",
    apis=TRANSACTIONS | {"TxnOffsetCommit": WITH_MEMBERS, "JoinGroup": 5},
)
def members_in_transactions(broker: Broker) -> None:
    topic = broker.topic()
    group = Group(broker)
    (old,) = group.stable(1, instance_id="one")
    new = old.successor()
    new.join()
    client = TransactionalClient(broker, CLASSIC)
    broker.expect_error(client.add_offsets(group.name), ErrorCode.NONE, what="AddOffsetsToTxn")
    tries = (
        ("a later generation", new.generation + 1, new.id, "one", ErrorCode.ILLEGAL_GENERATION),
        ("an earlier generation", new.generation - 1, new.id, "one", ErrorCode.ILLEGAL_GENERATION),
        ("an unknown member", new.generation, "nobody", None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("the one that was replaced", new.generation, old.id, "one", ErrorCode.FENCED_INSTANCE_ID),
    )
    for reported, generation, id, instance, error in tries:
        code = commit_in_transaction(
            client, group.name, topic, 99, generation=generation, member_id=id, instance_id=instance
        )
        broker.expect_error(code, error, what=reported)
    client.finish(committed=True)
    expect_offset(broker, group.name, topic, NOTHING, "the offset after a transaction of refused commits")
    other = group.member()
    group.admit(other, [new])
    broker.expect_error(client.add_offsets(group.name), ErrorCode.NONE, what="AddOffsetsToTxn")
    code = commit_in_transaction(client, group.name, topic, 7, generation=other.generation, member_id=other.id)
    broker.expect_error(code, ErrorCode.NONE, what="joined, not synchronised")
    client.finish(committed=True)
    await_offset(broker, group.name, topic, 7, "the offset after a transaction of the member")


untestable(
    "OFF-18",
    notices="client: producers of before TxnOffsetCommit v2 end the transaction on a code that they do not know",
    source="KafkaApis.handleTxnOffsetCommitRequest",
    sentence="While the coordinator is loading, TxnOffsetCommit below v2 is answered with COORDINATOR_NOT_AVAILABLE where later "
    "versions are answered with COORDINATOR_LOAD_IN_PROGRESS.",
    reason="nothing from outside makes a coordinator load for so long that a request surely meets it",
)


@requirement(
    "OFF-29",
    notices="stuck: producers of before KIP-447, and sendOffsetsToTransaction by group id, commit like this",
    source="ClassicGroup.validateOffsetCommit; KIP-98",
    sentence="A client that is no member commits in a transaction without a generation and a member id, also while the group has "
    "members: producers of before KIP-447 do so.",
    accepted="NONE(0) for a group that was not used and for one with a member; reported after the transaction is committed",
    apis=TRANSACTIONS | {"TxnOffsetCommit": 0},
)
def nobody_in_transactions(broker: Broker) -> None:
    topic = broker.topic()
    used = Group(broker)
    used.stable(1)
    for name in (Group(broker).name, used.name):
        client = TransactionalClient(broker, CLASSIC)
        broker.expect_error(client.add_offsets(name), ErrorCode.NONE, what="AddOffsetsToTxn")
        code = commit_in_transaction(client, name, topic, 11)
        broker.expect_error(code, ErrorCode.NONE, what="TxnOffsetCommit")
        client.finish(committed=True)
        await_offset(broker, name, topic, 11, "the offset")
