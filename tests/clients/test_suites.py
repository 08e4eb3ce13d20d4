"""Client libraries' own tests run against the reference by one command, and each stored failure has a reason."""

import shutil
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from tests.clients.suites import results
from tests.clients.suites.__main__ import SUITES
from tests.clients.suites.go_tests import Events
from tests.clients.suites.librdkafka import needing_a_broker
from tests.clients.suites.reasons import REASONS
from tests.clients.suites.sarama import docker
from tests.clients.suites.suite import FAIL, PASS, SKIP, Outcome

REPOSITORY = Path(__file__).parents[2]
TABLE = """
    _TEST(0001_multiobj, 0),
    _TEST(0004_conf, TEST_F_LOCAL),
    _TEST(0028_long_topicnames,
          TEST_F_KNOWN_ISSUE,
          TEST_BRKVER(0, 9, 0, 0)),
    _TEST(0103_transactions,
          0,
          TEST_BRKVER(0, 11, 0, 0),
          .scenario = "default,ak23"),
    _TEST(0107_topic_recreate, 0, TEST_BRKVER_TOPIC_ADMINAPI, .scenario = "noautocreate"),
    _TEST(0139_offset_validation_mock, 0),
"""


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.skipif(shutil.which("go") is None, reason="franz-go's tests are built with Go")
def test_a_test_of_franz_go_passes_on_three_nodes() -> None:
    command = [sys.executable, "-m", "tests.clients.suites", "franz-go", "--run", "TestIssue337$|TestPing$"]
    done = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "2 pass, 0 fail, 0 skip"


def test_each_failure_that_is_kept_has_a_reason_and_the_page_shows_it() -> None:
    rows = results.load()
    assert {(suite, test) for suite, test, _ in results.failed(rows)} == REASONS.keys()
    assert results.PAGE.read_text() == results.page(SUITES, rows)


def test_what_is_run_again_replaces_what_was_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "STORE", tmp_path / "results.json")
    suite = SUITES["kafka-go"]
    results.store(suite, "reference", [Outcome("a", FAIL), Outcome("b", PASS), Outcome("c", SKIP)])
    results.store(suite, "kafka:4.3.1", [Outcome("a", FAIL)])
    results.store(suite, "reference", [Outcome("a", PASS)])
    first, second = results.load()
    assert (first["target"], first[PASS], first[FAIL], first[SKIP]) == ("reference", ["a", "b"], [], ["c"])
    assert list(results.failed([first, second])) == [("kafka-go", "a", ["kafka:4.3.1"])]


def test_a_go_test_that_panics_is_left_running_and_its_subtests_output_is_shown() -> None:
    events = Events()
    lines = [
        '{"Action":"run","Test":"A"}',
        '{"Action":"run","Test":"A/one"}',
        '{"Action":"output","Test":"A/one","Output":"why\\n"}',
        '{"Action":"fail","Test":"A/one"}',
        '{"Action":"fail","Test":"A","Elapsed":1.5}',
        '{"Action":"run","Test":"B"}',
        "panic: runtime error",
    ]
    assert [outcome for line in lines for outcome in events.take(line)] == [Outcome("A", FAIL, 1.5, "why\n")]
    assert list(events.running) == ["B"]


def test_a_paused_test_is_not_running_and_a_parent_is_not_counted() -> None:
    events = Events("Suite")
    lines = [
        '{"Action":"run","Test":"Parallel"}',
        '{"Action":"pause","Test":"Parallel"}',
        '{"Action":"run","Test":"Suite"}',
        '{"Action":"run","Test":"Suite/A"}',
        '{"Action":"pass","Test":"Suite/A/one"}',
        '{"Action":"pass","Test":"Suite/A","Elapsed":2}',
        '{"Action":"run","Test":"Suite/B"}',
        '{"Action":"fail","Test":"Suite"}',
    ]
    assert [outcome for line in lines for outcome in events.take(line)] == [Outcome("Suite/A", PASS, 2)]
    assert list(events.running) == ["Suite/B"]


def test_sarama_stops_and_starts_brokers_by_docker_compose(tmp_path: Path) -> None:
    with open_target("reference", folder=tmp_path / "target", nodes=1) as target, ExitStack() as opened:
        assert isinstance(target, ClusterTarget)
        opened.enter_context(docker(target, tmp_path))
        states: list[bool] = []
        for command in ("stop", "start"):
            subprocess.run([tmp_path / "docker", "compose", command, "kafka-1"], check=True)
            states.append(target.running(1))
        logged = subprocess.run([tmp_path / "docker", "compose", "logs", "kafka-1"], capture_output=True, check=True)
        refused = subprocess.run([tmp_path / "docker", "compose", "exec", "kafka-1"], capture_output=True, check=False)
    assert states == [False, True]
    assert b"unfenced" in logged.stdout
    assert refused.returncode == 1


def test_only_tests_of_librdkafka_that_need_a_broker_are_run() -> None:
    assert needing_a_broker(TABLE, "") == ["0001_multiobj", "0103_transactions"]
    assert needing_a_broker(TABLE, "trans") == ["0103_transactions"]
