"""The fact table agrees with Kafka's jars: the tool's own check finds no difference, and finds a planted one."""

import sys
from pathlib import Path

import pytest

from linearizability.targets.artifacts import kafka_jars
from reference.protocol import generate
from reference.protocol.apis import APIS
from reference.protocol.schema import NO_VERSIONS, Versions

RELEASES = ("3.9.2", "4.3.1", "4.4.0")


def check(monkeypatch: pytest.MonkeyPatch) -> int:
    jars = [f"--jars={release}={kafka_jars(release)[0].parent}" for release in RELEASES]
    monkeypatch.setattr(sys, "argv", ["generate", *jars, "--check"])
    return generate.main()


@pytest.mark.java
def test_table_and_jars_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check(monkeypatch) == 0


@pytest.mark.java
def test_the_check_finds_a_wrong_fact(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    copy = tmp_path / "protocol"
    (copy / "messages").mkdir(parents=True)
    for path in generate.HERE.glob("messages/*.py"):
        (copy / "messages" / path.name).write_text(path.read_text())
    (copy / "apis.py").write_text((generate.HERE / "apis.py").read_text())
    produce = copy / "messages" / "produce.py"
    produce.write_text(produce.read_text().replace('acks: int = int16("0+"', 'acks: int = int16("1+"'))
    monkeypatch.setattr(generate, "HERE", copy)
    assert check(monkeypatch) == 1


def test_each_api_has_both_messages() -> None:
    assert len(APIS) > 60
    for key, api in APIS.items():
        assert api.request.KEY == api.response.KEY == key
        assert api.request.VERSIONS == api.response.VERSIONS


@pytest.mark.parametrize("text", ["0+", "3-12", "5", "none"])
def test_versions_are_written_as_they_are_read(text: str) -> None:
    assert str(Versions.parse(text)) == text


def test_version_ranges() -> None:
    assert 3 in Versions.parse("3-5") and 6 not in Versions.parse("3-5")
    assert list(NO_VERSIONS) == []
    with pytest.raises(ValueError, match="invalid literal"):
        Versions.parse("x")
