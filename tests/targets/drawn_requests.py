"""The same drawn requests to Apache Kafka and to the reference, in every API and version that both serve to clients.

Each field is drawn by its name: from names of a few topics, groups and transactional ids, from small numbers, and from wrong
values. So most requests are about something that exists, and many are refused.

    python -m tests.targets.drawn_requests 0 20 --requests 700          # seeds 0 to 19
    python -m tests.targets.drawn_requests 7 8 --show                    # one, with each request and Kafka's answer
    python -m tests.targets.drawn_requests 0 5 --nodes 3                 # each request to one of three brokers
    python -m tests.targets.drawn_requests 0 5 --directories             # replicas move between two log directories
    python -m tests.targets.drawn_requests 0 5 --throttles               # by a client with changing quotas
    python -m tests.targets.drawn_requests 0 5 --tokens                  # delegation tokens, by clients that authenticate
    python -m tests.targets.drawn_requests 0 5 --settings                # brokers whose settings are drawn, too
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import NamedTuple

from linearizability.targets import open_target
from linearizability.targets.wire import CLIENT_ID
from reference.protocol.messages.alter_client_quotas import AlterClientQuotasRequest
from tests.targets.drawn_broker_settings import drawn_settings
from tests.targets.drawn_comparison import (
    CONFIG,
    KAFKA,
    NOT_DRAWN,
    REFERENCE,
    SETTLES_IN_S,
    Comparison,
    Drawn,
    Options,
    asked,
    brief,
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


@dataclass(frozen=True)
class Scene:
    """What else happens around each request."""

    apis: Mapping[str, int] | None = None
    """The only APIs that are drawn, with how often each is."""
    settings: Mapping[str, str] = field(default_factory=dict[str, str])

    def begin(self, sides: Sequence[Side]) -> None:
        for side in sides:
            prepare(side)

    def before(self, request: Drawn, sides: Sequence[Side], comparison: Comparison) -> None:
        pass

    def after(self, request: Drawn, sides: Sequence[Side]) -> None:
        pass


class TwoDirectories(Scene):
    """Replicas move between two log directories."""

    def begin(self, sides: Sequence[Side]) -> None:
        for side in sides:
            place_in_directories(side)
        super().begin(sides)

    def before(self, request: Drawn, sides: Sequence[Side], comparison: Comparison) -> None:
        for side in sides if request.api in PLACING else ():
            place_in_directories(side)

    def after(self, request: Drawn, sides: Sequence[Side]) -> None:
        for side in sides if request.api == "AlterReplicaLogDirs" else ():
            await_moves(side)


class Throttled(Scene):
    """Quotas of the client change, and most are soon exceeded."""

    def before(self, request: Drawn, sides: Sequence[Side], comparison: Comparison) -> None:
        if comparison.rng.random() < 0.2:
            change = drawn_quota(comparison.rng)
            if comparison.options.show:
                print(f"    {brief(change)}")
            for side in sides:
                assert not any(entry.error_code for entry in side.wire.call(change).entries)
            time.sleep(SETTLES_IN_S)

    def after(self, request: Drawn, sides: Sequence[Side]) -> None:
        for side in sides:
            side.ask_again()  # a throttled connection is not read


ENTITIES = {"client-id": (CLIENT_ID, CLIENT_ID, None, "other"), "user": ("ANONYMOUS", "ANONYMOUS", None, "other")}
QUOTAS = {"producer_byte_rate": (1.0, 5.0, 100.0), "controller_mutation_rate": (0.01, 0.1, 5.0)}
"""Quotas and values. Of a fetch Kafka counts the whole response, and the reference the records."""


def drawn_quota(chance: Random) -> AlterClientQuotasRequest:
    """A quota of the client, of the default, or of another one, or its removal."""
    kinds = chance.choice([["client-id"], ["user"], ["user", "client-id"]])
    entity = [
        AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=chance.choice(ENTITIES[kind]))
        for kind in kinds
    ]
    key = chance.choice(sorted(QUOTAS))
    change = AlterClientQuotasRequest.OpData(key=key, value=chance.choice(QUOTAS[key]), remove=chance.random() < 0.3)
    return AlterClientQuotasRequest(entries=[AlterClientQuotasRequest.EntryData(entity=entity, ops=[change])])


PLAIN, OF_TOKENS = Scene(), Scene({f"{each}DelegationToken": 1 for each in ("Create", "Renew", "Expire", "Describe")})
TWO_DIRECTORIES = TwoDirectories({
    "AlterReplicaLogDirs": 8, "DescribeLogDirs": 6, "Produce": 6, "Fetch": 3, "CreateTopics": 3, "CreatePartitions": 2,
    "DeleteTopics": 2, "AlterPartitionReassignments": 2, "ListOffsets": 2, "DeleteRecords": 2, "InitProducerId": 1, "OffsetCommit": 1,
    "OffsetFetch": 1, "DescribeProducers": 1, "OffsetForLeaderEpoch": 1, "DescribeTopicPartitions": 1, "IncrementalAlterConfigs": 1,
})  # fmt: skip
WINDOWS = {
    f"{of}quota.window.{what}": value
    for of in ("", "controller.")
    for what, value in (("num", "2"), ("size.seconds", "60"))
}
THROTTLED = Throttled(
    {"Produce": 6, "Fetch": 1, "CreateTopics": 3, "CreatePartitions": 3, "DeleteTopics": 1, "ListOffsets": 1}, WINDOWS
)


class Clusters(NamedTuple):
    """What is compared with Kafka, how many nodes both have, and settings that they do not have otherwise."""

    other: str = REFERENCE
    nodes: int = 1
    settings: Mapping[str, str] = MappingProxyType({})
    scene: Scene = PLAIN


def compare(sides: Sequence[Side], seed: int, options: Options, scene: Scene = PLAIN) -> list[str]:
    """The differences of the answers."""
    nodes = len(sides[0].addresses)
    left_out = NOT_DRAWN if nodes == 1 else NOT_DRAWN | PLACED_BY_CHANCE
    comparison = Comparison(sides, seed, options, left_out, scene.apis)
    scene.begin(sides)
    for number in range(options.requests):
        for side in sides:
            side.node = number % nodes
        request = comparison.draw(sides)
        if request is None:
            continue
        if nodes > 1 and not min([place(each, side) for each, side in zip(request.made, sides, strict=True)]):
            continue
        scene.before(request, sides, comparison)
        answers = [asked(side, each, request.version) for side, each in zip(sides, request.made, strict=True)]
        comparison.judge(f"{number}:", request, answers, settles=nodes > 1)
        scene.after(request, sides)
    return comparison.found


def compared(folder: Path, seed: int, options: Options, clusters: Clusters = Clusters()) -> list[str]:
    """As `compare`, on two clusters that are started for it."""
    counts = ("offsets.topic.num.partitions", "transaction.state.log.num.partitions")
    config = (
        CONFIG | dict.fromkeys(counts, str(clusters.nodes)) | dict(clusters.scene.settings) | dict(clusters.settings)
    )
    with ExitStack() as opened:
        sides: list[Side] = []
        for name, spec, kind in zip(("kafka", "other"), (KAFKA, clusters.other), KINDS, strict=True):
            if clusters.scene is TWO_DIRECTORIES:
                target = opened_with_two(kind, folder / name, clusters.nodes)
                target.given |= config
            else:
                target = open_target(spec, folder=folder / name, config=config, nodes=clusters.nodes)
            opened.enter_context(target)
            sides.append(Side([(node.host, node.port) for node in target.nodes]))
        return compare(sides, seed, options, clusters.scene)


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
        return compare(sides, seed, options, OF_TOKENS)


def main() -> None:
    made = parser(__doc__)
    made.add_argument("--nodes", type=int, default=1, help="of each cluster")
    made.add_argument("--beside", default=REFERENCE, help="what is compared; kafka:4.3.1 shows what differs by chance")
    made.add_argument("--directories", action="store_true", help="two log directories")
    made.add_argument("--throttles", action="store_true", help="quotas that are soon exceeded")
    made.add_argument("--tokens", action="store_true", help="draw requests for delegation tokens alone")
    made.add_argument("--settings", action="store_true", help="draw settings of the brokers")
    given = made.parse_args()
    scene = TWO_DIRECTORIES if given.directories else THROTTLED if given.throttles else PLAIN
    clusters = Clusters(given.beside, given.nodes, scene=scene)
    each = partial(compared_with_settings if given.settings else compared, clusters=clusters)
    run(compared_tokens if given.tokens else each, given)


if __name__ == "__main__":
    main()
