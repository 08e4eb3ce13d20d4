"""RET: recovery of a log whose end was lost in a power failure."""

from conformance.batches import Record, batch, batches, values
from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement

DEADLINE_S = 240


@requirement(
    "RET-08",
    notices="data: a replica with a hole or torn records in its log serves them once it leads",
    source="UnifiedLog, LogLoader (recovery); KIP-101",
    sentence="A broker that lost its unflushed bytes recovers a prefix of its log with whole batches, and follows its leader "
    "from "
    "there: no hole, no batch with a wrong CRC.",
    accepted="once it is in sync again it serves the same bytes as the leader, and every CRC holds; it can lead then, and "
    "nothing "
    "that was acknowledged is missing",
    nodes=3, hooks=("power-loss", "restart"), configs=QUICK, alone=True, apis={"Fetch": 11}, deadline_s=DEADLINE_S,
)  # fmt: skip
def torn_tail(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        for number in range(20):
            broker.append(topic, batch(*(Record(b"%d-%d" % (number, part) * 30) for part in range(1 + number % 4))))
        nodes.lose_power(follower)
        nodes.await_isr(topic, leader)
        broker.append(topic, batch(b"while it is down"))
        nodes.restart(follower)
        nodes.await_isr(topic, leader, follower)
        end = broker.end_offset(topic)
        logs = [nodes.log_from(topic, node, end) for node in (leader, follower)]
        broker.expect(logs[0] == logs[1], f"both nodes have the same {len(logs[0])} bytes of {end} records")
        broker.expect(all(one.crc_holds for one in batches(logs[1])), "the CRCs hold")
        before = values(logs[0])
        nodes.lead(topic, follower)
        broker.expect_equal("the records that the restarted node serves as leader", values(broker.log(topic)), before)
