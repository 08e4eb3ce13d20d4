"""Run one suite, print each test with its outcome, and keep the outcomes if asked to."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path

import tests.clients.suites as package
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from tests.clients.suites import results
from tests.clients.suites.crates import RSKAFKA, RUST_RDKAFKA
from tests.clients.suites.go_tests import CONFLUENT_GO, FRANZ_GO, KAFKA_GO
from tests.clients.suites.kafka_python import KAFKA_PYTHON
from tests.clients.suites.librdkafka import LIBRDKAFKA
from tests.clients.suites.sarama import SARAMA
from tests.clients.suites.suite import FAIL, OUTCOMES, PASS, Order, Outcome, Suite

SUITES = {
    suite.name: suite
    for suite in (FRANZ_GO, KAFKA_GO, SARAMA, CONFLUENT_GO, LIBRDKAFKA, RSKAFKA, RUST_RDKAFKA, KAFKA_PYTHON)
}


def run(suite: Suite, spec: str, chosen: str, minutes: float) -> list[Outcome]:
    """The outcomes of a suite against a target that is started for it, each printed as it comes."""
    found: list[Outcome] = []
    with tempfile.TemporaryDirectory() as folder:
        target = open_target(
            spec, folder=Path(folder) / "target", config=suite.config, hosts=suite.hosts or None, nodes=suite.nodes
        )
        assert isinstance(target, ClusterTarget), f"{spec} is no cluster that is started here"
        target.of_each_node = suite.of_each_node
        home = Path(folder) / "suite"
        home.mkdir()
        with target:
            for outcome in suite.run(Order(target.bootstrap, chosen, minutes, home, target)):
                found.append(outcome)
                print(f"{outcome.outcome:<5} {outcome.seconds:7.1f} s  {outcome.test}", flush=True)
                if outcome.outcome == FAIL:
                    print(outcome.output, file=sys.stderr, flush=True)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=package.__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", nargs="?", choices=[*SUITES], help="whose tests")
    parser.add_argument("--target", default="reference", help="the target; default: reference")
    parser.add_argument("--run", default="", help="a pattern of the tests' names; default: all")
    parser.add_argument("--minutes", type=float, default=60, help="after how long the suite is given up")
    parser.add_argument("--store", action="store_true", help="keep what came out in results.json")
    parser.add_argument("--page", action="store_true", help="write docs/client-suites.md, and run nothing")
    arguments = parser.parse_args()
    if arguments.page:
        results.write_page(SUITES)
        return
    if arguments.suite is None:
        parser.error("name a suite")
    suite = SUITES[arguments.suite]
    outcomes = run(suite, arguments.target, arguments.run, arguments.minutes)
    counts = Counter(outcome.outcome for outcome in outcomes)
    print(", ".join(f"{counts[each]} {each}" for each in OUTCOMES))
    if arguments.store:
        results.store(suite, arguments.target, outcomes)
    raise SystemExit(1 if counts[FAIL] else 0 if counts[PASS] else 2)


if __name__ == "__main__":
    main()
