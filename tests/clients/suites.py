"""Client libraries' own test suites, from outside, against a target of ours: franz-go's, which needs Go 1.26 or newer.

    python -m tests.clients.suites                                    # three nodes of the reference
    python -m tests.clients.suites --target kafka:4.3.1:3 --records 100000
    python -m tests.clients.suites --run 'TestGroupETL|TestTxnEtl'

The suite is the tests of package kgo in the released module; its checksum is in the Go checksum database. Share groups and
OAUTHBEARER, which the reference does not serve, are left out. Each test is printed with its outcome; the exit code is 1 where
one failed, and 2 where none was run to its end. On three nodes of the reference 139 pass, three need another broker or SCRAM,
and one failed (2026-11-26): Test848RegexBrokerResolves counts `__consumer_offsets` among the topics that it waits for, and
ends too early where other tests have committed offsets there before. Alone it passes on the reference and on Kafka 4.3.1.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from linearizability.targets import open_target

MODULE, VERSION = "github.com/twmb/franz-go", "v1.22.3"
LEFT_OUT = "Share|OAuth"
OUTCOMES = ("pass", "fail", "skip")


def source() -> Path:
    """The module's folder, downloaded where it is not there. Errors: SystemExit without Go."""
    if shutil.which("go") is None:
        raise SystemExit("franz-go's tests are built with Go 1.26 or newer, and there is no `go` on the PATH")
    asked = ["go", "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(asked, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{MODULE} {VERSION} cannot be downloaded: {done.stderr or done.stdout}")
    return Path(json.loads(done.stdout)["Dir"]) / "pkg" / "kgo"


def run(bootstrap: str, chosen: str, records: int, minutes: float, replication: int) -> Counter[str]:
    """Run the tests; how many there are of each outcome, without those that talk to no broker and say so by no name."""
    settings = {"KGO_SEEDS": bootstrap, "KGO_TEST_RECORDS": str(records), "KGO_TEST_RF": str(replication)}
    command = [
        "go",
        "test",
        "-json",
        "-count=1",
        f"-timeout={minutes * 60:.0f}s",
        f"-skip={LEFT_OUT}",
        f"-run={chosen}",
        ".",
    ]
    counts = Counter[str]()
    with subprocess.Popen(
        command, cwd=source(), env=os.environ | settings, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        output: dict[str, list[str]] = {}
        for line in process.stdout:
            event: dict[str, Any] = json.loads(line) if line.startswith("{") else {}
            test = event.get("Test", "")
            output.setdefault(test, []).append(event.get("Output", ""))
            if event.get("Action") in OUTCOMES and test and "/" not in test:
                counts[event["Action"]] += 1
                print(f"{event['Action']:<5} {event.get('Elapsed', 0):7.1f} s  {test}", flush=True)
                if event["Action"] == "fail":
                    print("".join(output[test])[-3_000:], file=sys.stderr)
    if process.returncode and not counts["fail"]:
        print("".join(output.get("", []))[-3_000:], file=sys.stderr)
        counts["fail"] += 1
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="reference:3", help="the target; default: reference:3")
    parser.add_argument("--run", default="Test", help="a pattern of tests, as `go test -run` takes it")
    parser.add_argument("--records", type=int, default=50_000, help="how many records the longest tests move")
    parser.add_argument("--minutes", type=float, default=15, help="after how long the suite is given up")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, open_target(arguments.target, folder=Path(folder)) as target:
        nodes = len(target.bootstrap.split(","))
        counts = run(target.bootstrap, arguments.run, arguments.records, arguments.minutes, min(3, nodes))
    print(", ".join(f"{counts[each]} {each}" for each in OUTCOMES))
    raise SystemExit(1 if counts["fail"] else 0 if counts["pass"] else 2)


if __name__ == "__main__":
    main()
