"""Suites of Rust crates: the integration tests of rskafka and rust-rdkafka, each test in a process of its own.

A crate comes with its lock file, so that its tests are built with the dependencies of its release.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from tests.clients.suites.suite import (
    FAIL,
    KEPT,
    OUTPUT_KEPT,
    PASS,
    SKIP,
    AtPort,
    Order,
    Outcome,
    Suite,
    needs,
)
from tests.tools.jvm import RELEASE

RSASL = "rsasl --precise 2.3.1"
"""The lock file of rskafka 0.6.0 has 2.2.0, which Rust 1.95 does not compile."""
TEST_S = 120.0
"""The time limit of one test."""


def vendored(crate: str, version: str, folder: Path) -> Path:
    """The crate in the folder, whose checksum Cargo compares with its registry's index. Errors: SystemExit."""
    (folder / "src").mkdir()
    (folder / "src" / "lib.rs").touch()
    dependency = f'{crate} = {{ version = "={version}", default-features = false }}'
    project = f'[package]\nname = "fetched"\nversion = "0.0.0"\nedition = "2021"\n[dependencies]\n{dependency}\n'
    (folder / "Cargo.toml").write_text(project)
    well_done(["cargo", "vendor", "--quiet", "vendor"], folder)
    return folder / "vendor" / crate


def well_done(command: Sequence[str], folder: Path) -> str:
    """What the command printed. Errors: SystemExit where it fails."""
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {(done.stdout + done.stderr)[-OUTPUT_KEPT:]}")
    return done.stdout


def built(suite: Suite, updates: Sequence[str] = ()) -> list[Path]:
    """The programs of the crate's integration tests. `updates` are dependencies that need another version than the lock file's."""
    home = KEPT / f"{suite.name}-{suite.version}"
    if not home.exists():
        needs("cargo")
        KEPT.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=KEPT) as folder:
            crate = vendored(suite.library, suite.version, Path(folder))
            # The tests are built with the compiler that is here.
            (crate / "rust-toolchain.toml").unlink(missing_ok=True)
            for update in updates:
                well_done(["cargo", "update", *update.split()], crate)
            shutil.move(crate, home)
    command = ["cargo", "test", "--locked", "--no-run", "--tests", "--message-format=json"]
    messages = [json.loads(line) for line in well_done(command, home).splitlines()]
    return [
        Path(message["executable"])
        for message in messages
        if message.get("executable") and message["target"]["kind"] == ["test"]
    ]


def rust_tests(
    suite: Suite, order: Order, settings: Mapping[str, str], *, updates: Sequence[str] = (), left_out: str = "^$"
) -> Iterator[Outcome]:
    """The outcome of each test whose name matches; names begin with their file's."""
    end = time.monotonic() + order.minutes * 60
    for program in built(suite, updates):
        listed = subprocess.run(
            [program, "--list", "--format=terse"], capture_output=True, text=True, check=True
        ).stdout
        for test in re.findall(r"^(\S+): test$", listed, re.M):
            name = f"{program.name.rpartition('-')[0]}::{test}"
            if re.search(order.chosen, name) and not re.search(left_out, name):
                if time.monotonic() > end:
                    raise SystemExit(f"{order.minutes:.0f} minutes are over before test {name}")
                yield _run(program, test, name, settings)


def _run(program: Path, test: str, name: str, settings: Mapping[str, str]) -> Outcome:
    began = time.monotonic()
    try:
        done = subprocess.run(
            [program, test, "--exact"],
            cwd=program.parents[3],
            env={**os.environ, "RUST_BACKTRACE": "0", **settings},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TEST_S,
            check=False,
        )
    except subprocess.TimeoutExpired as over:
        printed = (over.stdout or b"").decode(errors="replace")[-OUTPUT_KEPT:]
        return Outcome(name, FAIL, TEST_S, f"{printed}\nhas not ended after {TEST_S:.0f} s")
    printed, seconds = done.stdout.decode(errors="replace"), time.monotonic() - began
    if done.returncode or "1 passed" in printed:
        return Outcome(name, FAIL if done.returncode else PASS, seconds, printed[-OUTPUT_KEPT:])
    return Outcome(name, SKIP, seconds)


def rskafka(order: Order) -> Iterator[Outcome]:
    settings = {"TEST_INTEGRATION": "1", "TEST_BROKER_IMPL": "kafka", "KAFKA_CONNECT": order.bootstrap}
    # The last one is among those that skip themselves without Java, though its name does not say so.
    untried = "java|sasl|socks5|produce_rdkafka_consume_rdkafka_nocompression"
    yield from rust_tests(RSKAFKA, order, settings, updates=[RSASL], left_out=untried)


def rust_rdkafka(order: Order) -> Iterator[Outcome]:
    settings = {"KAFKA_HOST": order.bootstrap, "KAFKA_VERSION": RELEASE}
    yield from rust_tests(RUST_RDKAFKA, order, settings)


RSKAFKA = Suite(
    "rskafka",
    "rskafka",
    "0.6.0",
    nodes=3,
    run=rskafka,
    config={"auto.create.topics.enable": "false"},
    left_out="Tests through Java, SASL and a SOCKS5 proxy: without their settings they pass and have tried nothing.",
)
RUST_RDKAFKA = Suite(
    "rust-rdkafka",
    "rdkafka",
    "0.39.0",
    nodes=1,
    run=rust_rdkafka,
    config={"num.partitions": "3", "advertised.listeners": "PLAINTEXT://localhost:9092"},
    hosts=(AtPort(),),
    left_out="Tests in the library's own files, which need no broker. On Kafka 4.3.1 only those four were run that had failed on the "
    "reference.",
)
