"""Artifacts have the pinned bytes; otherwise the error names the reason."""

import hashlib
import json
import multiprocessing
import time
from functools import cache as cached
from pathlib import Path

import pytest
from typer.testing import CliRunner

from linearizability.targets import artifacts, commands
from linearizability.targets.artifacts import ArtifactError
from linearizability.targets.ivy import IvyError, Module

JARS = {Module("org.example", "one", "1.0"): b"first", Module("org.example", "two", "2.0", "linux"): b"second"}
PINS = {module: hashlib.sha256(content).hexdigest() for module, content in JARS.items()}


def pretend_to_retrieve(modules, folder: Path, work: Path) -> None:
    folder.mkdir(parents=True)
    for module in modules:
        (folder / module.file_name).write_bytes(JARS[module])


def unreachable(*_: object) -> None:
    raise IvyError("no route to host")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    monkeypatch.setattr(artifacts, "read_lock", lambda: {"example": PINS})
    monkeypatch.setattr(artifacts, "retrieve", pretend_to_retrieve)
    artifacts.artifact_jars.cache_clear()
    yield tmp_path / "artifacts"
    artifacts.artifact_jars.cache_clear()


def test_a_set_is_fetched_once_and_complete(cache, monkeypatch):
    first = artifacts.artifact_jars("example")
    assert [jar.name for jar in first] == ["one-1.0.jar", "two-2.0-linux.jar"]
    assert [jar.read_bytes() for jar in first] == [b"first", b"second"]
    monkeypatch.setattr(artifacts, "retrieve", lambda *_: pytest.fail("fetched again"))
    artifacts.artifact_jars.cache_clear()
    assert artifacts.artifact_jars("example") == first
    assert sorted(path.name for path in cache.iterdir()) == ["example", "example.lock"]


def test_other_bytes_than_pinned_are_refused_and_not_kept(cache, monkeypatch):
    def lie(modules, folder: Path, work: Path) -> None:
        pretend_to_retrieve(modules, folder, work)
        (folder / "one-1.0.jar").write_bytes(b"evil")

    monkeypatch.setattr(artifacts, "retrieve", lie)
    with pytest.raises(ArtifactError, match=r"example was fetched, but holds another one-1\.0\.jar than was pinned"):
        artifacts.artifact_jars("example")
    assert not (cache / "example").exists()


def test_a_missing_jar_is_named(cache, monkeypatch):
    monkeypatch.setattr(artifacts, "retrieve", lambda modules, folder, work: folder.mkdir(parents=True))
    with pytest.raises(ArtifactError, match=r"lacks one-1\.0\.jar"):
        artifacts.artifact_jars("example")


def test_a_damaged_cache_is_named(cache):
    jar = artifacts.artifact_jars("example")[1]
    jar.write_bytes(b"sec")
    artifacts.artifact_jars.cache_clear()
    with pytest.raises(ArtifactError, match=r"holds another two-2\.0-linux\.jar .* remove the folder"):
        artifacts.artifact_jars("example")


def test_no_network_is_one_sentence(cache, monkeypatch):
    def fail(*_):
        raise IvyError("module not found: org.example#one;1.0")

    monkeypatch.setattr(artifacts, "retrieve", fail)
    with pytest.raises(ArtifactError, match="example could not be fetched: module not found"):
        artifacts.artifact_jars("example")


def test_an_unknown_release_lists_the_pinned(cache):
    with pytest.raises(
        ArtifactError,
        match=r"kafka-9\.9 is not among the pinned artifacts: example; `tidegauge targets add 9\.9` pins it",
    ):
        artifacts.kafka_jars("9.9")


def test_processes_that_ask_at_once_fetch_once(cache, monkeypatch):
    def slowly(modules, folder: Path, work: Path) -> None:
        with (cache / "fetches").open("a") as log:
            log.write("x")
        time.sleep(0.3)
        pretend_to_retrieve(modules, folder, work)

    monkeypatch.setattr(artifacts, "retrieve", slowly)
    context = multiprocessing.get_context("fork")
    children = [context.Process(target=artifacts.artifact_jars, args=("example",)) for _ in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(30)
    assert [child.exitcode for child in children] == [0, 0, 0]
    assert (cache / "fetches").read_text() == "x"


def test_the_lock_file_pins_every_set_with_its_roots():
    lock = artifacts.read_lock()
    assert set(artifacts.OTHER_ROOTS) <= set(lock)
    for name, pins in lock.items():
        assert {Module.parse(root) for root in artifacts.roots_of(name).modules} <= set(pins)
        assert all(len(digest) == 64 for digest in pins.values())
    assert artifacts.kafka_versions()[0].startswith("0.")


@pytest.mark.parametrize(
    ("version", "scala", "others"),
    [
        ("0.8.2.2", "2.11", {artifacts.LOGGING_LOG4J, artifacts.JAXB}),
        ("0.10.2.0", "2.12", {artifacts.LOGGING_LOG4J, artifacts.JAXB}),
        ("1.0.0", "2.12", {artifacts.LOGGING_LOG4J}),
        ("2.4.0", "2.13", {artifacts.LOGGING_LOG4J}),
        ("3.10.0", "2.13", {artifacts.LOGGING_RELOAD4J}),
        ("4.0.0", "2.13", {artifacts.LOGGING}),
    ],
)
def test_any_release_has_roots(version, scala, others):
    assert set(artifacts.kafka_roots(version).modules) == {f"org.apache.kafka:kafka_{scala}:{version}", *others}


def test_no_version_is_refused():
    for text in ("4.3", "4.3.1:3", "latest"):
        with pytest.raises(ArtifactError, match="is no version of Kafka"):
            artifacts.roots_of(f"kafka-{text}")
    with pytest.raises(ArtifactError, match="other is no set"):
        artifacts.roots_of("other")


def test_a_release_that_is_added_is_shown_pinned_and_fetched(tmp_path, monkeypatch):
    lock = tmp_path / "artifacts.lock.json"
    artifacts.write_lock({"tlc": PINS}, lock)
    monkeypatch.setenv("TIDEGAUGE_CACHE", str(tmp_path))
    monkeypatch.setattr(artifacts, "LOCK_FILE", lock)
    read = artifacts.read_lock.__wrapped__
    monkeypatch.setattr(artifacts, "read_lock", cached(lambda: read(lock)))
    monkeypatch.setattr(artifacts, "retrieve", pretend_to_retrieve)
    monkeypatch.setattr(artifacts, "ensure_java", lambda: None)

    def found(roots, excluded, overridden, folder, work):
        assert str(roots[0]) == "org.apache.kafka:kafka_2.12:1.0.0"
        pretend_to_retrieve(JARS, folder, work)
        return {module: folder / module.file_name for module in JARS}

    monkeypatch.setattr(artifacts, "resolve", found)
    done = CliRunner().invoke(commands.app, ["add", "1.0.0", "--json"])
    assert done.exit_code == 0, done.output
    said = json.loads(done.stdout)
    assert said["added"] == {"1.0.0": {str(module): digest for module, digest in PINS.items()}}
    assert set(json.loads(lock.read_text())["sets"]) == {"tlc", "kafka-1.0.0"}
    assert (tmp_path / "artifacts" / "kafka-1.0.0" / "one-1.0.jar").read_bytes() == b"first"

    listed = json.loads(CliRunner().invoke(commands.app, ["list", "--json"]).stdout)
    assert listed["releases"] == [{"version": "1.0.0", "jars": 2, "cached": True, "zookeeper": True}]

    monkeypatch.setattr(artifacts, "resolve", unreachable)
    refused = CliRunner().invoke(commands.app, ["add", "1.0.1"])
    assert refused.exit_code == 3 and "could not be resolved: no route to host" in refused.stderr
    assert CliRunner().invoke(commands.app, ["add", "1.0.0"]).exit_code == 0, "what is pinned is not resolved again"


def test_a_broken_lock_file_is_named(tmp_path):
    broken = tmp_path / "lock.json"
    broken.write_text('{"sets": {"a": {"jars": {"only:two": "00"}}}}')
    with pytest.raises(ArtifactError, match=r"lock\.json is no lock file: 'only:two'"):
        artifacts.read_lock(broken)
