"""The same drawn requests to Apache Kafka and to the reference by a client with few permissions, while its ACLs change.

Alice authenticates. A super user makes a third of the requests, so that there is something that may be hidden from her; now and
then it adds ACLs about her, or removes some. With an even seed she may do what no ACL is about, with an odd one only what an ACL
allows.

    python -m tests.targets.drawn_permissions 0 5 --requests 500
"""

from __future__ import annotations

import argparse
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

from linearizability.targets.wire import WireError
from reference.node.release import versions_of
from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.apis import APIS
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from reference.protocol.schema import Message
from tests.targets.drawn_fields import Side, drawn
from tests.targets.drawn_requests import (
    CHANGES,
    CONFIG,
    NOT_DRAWN,
    OFTEN,
    SELDOM,
    SETTLES_IN_S,
    asked,
    brief,
    differences,
    prepare,
)
from tests.targets.secured_kafka import PASSWORD, USER, SecuredKafka, SecuredReference

LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
RESOURCES = (
    *[(ResourceType.TOPIC, name, LITERAL) for name in ("t0", "t0", "t1", "t2", "nowhere", "__consumer_offsets", "*")],
    *[(ResourceType.TOPIC, name, PREFIXED) for name in ("t", "t")],
    *[(ResourceType.GROUP, name, LITERAL) for name in ("g0", "g0", "g1", "*")],
    (ResourceType.GROUP, "g", PREFIXED),
    *[(ResourceType.TRANSACTIONAL_ID, name, LITERAL) for name in ("x0", "x0", "x1", "*")],
    (ResourceType.TRANSACTIONAL_ID, "x", PREFIXED),
    *[(ResourceType.CLUSTER, "kafka-cluster", LITERAL)] * 4,
    (ResourceType.USER, "User:a", LITERAL),
    (ResourceType.USER, "*", LITERAL),
    (ResourceType.DELEGATION_TOKEN, "*", LITERAL),
)
OPERATIONS = {
    ResourceType.TOPIC: (2, 3, 3, 4, 4, 5, 6, 7, 8, 8, 10, 11),
    ResourceType.GROUP: (2, 3, 3, 6, 8, 8, 10, 11),
    ResourceType.TRANSACTIONAL_ID: (2, 4, 4, 8, 15),
    ResourceType.CLUSTER: (2, 5, 7, 8, 9, 10, 11, 12),
    ResourceType.USER: (2, 13, 14),
    ResourceType.DELEGATION_TOKEN: (2, 8),
}
"""Resource type -> operations that ACLs about it may name."""
CHANGES_ONE_IN = 8
"""Requests, of which one changes ACLs."""
BY_SUPER_USER = 0.33


class Cluster:
    """One cluster, asked by a super user and by Alice; what it has named for itself is known to both."""

    def __init__(self, target: SecuredKafka | SecuredReference) -> None:
        node = target.nodes[0]
        self.super_user = Side([(node.host, node.port)])
        login = b"\0".join([b"", USER.encode(), PASSWORD.encode()])
        self.alice = Side(
            [("127.0.0.1", target.ports["SASL_PLAINTEXT"])],
            given=self.super_user.given,
            internal_ids=self.super_user.internal_ids,
            login=login,
        )
        prepare(self.super_user)

    def change_acls(self, chance: Random) -> str:
        """Add one to three ACLs, or remove those of one kind of resource."""
        if chance.random() < 0.3:
            kind = chance.choice([*OPERATIONS])
            filters = [
                DeleteAclsRequest.DeleteAclsFilter(
                    resource_type_filter=kind,
                    pattern_type_filter=PatternType.ANY,
                    operation=Operation.ANY,
                    permission_type=chance.choice([Permission.ANY, Permission.DENY]),
                )
            ]
            request: Message = DeleteAclsRequest(filters=filters)
        else:
            request = CreateAclsRequest(creations=[drawn_acl(chance) for _ in range(chance.choice([1, 2, 3]))])
        self.super_user.wire.call(request)
        return brief(request)


def drawn_acl(chance: Random) -> CreateAclsRequest.AclCreation:
    kind, name, pattern = chance.choice(RESOURCES)
    return CreateAclsRequest.AclCreation(
        resource_type=kind,
        resource_name=name,
        resource_pattern_type=pattern,
        principal=chance.choice([f"User:{USER}"] * 4 + ["User:*", "User:other"]),
        host=chance.choice(["*", "*", "127.0.0.1", "1.2.3.4"]),
        operation=chance.choice(OPERATIONS[kind]),
        permission_type=chance.choice([Permission.ALLOW] * 6 + [Permission.DENY]),
    )


def compare(clusters: list[Cluster], seed: int, requests: int, settles_in_s: float, show: bool = False) -> list[str]:
    """Where the answers differ."""
    both = set.intersection(*(set(each.alice.wire.versions()) for each in clusters))
    names = [key for key in APIS if key in both and APIS[key].name not in NOT_DRAWN]
    often = [key for key in names for _ in range(OFTEN.get(APIS[key].name, 1))]
    rng, found = Random(seed), list[str]()
    for number in range(requests):
        if rng.randrange(CHANGES_ONE_IN) == 0:
            state = rng.randrange(1 << 30)
            changes = {each.change_acls(Random(state)) for each in clusters}
            time.sleep(settles_in_s)
            if show:
                print(*changes)
        key, name = (chosen := rng.choice(often)), APIS[chosen].name
        if name in SELDOM and rng.random() < 0.7:
            continue
        lowest, highest = versions_of(key)
        version = rng.choice([highest, rng.randint(lowest, highest)])
        is_super, state = rng.random() < BY_SUPER_USER, rng.randrange(1 << 30)
        sides = [each.super_user if is_super else each.alice for each in clusters]
        made: list[Any] = [drawn(APIS[key].request, version, side, Random(state), name) for side in sides]
        for request in made:
            if isinstance(request, DescribeUserScramCredentialsRequest):
                request.users = request.users or []  # Kafka fails where it refuses them all, and never answers
        answers = [asked(side, request, version) for side, request in zip(sides, made, strict=True)]
        if name in CHANGES:
            time.sleep(settles_in_s)
        differ = list(differences(name, *answers))
        who = "super user" if is_super else USER
        if differ:
            found.append(f"seed {seed}, request {number}: {who}: {name} v{version}{''.join(sorted(differ))}"[:1000])
        if show or differ:
            print(
                f"seed {seed}, {number}: {who}: {name} v{version}",
                *map(brief, made),
                *differ[:4],
                sep="\n    ",
                flush=True,
            )
        if show:
            print(f"    {answers[0]}")
    return found


def compared(
    folder: Path, seed: int, requests: int, settles_in_s: float = SETTLES_IN_S, show: bool = False
) -> list[str]:
    """The same with two brokers that are started for it."""
    with ExitStack() as opened:
        clusters: list[Cluster] = []
        for kind in (SecuredKafka, SecuredReference):
            own = folder / kind.__name__
            (own / "secrets").mkdir(parents=True)
            target = kind(own / "target", own / "secrets")
            target.given |= CONFIG | {"allow.everyone.if.no.acl.found": "false" if seed % 2 else "true"}
            opened.enter_context(target)
            clusters.append(Cluster(target))
        return compare(clusters, seed, requests, settles_in_s, show)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("first", type=int, help="the first seed")
    parser.add_argument("end", type=int, help="the seed after the last")
    parser.add_argument("--requests", type=int, default=300, help="of each seed")
    parser.add_argument("--show", action="store_true", help="each request and Kafka's answer")
    options = parser.parse_args()
    found: list[str] = []
    with tempfile.TemporaryDirectory() as folder:
        for seed in range(options.first, options.end):
            try:
                found += compared(Path(folder) / str(seed), seed, options.requests, show=options.show)
            except WireError as error:
                found.append(f"seed {seed}: {error}")
                print(found[-1])
    print(f"{len(found)} answers differ")


if __name__ == "__main__":
    main()
