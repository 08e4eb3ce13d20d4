"""Suites of Go modules: franz-go's and kafka-go's. They need Go 1.26 or newer."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from linearizability.targets.cluster import Member
from tests.clients.suites.suite import (
    FAIL,
    KEPT,
    OUTCOMES,
    OUTPUT_KEPT,
    WITH_ACCESS_CONTROL,
    AtPort,
    Order,
    Outcome,
    Suite,
    needs,
)

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
RUNS_AT_MOST = 20
"""A panic ends a run of `go test`; the tests that are left are run again without those that are done."""


def module(suite: Suite, *tools: str) -> Path:
    """The folder of a module of ours that requires the released one with all that its tests need, and tools; it is made where it is
    not there. Go's checksum database has the checksums. Errors: SystemExit.
    """
    needs("go")
    home = KEPT / f"{suite.name}-{suite.version}"
    if not home.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            made = Path(folder) / "made"
            made.mkdir()
            for command in (["mod", "init", "suite"], ["get", "-t", f"{suite.library}@{suite.version}", *tools]):
                done = subprocess.run(["go", *command], cwd=made, capture_output=True, text=True, check=False)
                if done.returncode:
                    raise SystemExit(f"{suite.library} {suite.version} cannot be downloaded: {done.stderr}")
            made.rename(home)
    return home


@dataclass
class Events:
    """What `go test -json` reported so far of one run."""

    parent: str = ""
    """A test that only holds others, each of which counts as one."""
    done: set[str] = field(default_factory=set[str])
    running: dict[str, float] = field(default_factory=dict[str, float])
    """Tests that have begun, and when; a parallel test pauses until those before it have ended."""
    output: dict[str, str] = field(default_factory=dict[str, str])
    """The last lines of each test and subtest; of no test: the package's."""
    failed: dict[str, str] = field(default_factory=dict[str, str])
    """The last lines of each test's subtests that failed."""

    def take(self, line: str) -> Iterator[Outcome]:
        """The outcome that this line reports, if it reports one."""
        event: dict[str, Any] = json.loads(line) if line.startswith("{") else {"Output": line}
        test, action = event.get("Test", ""), event.get("Action", "")
        self.output[test] = (self.output.get(test, "") + event.get("Output", ""))[-OUTPUT_KEPT:]
        whole = self.whole(test)
        if action == FAIL and test != whole:
            self.failed[whole] = self.failed.get(whole, "") + self.output[test]
        elif test == self.parent:
            return
        elif action in ("run", "cont") and test == whole:
            self.running[test] = time.monotonic()
        elif action == "pause" and test == whole:
            self.running.pop(test, None)
        elif action in OUTCOMES and test and test == whole:
            self.running.pop(test, None)
            self.done.add(test)
            yield Outcome(test, action, event.get("Elapsed", 0.0), self.of_failure(test) if action == FAIL else "")

    def whole(self, test: str) -> str:
        """The test that counts, of a subtest's name."""
        parts = test.split("/")
        return "/".join(parts[: 2 if parts[0] == self.parent else 1])

    def of_failure(self, test: str) -> str:
        """What a failed test printed."""
        return self.failed.get(test, "") + self.output.get(test, "")


def go_tests(
    suite: Suite,
    order: Order,
    left_out: str,
    settings: Mapping[str, str],
    *,
    flags: Sequence[str] = (),
    arguments: Sequence[str] = (),
    parent: str = "",
) -> Iterator[Outcome]:
    """The outcomes of a package's tests; one that panics, or runs when the time is over, has failed."""
    end = time.monotonic() + order.minutes * 60
    done: set[str] = set()
    for _ in range(RUNS_AT_MOST):
        left_s = end - time.monotonic()
        skipped = "|".join(filter(None, [left_out, *(_exactly(test) for test in sorted(done))]))
        options = [
            *flags,
            "-json",
            "-count=1",
            f"-timeout={max(left_s, 1):.0f}s",
            f"-skip={skipped}",
            f"-run={order.chosen}",
        ]
        events = Events(parent)
        with subprocess.Popen(
            ["go", "test", *options, suite.library, *arguments],
            cwd=module(suite),
            env={**os.environ, "PATH": f"{order.folder}{os.pathsep}{os.environ['PATH']}", **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        ) as process:
            assert process.stdout is not None
            for line in process.stdout:
                yield from events.take(line)
        broken = [] if process.returncode == 0 else list(events.running)
        for test in broken:
            seconds = time.monotonic() - events.running[test]
            yield Outcome(test, FAIL, seconds, events.of_failure(test) + events.output.get("", ""))
        if process.returncode and not events.done and not broken:
            yield Outcome("(the package)", FAIL, 0.0, events.output.get("", ""))
        done |= events.done | set(broken)
        if not _panicked(events, process.returncode) or time.monotonic() > end:
            return


def _exactly(test: str) -> str:
    return "/".join(f"^{part}$" for part in test.split("/"))


def _panicked(events: Events, returncode: int) -> bool:
    return returncode != 0 and any(re.search(r"^panic: ", lines, re.M) for lines in events.output.values())


def franz_go(order: Order) -> Iterator[Outcome]:
    nodes = len(order.bootstrap.split(","))
    settings = {"KGO_SEEDS": order.bootstrap, "KGO_TEST_RECORDS": "50000", "KGO_TEST_RF": str(min(3, nodes))}
    yield from go_tests(FRANZ_GO, order, "Share|OAuth", settings)


def kafka_go(order: Order) -> Iterator[Outcome]:
    # nettest holds the connection itself against Go's rules, and is left out by the library's own Makefile.
    settings = {"KAFKA_VERSION": "4.0.0", "KAFKA_SKIP_NETTEST": "1"}
    yield from go_tests(KAFKA_GO, order, "UnsupportedSASLMechanism", settings)


def confluent_go(order: Order) -> Iterator[Outcome]:
    """With this argument of theirs the tests use a cluster at ports 9092 and 9093 that runs already."""
    yield from go_tests(CONFLUENT_GO, order, "", {}, arguments=["-args", "-docker.exists"], parent="TestIntegration")


def at_the_ports_of_confluent_go(member: Member) -> dict[str, str]:
    places = ",LOCAL://localhost:9092,SASL://localhost:9093"
    return {name: member.properties[name] + places for name in ("listeners", "advertised.listeners")}


FRANZ_GO = Suite(
    "franz-go",
    "github.com/twmb/franz-go/pkg/kgo",
    "v1.22.3",
    nodes=3,
    run=franz_go,
    left_out="Share groups, which the reference does not serve, and OAUTHBEARER, which tests/clients/test_franz_go.py tries.",
)
CONFLUENT_GO = Suite(
    "confluent-kafka-go",
    "github.com/confluentinc/confluent-kafka-go/v2/kafka",
    "v2.11.1",
    nodes=1,
    run=confluent_go,
    config=WITH_ACCESS_CONTROL
    | {
        "num.partitions": "4",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,SASL:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": f'{PLAIN} required user_testuser="testpass";',
        "connections.max.reauth.ms": "10000",
        "broker.rack": "RACK1",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
    },
    of_each_node=at_the_ports_of_confluent_go,
    left_out="Benchmarks. It has not been run to its end, neither on the reference nor on Kafka 4.3.1.",
)
KAFKA_GO = Suite(
    "kafka-go",
    "github.com/segmentio/kafka-go",
    "v0.4.51",
    nodes=1,
    run=kafka_go,
    config=WITH_ACCESS_CONTROL
    | {"message.max.bytes": "200000000", "advertised.listeners": "PLAINTEXT://localhost:9092"},
    hosts=(AtPort(),),
    left_out="TestUnsupportedSASLMechanism, which needs a second listener at localhost:9093; the folders beside the main package.",
)
