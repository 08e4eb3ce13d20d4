"""IDM: the idempotent producer after a change of the leader."""

from conformance.batches import idempotent, values
from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement
from conformance.requirements.idempotence import KNOWN_ALREADY
from reference.protocol.errors import ErrorCode

DEADLINE_S = 240
REMEMBERED = 5
"""The number of a producer's latest batches that a partition remembers; a producer state snapshot has the last one only."""
ENDS = ("kill", "restart")


@requirement(
    "IDM-12",
    notices="data: a batch that is sent again after a fail-over is stored twice",
    source="KIP-98; ProducerStateManager (rebuilt from the log, and from snapshots)",
    sentence="A batch that was acknowledged and is sent again, to the next leader or after a restart, is known: it succeeds with "
    "its offset and is not stored again.",
    accepted="NONE(0) and the first base offset after a change of leader, after that leader was killed, and after it is back; "
    "the "
    "next sequence fits; one copy of each",
    tolerated="DUPLICATE_SEQUENCE_NUMBER(46), which clients take as success (IDM-05)",
    nodes=3, hooks=ENDS, configs=QUICK, apis={"AlterPartitionReassignments": 0, "ElectLeaders": 1}, deadline_s=DEADLINE_S,
)  # fmt: skip
def known_after_a_failover(broker: Broker) -> None:
    with cluster(broker) as nodes:
        first, second, _ = nodes.cast()
        topic, (id, epoch) = nodes.topic(first, second), broker.producer_id()
        sent = [idempotent([b"%d" % number], id, epoch, number) for number in range(5)]
        for data in sent:
            broker.append(topic, data)

        def expect_known(last: int, when: str) -> None:
            for number in range(len(sent) - last, len(sent)):
                result = broker.produce(topic, sent[number])
                what = f"{when}: batch {number} again"
                broker.expect_error(result.error_code, ErrorCode.NONE, tolerated=KNOWN_ALREADY, what=what)
                if result.error_code == ErrorCode.NONE:
                    broker.expect_equal("its base offset", result.base_offset, number)
            data = idempotent([b"%d" % len(sent)], id, epoch, len(sent))
            broker.expect_equal(f"{when}: the next batch", broker.append(topic, data), len(sent))
            sent.append(data)

        nodes.lead(topic, second)
        expect_known(REMEMBERED, "with another leader")
        epoch_before = nodes.await_isr(topic, first, second).epoch
        nodes.kill(second)
        nodes.await_leader(topic, first, above=epoch_before)
        expect_known(REMEMBERED, "after that leader was killed")
        nodes.restart(second)
        nodes.await_isr(topic, first, second)
        nodes.lead(topic, second)
        expect_known(1, "led again by the node that was killed")  # its snapshot has the last batch only
        wanted = [b"%d" % number for number in range(len(sent))]
        broker.expect_equal("the log", values(broker.log(topic)), wanted)
