"""Checks of this machine: the installed software, and what each use or target lacks."""

from __future__ import annotations

import os
import platform
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Literal, NamedTuple

from conformance.contract_check import Check, check_contract
from conformance.target_profile import TargetProfile
from linearizability import extras
from linearizability.targets.java import JavaMissing, java, java_release

PACKAGES = ("pydantic", "rich", "jinja2", "cramjam", "crc32c")
OPTIONAL_PACKAGES = ("confluent-kafka", "pyarrow", "pyspark")

JARS = "Kafka's jars"

USES = {
    "judge a broker: run --target addr:HOST:PORT": ("loopback", *PACKAGES),
    "histories, hunts, simulations: history, hunt, fuzz": ("confluent-kafka", "pyarrow"),
    "hunts that cut links": ("network namespaces",),
    "hunts in containers: hunt --backend docker": ("docker",),
    "Apache Kafka as a target: kafka:VERSION": ("java", JARS),
    "the specification, and histories on Spark: spec, --engine spark": ("java", "pyspark"),
}
"""Use of this machine -> the checks that it needs."""


class Use(NamedTuple):
    """One use of this machine, and the steps that must come before it."""

    name: str
    obstacles: list[str]


def uses(checks: list[Check]) -> list[Use]:
    """The uses of this machine, with the obstacles that the checks found."""
    lacking = {check.name: check.advice or check.found for check in checks if check.state != "ok"}
    return [Use(name, [lacking[each] for each in needed if each in lacking]) for name, needed in USES.items()]


def examine(target: str = "", opening: Callable[..., Any] | None = None) -> tuple[list[Check], TargetProfile | None]:
    """Run all checks of this machine. With a target, also open it (by `opening`, if given) and probe it."""
    checks = [
        _python(),
        *(_package(name, "broken") for name in PACKAGES),
        *(_package(name, "missing") for name in OPTIONAL_PACKAGES),
        _loopback(),
        _disk(),
        _java(),
        _jars(),
        _namespaces(),
        _docker(),
    ]
    profile = None
    if target.startswith("exec:"):
        with tempfile.TemporaryDirectory() as folder:
            checks += check_contract(target, Path(folder), opening)
    if target and not any(check.state == "broken" for check in checks):
        check, profile = _target(target, opening)
        checks.append(check)
    return checks, profile


def _python() -> Check:
    return Check(name="python", state="ok", found=f"{platform.python_version()}, {os.cpu_count()} processors")


def _package(name: str, state: Literal["missing", "broken"]) -> Check:
    try:
        return Check(name=name, state="ok", found=version(name))
    except PackageNotFoundError:
        advice = extras.advice(name.replace("-", "_")) or "`make setup` installs what requirements.lock names."
        return Check(name=name, state=state, advice=advice)


def _loopback() -> Check:
    try:
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname(), 5):
            return Check(name="loopback", state="ok", found="127.0.0.1 takes connections")
    except OSError as error:
        return Check(name="loopback", state="broken", found=str(error), advice="Targets are started on 127.0.0.1.")


def _disk() -> Check:
    free_gib = shutil.disk_usage(Path.cwd()).free / 2**30
    state = "ok" if free_gib >= 2 else "missing"
    return Check(
        name="disk",
        state=state,
        found=f"{free_gib:.1f} GiB free here",
        advice="" if state == "ok" else "Kafka's artifacts and logs want 2 GiB.",
    )


def _java() -> Check:
    """Check for the Java that targets, Spark and TLC use, also where it is not on PATH."""
    try:
        found = java()
    except JavaMissing as error:
        return Check(name="java", state="missing", advice=f"kafka:VERSION targets, Spark and TLC need it. {error}.")
    return Check(name="java", state="ok", found=f"{java_release(found)}, {found}")


def _jars() -> Check:
    """Check for releases of Apache Kafka in the cache, or for what fetches them."""
    from linearizability.targets.artifacts import is_cached, kafka_versions

    kept = [version for version in kafka_versions() if is_cached(f"kafka-{version}")]
    if kept:
        return Check(name=JARS, state="ok", found=f"kept: {', '.join(kept)}")
    if find_spec("pyspark"):
        return Check(name=JARS, state="ok", found="none is kept; they are fetched when they are needed")
    return Check(
        name=JARS, state="missing", advice=f"Apache Ivy, of PySpark, fetches them: {extras.installing('spec')}"
    )


def _namespaces() -> Check:
    command = ["unshare", "--user", "--map-root-user", "--net", "--mount", "--pid", "--fork", "true"]
    advice = "`hunt` cuts links in network namespaces: allow unprivileged user namespaces, or run as root."
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Check(name="network namespaces", state="missing", found=str(error), advice=advice)
    if done.returncode:
        return Check(name="network namespaces", state="missing", found=done.stderr.strip(), advice=advice)
    return Check(name="network namespaces", state="ok", found="usable" + (" as root" if os.geteuid() == 0 else ""))


def _docker() -> Check:
    from linearizability.targets.docker import obstacle

    reason = obstacle()
    if reason:
        return Check(
            name="docker", state="missing", advice=f"Only `hunt --backend docker` needs it: {reason.rstrip('.')}."
        )
    return Check(name="docker", state="ok", found=shutil.which("docker") or "")


def _target(spec: str, opening: Callable[..., Any] | None) -> tuple[Check, TargetProfile | None]:
    from conformance.host import Host, TargetBroke
    from conformance.plan import BASE_CONFIGS, Group
    from conformance.results import TargetRecord

    record = TargetRecord(spec=spec)
    with tempfile.TemporaryDirectory() as folder:
        host = Host(spec=spec, folder=Path(folder), record=record, open_target=opening)
        try:
            host.prepare(Group(dict(BASE_CONFIGS)))
        except TargetBroke as error:
            return Check(name=spec, state="broken", found=str(error), advice="`tidegauge run` keeps its logs."), None
        finally:
            host.close()
    found = f"speaks like Kafka {record.kafka_version}, {record.nodes} nodes"
    return Check(name=spec, state="ok", found=found), record.profile
