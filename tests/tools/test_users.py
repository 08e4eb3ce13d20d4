"""kafka-configs prints the same of this broker's users, clients and addresses as of Apache Kafka's: credentials and quotas."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from linearizability.targets import open_target
from tests.tools.conftest import Admin
from tests.tools.jvm import Tools

pytestmark = [pytest.mark.java, pytest.mark.kafka, pytest.mark.process]

ALICE = ("--entity-type", "users", "--entity-name", "alice")
APP = ("--entity-type", "clients", "--entity-name", "app")
STEPS: tuple[tuple[str, ...], ...] = (
    ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=8192,password=pw]"),
    ("--alter", *ALICE, "--add-config", "SCRAM-SHA-512=[password=pw]"),
    ("--alter", *ALICE, "--add-config", "producer_byte_rate=1024,request_percentage=0.5"),
    ("--describe", *ALICE),
    ("--describe", "--entity-type", "users"),
    ("--alter", *APP, "--add-config", "consumer_byte_rate=2048"),
    ("--alter", "--entity-type", "clients", "--entity-default", "--add-config", "controller_mutation_rate=10"),
    ("--alter", *ALICE, *APP, "--add-config", "consumer_byte_rate=4096"),
    ("--alter", "--entity-type", "ips", "--entity-name", "192.0.2.1", "--add-config", "connection_creation_rate=5"),
    ("--describe", "--entity-type", "clients"),
    ("--describe", "--entity-type", "users", "--entity-type", "clients"),
    ("--describe", "--entity-type", "ips"),
    ("--alter", *APP, "--add-config", "producer_byte_rate=0"),
    ("--alter", *APP, "--add-config", "connection_creation_rate=1"),
    ("--alter", *ALICE, "--delete-config", "SCRAM-SHA-256"),
    ("--alter", *ALICE, "--delete-config", "request_percentage"),
    ("--describe", *ALICE),
    ("--alter", *ALICE, "--add-config", "SCRAM-SHA-256=[iterations=1,password=pw]"),
)


@pytest.fixture(scope="module", params=["kafka:4.3.1", "reference:1"])
def admin(request: pytest.FixtureRequest, tools: Tools, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Admin]:
    with open_target(str(request.param), folder=tmp_path_factory.mktemp("users")) as target:
        yield Admin(tools, target)


def in_order(line: str) -> str:
    """A line whose settings stand in alphabetical order: the tool prints them in that of a hash map."""
    what, are, settings = line.partition(" are ")
    return what + are + ", ".join(sorted(settings.split(", ")))


PRINTED: dict[int, tuple[int, list[str]]] = {}
"""What Kafka, which comes first, has made each step print."""


def test_every_step_prints_the_same(admin: Admin) -> None:
    for number, arguments in enumerate(STEPS):
        ran = admin("kafka-configs", *arguments)
        printed = (
            ran.code,
            sorted(in_order(line) for line in ran.out.splitlines() if line.strip() and not line.startswith("\tat ")),
        )
        if admin.broker.spec.startswith("kafka"):
            PRINTED[number] = printed
        else:
            assert printed == PRINTED[number], arguments
    assert any("iterations=8192" in line for line in PRINTED[3][1])
    assert any("producer_byte_rate=1024" in line for line in PRINTED[3][1])
