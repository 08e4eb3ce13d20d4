"""API: all brokers of a cluster advertise the same versions."""

from conformance.broker import Broker
from conformance.cluster import QUICK, cluster
from conformance.requirement import requirement
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.api_versions import ApiVersionsRequest

DEADLINE_S = 240


@requirement(
    "API-09",
    notices="operator: what a client can do would change with the broker that happens to lead its partitions",
    source="ApiVersionManager; KIP-584",
    sentence="All brokers of a cluster that runs one release advertise the same versions of the same APIs.",
    accepted="equal ranges from each broker that Metadata lists",
    nodes=3, configs=QUICK, deadline_s=DEADLINE_S,
)  # fmt: skip
def same_ranges(broker: Broker) -> None:
    with cluster(broker) as nodes:
        places = set(nodes.addresses.values())
        broker.expect(
            len(places) == len(nodes.addresses),
            f"{len(nodes.addresses)} brokers are at {len(places)} addresses, each at its own",
        )
        ranges: dict[int, dict[int, tuple[int, int]]] = {}
        for node, address in sorted(nodes.addresses.items()):
            answer = broker.call(ApiVersionsRequest(), 0, to=address)
            broker.expect_error(answer.error_code, ErrorCode.NONE, what=f"ApiVersions of node {node}")
            ranges[node] = {one.api_key: (one.min_version, one.max_version) for one in answer.api_keys}
        first, *others = ranges
        for node in others:
            keys = ranges[node].keys() | ranges[first].keys()
            differ = {key for key in keys if ranges[node].get(key) != ranges[first].get(key)}
            broker.expect_equal(
                f"API keys for which nodes {first} and {node} advertise different versions", differ, set()
            )
