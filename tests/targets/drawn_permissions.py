"""The same drawn requests to Apache Kafka and to the reference by a client with few permissions, while its ACLs change.

Alice authenticates. A super user makes a third of the requests, so that there is something that may be hidden from her; now and
then it adds ACLs about her, or removes some. She asks from two addresses. With an even seed she may do what no ACL is about, with an odd one only what an ACL
allows.

    python -m tests.targets.drawn_permissions 0 5 --requests 500
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path
from random import Random

from reference.protocol.acls import Operation, PatternType, Permission, ResourceType
from reference.protocol.messages.create_acls import CreateAclsRequest
from reference.protocol.messages.delete_acls import DeleteAclsRequest
from reference.protocol.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from reference.protocol.schema import Message
from tests.targets.drawn_comparison import CONFIG, Comparison, Options, asked, brief, parser, prepare, run
from tests.targets.drawn_fields import Side
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
HOSTS = ("127.0.0.1", "127.0.0.2")
"""The addresses from which Alice connects."""
OTHER_HOSTS = ("1.2.3.4", "localhost", "127.0.0.0/8", "127.0.0.*", "/127.0.0.1", "127.0.0.01", "::ffff:127.0.0.1")
"""Hosts of ACLs that are none of hers, though some would be with a broker that takes names or networks."""
BY_SUPER_USER = 0.33


class Cluster:
    """One cluster, asked by a super user and by Alice; what it has named for itself is known to both."""

    def __init__(self, target: SecuredKafka | SecuredReference) -> None:
        node = target.nodes[0]
        self.super_user = Side([(node.host, node.port)])
        login = b"\0".join([b"", USER.encode(), PASSWORD.encode()])
        address = "127.0.0.1", target.ports["SASL_PLAINTEXT"]
        given, internal = self.super_user.given, self.super_user.internal_ids
        self.alice = [Side([address], given, internal, login=login, host=host) for host in HOSTS]
        """From each of the addresses."""
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
        host=chance.choice(["*", "*", *HOSTS, *OTHER_HOSTS]),
        operation=chance.choice(OPERATIONS[kind]),
        permission_type=chance.choice([Permission.ALLOW] * 6 + [Permission.DENY]),
    )


def compare(clusters: list[Cluster], seed: int, options: Options) -> list[str]:
    """Where the answers differ."""
    comparison = Comparison([each.alice[0] for each in clusters], seed, options)
    rng = comparison.rng
    for number in range(options.requests):
        if rng.randrange(CHANGES_ONE_IN) == 0:
            state = rng.randrange(1 << 30)
            changes = {each.change_acls(Random(state)) for each in clusters}
            time.sleep(options.settles_in_s)
            if options.show:
                print(*changes)
        is_super = rng.random() < BY_SUPER_USER
        place = rng.randrange(len(HOSTS))
        sides = [each.super_user if is_super else each.alice[place] for each in clusters]
        drawn = comparison.draw(sides)
        if drawn is None:
            continue
        for request in drawn.made:
            if isinstance(request, DescribeUserScramCredentialsRequest):
                request.users = request.users or []  # Kafka fails where it refuses them all, and never answers
        answers = [asked(side, request, drawn.version) for side, request in zip(sides, drawn.made, strict=True)]
        comparison.judge(f"{number}: {'super user' if is_super else f'{USER} at {HOSTS[place]}'}:", drawn, answers)
    return comparison.found


def compared(folder: Path, seed: int, options: Options) -> list[str]:
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
        return compare(clusters, seed, options)


if __name__ == "__main__":
    run(compared, parser(__doc__).parse_args())
