"""The interface between a suite and the command that runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from linearizability.targets.cluster import ClusterTarget, Member
from linearizability.targets.hosts import Host

REPOSITORY = Path(__file__).resolve().parents[3]
KEPT = REPOSITORY / ".cache" / "suites"
"""The folder of fetched sources and of the programs built from them."""

PASS, FAIL, SKIP = OUTCOMES = ("pass", "fail", "skip")
OUTPUT_KEPT = 3_000
"""Characters of a failed test's output that are shown, its last ones."""


@dataclass(frozen=True, slots=True)
class AtPort(Host):
    """This machine, where the node listens at a port that the tests have in their text."""

    port: int = 9092

    def free_ports(self, count: int) -> list[int]:
        return [*Host().free_ports(count - 1), self.port]


WITH_ACCESS_CONTROL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
"""The suites' own clusters have an authorizer. Without TLS and SASL clients and brokers are one user. Three brokers that are no
super users cannot form a cluster, neither the reference's nor Kafka's.
"""


@dataclass(frozen=True)
class Outcome:
    """The outcome of one test."""

    test: str
    outcome: str
    seconds: float = 0.0
    output: str = ""
    """The output of a failed test."""


@dataclass(frozen=True)
class Order:
    """The tests to run, and the target."""

    bootstrap: str
    """`HOST:PORT`s, separated by commas."""
    chosen: str
    """A pattern of tests: a regular expression, for pytest an expression of names."""
    minutes: float
    """The time limit of the suite, in minutes."""
    folder: Path
    """Takes logs and other files of the run."""
    target: ClusterTarget
    """Whose nodes the tests may stop and start."""


@dataclass(frozen=True)
class Suite:
    """One library's tests."""

    name: str
    library: str
    version: str
    nodes: int
    """The number of nodes of the cluster that the tests are written for."""
    run: Callable[[Order], Iterator[Outcome]]
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    hosts: Sequence[Host] = ()
    """The addresses of the nodes, for tests that have them in their text; empty for any addresses."""
    of_each_node: Callable[[Member], Mapping[str, str]] | None = None
    """Properties that differ from node to node."""
    left_out: str = ""
    """The tests that are not run, and why."""


def needs(*programs: str) -> None:
    """Errors: SystemExit that names the program that is missing."""
    for program in programs:
        if shutil.which(program) is None:
            raise SystemExit(f"there is no `{program}` on the PATH, and the suite needs it")
