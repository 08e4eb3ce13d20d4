"""kafka-acls prints the same of this broker as of Apache Kafka, and other tools see what the ACLs leave to be seen."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from conformance.access_rules import AUTHORIZED
from linearizability.targets import open_target
from tests.tools.conftest import Admin
from tests.tools.jvm import Tools

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.process]

STEPS: tuple[tuple[str, ...], ...] = (
    ("kafka-topics", "--create", "--topic", "team-one"),
    ("kafka-topics", "--create", "--topic", "other"),
    ("kafka-acls", "--list"),
    ("kafka-acls", "--add", "--allow-principal", "User:ANONYMOUS", "--operation", "All", "--cluster"),
    ("kafka-acls", "--add", "--allow-principal", "User:bob", "--consumer", "--topic", "other", "--group", "g"),
    ("kafka-acls", "--add", "--allow-principal", "User:bob", "--producer", "--idempotent", "--topic", "other"),
    ("kafka-acls", "--add", "--deny-principal", "User:ANONYMOUS", "--operation", "Describe", "--topic", "team-",
     "--resource-pattern-type", "prefixed", "--deny-host", "127.0.0.1"),
    ("kafka-acls", "--add", "--allow-principal", "User:ANONYMOUS", "--operation", "Write", "--transactional-id", "*"),
    ("kafka-acls", "--list"),
    ("kafka-acls", "--list", "--topic", "team-one", "--resource-pattern-type", "match"),
    ("kafka-acls", "--list", "--principal", "User:bob"),
    ("kafka-topics", "--list"),
    ("kafka-topics", "--describe", "--topic", "team-one"),
    ("kafka-acls", "--remove", "--force", "--topic", "team-", "--resource-pattern-type", "prefixed"),
    ("kafka-topics", "--list"),
    ("kafka-acls", "--remove", "--force", "--allow-principal", "User:bob", "--operation", "Read", "--group", "g"),
    ("kafka-acls", "--list", "--group", "g"),
    ("kafka-acls", "--list"),
)  # fmt: skip


@pytest.fixture(scope="module", params=["kafka:4.3.1", "reference:1"])
def admin(request: pytest.FixtureRequest, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    folder = tmp_path_factory.mktemp("acls")
    with open_target(str(request.param), folder=folder, config=AUTHORIZED) as target:
        yield Admin(tools, target)


PRINTED: dict[tuple[str, ...], tuple[int, list[str]]] = {}
"""What Kafka, which comes first, has made each step print."""


def test_every_step_prints_the_same(admin: Admin) -> None:
    for number, (tool, *arguments) in enumerate(STEPS):
        ran = admin(tool, *arguments)
        printed = ran.code, sorted(line for line in ran.out.splitlines() if line.strip())
        key = (str(number), tool, *arguments)
        if admin.broker.spec.startswith("kafka"):
            PRINTED[key] = printed
        else:
            assert printed == PRINTED[key], key
    assert any("principal=User:bob" in line for _, lines in PRINTED.values() for line in lines)
    assert not any("team-one" in line for line in PRINTED["11", "kafka-topics", "--list"][1])
