"""Two unmodified clients under one transactional id: the Java client of 4.3.1, and librdkafka, which takes over from it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import KafkaException, Producer

from linearizability.findings.reading import read
from linearizability.targets import open_target
from linearizability.targets.artifacts import ensure_java, java, kafka_jars
from linearizability.workload.cluster import create_topic

CLIENT_RELEASE = "4.3.1"
TOPIC, TRANSACTIONAL_ID = "orders", "till"
TIMEOUT_S = 30.0
ANSWER = ">"
"""The prefix of the answers of `Zombie.java`; other lines are the client's log."""


class JavaProducer:
    """Runs `Zombie.java`, one command line at a time."""

    def __init__(self, bootstrap: str, seen: list[str]) -> None:
        ensure_java()
        classes = ":".join(str(jar) for jar in kafka_jars(CLIENT_RELEASE))
        program = Path(__file__).with_name("Zombie.java")
        self._process = subprocess.Popen(
            [java(), "-cp", classes, program, bootstrap, TRANSACTIONAL_ID],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            bufsize=1,
        )
        self._seen = seen

    def does(self, line: str) -> str:
        """Execute a command. Returns `success`, after an offset for a send, or the name of the exception."""
        assert self._process.stdin and self._process.stdout
        self._process.stdin.write(line + "\n")
        answer = next((each[1:].strip() for each in self._process.stdout if each.startswith(ANSWER)), "it ended")
        self._seen.append(f"Java session: {line}: {answer}")
        return answer

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


class NewerSession:
    """librdkafka, which ends transactions as before KIP-890."""

    def __init__(self, bootstrap: str, seen: list[str]) -> None:
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "transactional.id": TRANSACTIONAL_ID, "log_level": 0}
        )
        self._seen = seen

    def does(self, what: str, step: Callable[[], Any]) -> str:
        try:
            step()
            answer = "success"
        except KafkaException as error:
            answer = f"{error.args[0].name()}{', fatal' if error.args[0].fatal() else ''}"
        self._seen.append(f"newer session: {what}: {answer}")
        return answer

    def start(self) -> None:
        self.does("init", lambda: self._producer.init_transactions(TIMEOUT_S))

    def transact(self, value: str, *, committed: bool) -> str:
        """Run one transaction of one record, and return the outcome of its end."""
        end = self._producer.commit_transaction if committed else self._producer.abort_transaction
        self.does("begin", self._producer.begin_transaction)
        self._producer.produce(TOPIC, value)
        self.does(f"send {TOPIC} {value}", lambda: self._producer.flush(TIMEOUT_S))
        return self.does("commit" if committed else "abort", lambda: end(TIMEOUT_S))


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as target:
        create_topic(target.nodes, TOPIC, partitions=1, replication_factor=1, configs={})
        first = JavaProducer(target.bootstrap, seen)
        try:
            for line in ("init", "begin", f"send {TOPIC} a", "commit"):
                if not first.does(line).endswith("success"):
                    return None, seen
            newer = NewerSession(target.bootstrap, seen)
            newer.start()
            if newer.transact("b", committed=False) != "success":
                return None, seen
            for line in ("begin", f"send {TOPIC} c", "abort", "begin"):
                first.does(line)
            sent, committed = first.does(f"send {TOPIC} d"), first.does("commit")
            newer.transact("e", committed=True)
        finally:
            first.close()
        log = read(target.bootstrap, TOPIC)
    seen.append(f"the log, uncommitted records too: {log}")
    return sent.endswith("success") and committed == "success" and "d" not in log.values(), seen
