"""The same drawn requests to Apache Kafka and to the reference, in every API and version that both serve to clients.

Each field is drawn by its name: from names of a few topics, groups and transactional ids, from small numbers, and from wrong
values. So most requests are about something that exists, and many are refused.

    python -m tests.targets.drawn_requests 0 20 --requests 700          # seeds 0 to 19
    python -m tests.targets.drawn_requests 7 8 --show                    # one, with each request and Kafka's answer
    python -m tests.targets.drawn_requests 0 5 --nodes 3                 # each request to one of three brokers
    python -m tests.targets.drawn_requests 0 5 --directories             # replicas move between two log directories
    python -m tests.targets.drawn_requests 0 5 --tokens                  # delegation tokens, by clients that authenticate
    python -m tests.targets.drawn_requests 0 5 --settings                # brokers whose settings are drawn, too
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

from linearizability.targets import open_target
from tests.targets.drawn_broker_settings import drawn_settings
from tests.targets.drawn_comparison import (
    CONFIG,
    KAFKA,
    NOT_DRAWN,
    REFERENCE,
    Comparison,
    Options,
    asked,
    parser,
    prepare,
    run,
)
from tests.targets.drawn_fields import Side
from tests.targets.drawn_placement import PLACED_BY_CHANCE, await_moves, place, place_in_directories
from tests.targets.secured_kafka import PASSWORD, USER, SecuredKafka, SecuredReference
from tests.targets.two_directories import KINDS
from tests.targets.two_directories import opened as opened_with_two

TOKENS: Mapping[str, int] = {f"{each}DelegationToken": 1 for each in ("Create", "Renew", "Expire", "Describe")}
PLACING = {"CreateTopics", "CreatePartitions", "AlterPartitionReassignments"}
OF_DIRECTORIES = {
    "AlterReplicaLogDirs": 8, "DescribeLogDirs": 6, "Produce": 6, "Fetch": 3, "CreateTopics": 3, "CreatePartitions": 2,
    "DeleteTopics": 2, "AlterPartitionReassignments": 2, "ListOffsets": 2, "DeleteRecords": 2, "InitProducerId": 1, "OffsetCommit": 1,
    "OffsetFetch": 1, "DescribeProducers": 1, "OffsetForLeaderEpoch": 1, "DescribeTopicPartitions": 1, "IncrementalAlterConfigs": 1,
}  # fmt: skip
"""APIs by which replicas move between directories, or that show it, and how often each is drawn."""


class Clusters(NamedTuple):
    """What is compared with Kafka, how many nodes both have, and settings that they do not have otherwise."""

    other: str = REFERENCE
    nodes: int = 1
    settings: Mapping[str, str] = MappingProxyType({})
    has_two_directories: bool = False


def compare(
    sides: Sequence[Side],
    seed: int,
    options: Options,
    apis: Mapping[str, int] | None = None,
    has_two_directories: bool = False,
) -> list[str]:
    """The differences of the answers. If `apis` are named, only these are drawn."""
    nodes = len(sides[0].addresses)
    left_out = NOT_DRAWN if nodes == 1 else NOT_DRAWN | PLACED_BY_CHANCE
    comparison = Comparison(sides, seed, options, left_out, apis)
    for side in sides:
        if has_two_directories:
            place_in_directories(side)
        prepare(side)
    for number in range(options.requests):
        for side in sides:
            side.node = number % nodes
        request = comparison.draw(sides)
        if request is None:
            continue
        if nodes > 1 and not min([place(each, side) for each, side in zip(request.made, sides, strict=True)]):
            continue
        if has_two_directories and request.api in PLACING:
            for side in sides:
                place_in_directories(side)
        answers = [asked(side, each, request.version) for side, each in zip(sides, request.made, strict=True)]
        comparison.judge(f"{number}:", request, answers, settles=nodes > 1)
        if request.api == "AlterReplicaLogDirs":
            for side in sides:
                await_moves(side)
    return comparison.found


def compared(folder: Path, seed: int, options: Options, clusters: Clusters = Clusters()) -> list[str]:
    """As `compare`, on two clusters that are started for it."""
    counts = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    config = CONFIG | dict.fromkeys(counts, str(clusters.nodes)) | dict(clusters.settings)
    with ExitStack() as opened:
        sides: list[Side] = []
        for name, spec, kind in zip(("kafka", "other"), (KAFKA, clusters.other), KINDS, strict=True):
            if clusters.has_two_directories:
                target = opened_with_two(kind, folder / name, clusters.nodes)
                target.given |= config
            else:
                target = open_target(spec, folder=folder / name, config=config, nodes=clusters.nodes)
            opened.enter_context(target)
            sides.append(Side([(node.host, node.port) for node in target.nodes]))
        apis = OF_DIRECTORIES if clusters.has_two_directories else None
        return compare(sides, seed, options, apis, clusters.has_two_directories)


def compared_with_settings(folder: Path, seed: int, options: Options, clusters: Clusters) -> list[str]:
    """As `compared`, with brokers whose settings are drawn."""
    settings = drawn_settings(seed)
    print(f"seed {seed}: {settings}", flush=True)
    return compared(folder, seed, options, clusters._replace(settings=settings))


def compared_tokens(folder: Path, seed: int, options: Options) -> list[str]:
    """As `compared`, for the APIs of delegation tokens, with brokers whose clients authenticate."""
    secured = SecuredKafka, SecuredReference
    with ExitStack() as opened:
        sides: list[Side] = []
        for kind in secured:
            own = folder / kind.__name__
            (own / "secrets").mkdir(parents=True)
            target = kind(own / "target", own / "secrets")
            target.given |= CONFIG
            opened.enter_context(target)
            address = "127.0.0.1", target.ports["SASL_PLAINTEXT"]
            sides.append(Side([address], login=b"\0".join([b"", USER.encode(), PASSWORD.encode()])))
        return compare(sides, seed, options, TOKENS)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--nodes", type=int, default=1, help="of each cluster")
    made.add_argument("--beside", default=REFERENCE, help="what is compared; kafka:4.3.1 shows what differs by chance")
    made.add_argument("--directories", action="store_true", help="two log directories")
    made.add_argument("--tokens", action="store_true", help="draw requests for delegation tokens alone")
    made.add_argument("--settings", action="store_true", help="draw settings of the brokers")
    given = made.parse_args()
    clusters = Clusters(given.beside, given.nodes, has_two_directories=given.directories)
    each = partial(compared_with_settings if given.settings else compared, clusters=clusters)
    run(compared_tokens if given.tokens else each, given)


if __name__ == "__main__":
    main()
