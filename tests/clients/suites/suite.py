"""What a suite gives to the command that runs it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[3]
KEPT = REPOSITORY / ".cache" / "suites"
"""Sources that were fetched, and what was built of them."""

PASS, FAIL, SKIP = OUTCOMES = ("pass", "fail", "skip")
OUTPUT_KEPT = 3_000
"""Characters of a failed test's output that are shown, its last ones."""

WITH_ACCESS_CONTROL = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
    "super.users": "User:ANONYMOUS",
}
"""The suites' own clusters have an authorizer. Without TLS and SASL clients and brokers are one user, and brokers that are no super
users cannot start a cluster of three, of Kafka neither.
"""


@dataclass(frozen=True)
class Outcome:
    """What became of one test."""

    test: str
    outcome: str
    seconds: float = 0.0
    output: str = ""
    """Of a failure: what the test printed."""


@dataclass(frozen=True)
class Order:
    """What is to be run, and where."""

    bootstrap: str
    """`HOST:PORT`s, separated by commas."""
    chosen: str
    """A pattern of tests: a regular expression, for pytest an expression of names."""
    minutes: float
    """After so many minutes the suite is given up."""
    folder: Path
    """Takes logs and other files of the run."""


@dataclass(frozen=True)
class Suite:
    """One library's tests."""

    name: str
    library: str
    version: str
    nodes: int
    """The cluster that the tests are written for."""
    run: Callable[[Order], Iterator[Outcome]]
    config: Mapping[str, str] = field(default_factory=dict[str, str])
    port: int = 0
    """Where the first node has to listen, for tests that have it in their text; 0: anywhere."""
    left_out: str = ""
    """What is not run, and why."""


def needs(*programs: str) -> None:
    """Errors: SystemExit that names the program that is missing."""
    for program in programs:
        if shutil.which(program) is None:
            raise SystemExit(f"there is no `{program}` on the PATH, and the suite needs it")
