"""FET: fetches above the high watermark, and fetches from brokers that do not lead."""

from conformance.answers import only
from conformance.batches import batch, values
from conformance.broker import Broker
from conformance.cluster import QUICK, STATE_WITHIN_S, JudgedCluster, cluster
from conformance.moments import in_time
from conformance.requirement import requirement
from linearizability.client.requests import Topic
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.fetch import FetchRequest

DEADLINE_S = 240
FETCH_WITH_LEADER = 16
"""The first version of Fetch whose response names the current leader (KIP-951)."""
FETCH_FROM_FOLLOWERS = 11
"""The first version of Fetch with the consumer's rack, which any replica may serve (KIP-392)."""
FREEZES = ("pause",)
RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


@requirement(
    "FET-03",
    notices="stuck: a consumer that was shown an offset above the high watermark would reset its position",
    source="LocalLog.read; UnifiedLog.read",
    sentence="A consumer's fetch between the high watermark and the log end is answered without records and without an error.",
    accepted="NONE(0), no bytes and the high watermark, at it, behind it and at the log end; OFFSET_OUT_OF_RANGE(1) beyond",
    nodes=3, hooks=FREEZES, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def above_the_high_watermark(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"shown"))

        def once() -> bool:
            shown = broker.end_offset(topic)
            with nodes.paused(follower) as moment:
                end = broker.append(topic, batch(b"1", b"2", b"3"), acks=1) + 3
                found = [broker.fetch(topic, offset) for offset in range(shown, end + 2)]
                lasts = moment.keeps(nodes, topic, follower)
            nodes.await_isr(topic, leader, follower)
            if lasts:
                for offset, one in enumerate(found, shown):
                    beyond = ErrorCode.OFFSET_OUT_OF_RANGE if offset > end else ErrorCode.NONE
                    reported = f"offset {offset}, high watermark {shown}, log end {end}"
                    broker.expect_error(one.error_code, beyond, what=reported)
                    broker.expect_equal(f"{reported}: the records", values(bytes(one.records or b"")), [])
                    if offset <= end:
                        broker.expect_equal("the high watermark", one.high_watermark, shown)
            return lasts

        in_time(broker, once, failures=2)


@requirement(
    "FET-12",
    notices="misread: a consumer that fetches below v11 reads at a follower what no leader has committed",
    source="KIP-392; Partition.localLogWithEpochOrThrow; ReplicaManager.fetchMessages; KIP-951",
    sentence="A consumer's fetch below v11 at a broker that does not lead is refused with NOT_LEADER_OR_FOLLOWER; from v11 on a "
    "follower serves it up to its own high watermark, and a broker without a replica refuses it, from v16 on with the "
    "leader's address.",
    accepted="NOT_LEADER_OR_FOLLOWER(6) without records, from a broker without a replica REPLICA_NOT_AVAILABLE(9) from v11 on "
    "before 2.6 (KAFKA-10223); from v11 on the records of the follower",
    tolerated="no leader, or none of its addresses: clients ask for metadata then",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S, requires=("BAS-14",),
)  # fmt: skip
def fetch_elsewhere(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, stranger = nodes.cast()
        topic = nodes.topic(leader, follower)
        broker.append(topic, batch(b"a", b"b"))
        lowest, highest = broker.versions_of(FetchRequest)
        for version in range(max(lowest, 4), highest + 1):
            for node in (follower, stranger):
                reported = f"v{version} at node {node}"
                if node == follower and version >= FETCH_FROM_FOLLOWERS:
                    broker.eventually(
                        lambda version=version: follower_serves(broker, nodes, topic, follower, version),
                        f"{reported}: its records",
                        within_s=STATE_WITHIN_S,
                    )
                    continue
                request = fetch_of(topic)
                answer = broker.call(request, version, to=nodes.address(node))
                found = only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")
                refused = ErrorCode.NOT_LEADER_OR_FOLLOWER
                if version >= FETCH_FROM_FOLLOWERS and not broker.is_kafka("2.6"):
                    refused = ErrorCode.REPLICA_NOT_AVAILABLE
                broker.expect_error(found.error_code, refused, what=reported)
                broker.expect_equal("its records", bytes(found.records or b""), b"")
                if version >= FETCH_WITH_LEADER:
                    current = (found.current_leader.leader_id, found.current_leader.leader_epoch)
                    nodes.expect_leader_named(topic, current, answer.node_endpoints)


def follower_serves(broker: Broker, nodes: JudgedCluster, topic: Topic, node: int, version: int) -> bool:
    """Whether a follower serves both records; it learns the high watermark a moment after its leader."""
    found = broker.fetch(topic, 0, version=version, to=broker.connection(nodes.address(node)))
    broker.expect_error(found.error_code, ErrorCode.NONE, what=f"v{version} at the follower")
    return values(bytes(found.records or b"")) == [b"a", b"b"]


def fetch_of(topic: Topic) -> FetchRequest:
    """A consumer's fetch from the beginning."""
    asked = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    named = FetchRequest.FetchTopic(topic=topic.name, topic_id=topic.id, partitions=[asked])
    return FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[named])


@requirement(
    "FET-17",
    notices="client: consumers in another rack read over the long way",
    source="KIP-392; ReplicaManager.findPreferredReadReplica; RackAwareReplicaSelector",
    sentence="With a rack-aware selector the leader answers a fetch from another rack (v11+) with that rack's replica as the "
    "preferred one, and without records; a fetch from its own rack, or from one without a replica, gets the records.",
    accepted="the follower's id in preferred_read_replica, no records, no error; else -1 and the records",
    nodes=3, hooks=("stop", "config"), configs=QUICK | {"replica.selector.class": RACK_AWARE}, alone=True,
    apis={"Fetch": FETCH_FROM_FOLLOWERS}, since="2.4", deadline_s=DEADLINE_S,
)  # fmt: skip
def replica_in_the_same_rack(broker: Broker) -> None:
    with cluster(broker) as nodes:
        leader, follower, _ = nodes.cast()
        racks = {leader: "one", follower: "two"}
        for node, rack in racks.items():
            nodes.configure(node, {"broker.rack": rack})
        reported = {node.node_id: node.rack for node in broker.metadata(None).brokers}
        if any(reported.get(node) != rack for node, rack in racks.items()):
            broker.skip(f"needs nodes in racks: Metadata reports {reported} after broker.rack was set to {racks}")
        topic = nodes.topic(leader, follower, in_sync=2)
        broker.append(topic, batch(b"a", b"b"))
        for version in range(FETCH_FROM_FOLLOWERS, broker.version_for(FetchRequest) + 1):
            for rack, preferred in {"two": follower, "one": -1, "three": -1, "": -1}.items():
                request = fetch_of(topic)
                request.rack_id = rack
                answer = broker.call(request, version, to=nodes.address(leader))
                found = only(only(answer.responses, "topic in the answer").partitions, "partition in the answer")
                seen = found.error_code, found.preferred_read_replica, values(bytes(found.records or b""))
                expected = ErrorCode.NONE, preferred, [] if preferred == follower else [b"a", b"b"]
                broker.expect_equal(f"v{version} from rack {rack!r}: error, replica, records", seen, expected)
            broker.eventually(
                lambda version=version: follower_serves(broker, nodes, topic, follower, version),
                f"v{version} at the preferred replica: the records",
                within_s=STATE_WITHIN_S,
            )
