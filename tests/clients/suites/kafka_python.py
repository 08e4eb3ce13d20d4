"""kafka-python's integration tests, of its source distribution, against a broker that runs already.

The distribution lacks three files that its tests import: two that are empty, and `test/service.py`, of which an external broker needs
the address alone. pytest runs in this environment, and imports the library from the distribution.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from xml.etree import ElementTree

from tests.clients.suites.suite import FAIL, KEPT, OUTPUT_KEPT, PASS, SKIP, WITH_ACCESS_CONTROL, Order, Outcome, Suite
from tests.tools.jvm import RELEASE

VERSION = "3.0.12"
SERVICE = '''
class ExternalService:
    def __init__(self, host, port):
        self.host, self.port = host, port

    def open(self):
        pass

    close = stop = dump_logs = open


class SpawnedService:
    """Brokers that the tests start themselves are not there."""
'''


def source() -> Path:
    """The distribution's folder, downloaded where it is not there."""
    home = KEPT / f"kafka_python-{VERSION}"
    if not home.exists():
        KEPT.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-binary=kafka-python", f"--dest={KEPT}"]
        done = subprocess.run([*command, f"kafka-python=={VERSION}"], capture_output=True, text=True, check=False)
        if done.returncode:
            raise SystemExit(f"kafka-python {VERSION} cannot be downloaded: {done.stderr[-OUTPUT_KEPT:]}")
        # Python 3.11.2 has no filter for what an archive may write; tar does not leave its folder.
        subprocess.run(["tar", "--extract", f"--file={KEPT / home.name}.tar.gz", f"--directory={KEPT}"], check=True)
    (home / "servers" / RELEASE / "kafka-bin").mkdir(
        parents=True, exist_ok=True
    )  # a Kafka of its own, which is not used
    (home / "test" / "__init__.py").touch()
    (home / "test" / "service.py").write_text(SERVICE)
    return home


def run(order: Order) -> Iterator[Outcome]:
    report = order.folder / "report.xml"
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", f"--junitxml={report}"]
    selected = ["-k", order.chosen] if order.chosen else []
    home = source()
    done = subprocess.run(
        [
            *command,
            "--ignore=test/integration/test_ssl_integration.py",
            "--timeout=120",
            "--timeout-method=signal",
            *selected,
            "test/integration",
        ],
        cwd=home,
        env=os.environ | {"KAFKA_VERSION": RELEASE, "KAFKA_URI": f"kafka://{order.bootstrap.split(',')[0]}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=order.minutes * 60,
    )
    if not report.exists():
        yield Outcome("(the suite)", FAIL, 0.0, done.stdout[-OUTPUT_KEPT:])
        return
    for case in ElementTree.parse(report).iter("testcase"):
        file = case.get("classname", "").rpartition(".")[2]
        broken = case.find("failure") if case.find("failure") is not None else case.find("error")
        outcome = FAIL if broken is not None else SKIP if case.find("skipped") is not None else PASS
        text = "" if broken is None else f"{broken.text or ''}\n{broken.get('message', '')}"
        yield Outcome(f"{file}::{case.get('name')}", outcome, float(case.get("time", 0)), text[-OUTPUT_KEPT:])


KAFKA_PYTHON = Suite(
    "kafka-python",
    "kafka-python",
    VERSION,
    nodes=3,
    run=run,
    config=WITH_ACCESS_CONTROL | {"num.partitions": "4", "group.min.session.timeout.ms": "1000"},
    left_out="Tests of TLS and SASL, which start their own Kafka.",
)
