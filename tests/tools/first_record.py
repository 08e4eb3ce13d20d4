"""Measures how long a test waits for its broker: `python -m tests.tools.first_record [TARGET...]` (default: reference and Kafka).

From the import of the package to the first record that a producer (`confluent-kafka`) has acknowledged, in a new process each
time: the least and the median of seconds, and the CPU seconds of all processes, the broker's end included.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys

ROUNDS = 3
TARGETS = ("reference:1", "reference:3", "kafka:4.3.1", "kafka:4.3.1:3")
SCRIPT = """
import sys, time
began = time.monotonic()
import json, resource, tempfile
from pathlib import Path
from confluent_kafka import Producer
from linearizability.testing import reference_broker

def opened(spec):
    kind, _, rest = spec.partition(":")
    if kind == "reference":
        return reference_broker(int(rest))
    from linearizability.targets import open_target
    return open_target(spec, folder=Path(tempfile.mkdtemp()), config={})

failed = []
with opened(sys.argv[1]) as broker:
    serves = time.monotonic() - began
    producer = Producer({"bootstrap.servers": broker.bootstrap, "acks": "all"})
    producer.produce("orders", b"the first", on_delivery=lambda error, message: error and failed.append(str(error)))
    assert producer.flush(60) == 0 and not failed, failed
    acknowledged = time.monotonic() - began
used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
cpu = sum(each.ru_utime + each.ru_stime for each in used)
print(json.dumps({"serves_s": serves, "acknowledged_s": acknowledged, "cpu_s": cpu}))
"""


def measure(target: str) -> dict[str, list[float]]:
    """Least and median of each figure."""
    command = [sys.executable, "-c", SCRIPT, target]
    rounds = [
        json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.splitlines()[-1])
        for _ in range(ROUNDS)
    ]
    columns = {name: [each[name] for each in rounds] for name in rounds[0]}
    return {name: [round(min(found), 2), round(statistics.median(found), 2)] for name, found in columns.items()}


if __name__ == "__main__":
    for target in sys.argv[1:] or TARGETS:
        print(target, json.dumps(measure(target)), flush=True)
