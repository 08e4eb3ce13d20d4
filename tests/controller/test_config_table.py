"""The table of configurations agrees with the declarations of Apache Kafka 4.3.1."""

import re
import subprocess
from pathlib import Path

import pytest

from linearizability.targets.artifacts import java, kafka_jars
from reference.controller.broker_configs import CLUSTER_WIDE, PER_BROKER
from reference.controller.config_definition import Definition, InvalidConfig
from reference.controller.config_table import BROKER, TOPIC

VALUES = [
    "-2147483649", "-3", "-2", "-1", "0", "1", "2", "9", "10", "14", "17", "18", "22", "23", "100", "1024", "1048576",
    "2147483648", "9223372036854775808", "0.5", "1.5", "true", "x", "", " ", ",", "a,a", "*", "0:1", "0:1,1:2", "0:1,x",
    "compact", "delete,compact", "compact,compact", "none", "gzip", "uncompressed", "zstd", "snappy", "lz4", "producer",
    "CreateTime", "LogAppendTime",
]  # fmt: skip
SOURCE = Path(__file__).parent / "java" / "Configs.java"


def takes(definition: Definition, name: str, text: str) -> bool:
    try:
        definition.parse(name, text)
    except InvalidConfig:
        return False
    return True


@pytest.mark.java
def test_names_types_and_defaults_are_kafkas() -> None:
    class_path = ":".join(str(jar) for jar in kafka_jars("4.3.1"))
    done = subprocess.run(
        [str(java()), "-cp", class_path, str(SOURCE), *VALUES], capture_output=True, text=True, timeout=120, check=True
    )
    declared = [line.split("\t") for line in done.stdout.splitlines()]
    modes = {name: mode for kind, name, mode, *_ in declared if kind == "dynamic"}
    assert modes == dict.fromkeys(CLUSTER_WIDE, "cluster-wide") | dict.fromkeys(PER_BROKER, "per-broker")
    declared = [row for row in declared if row[0] != "dynamic"]
    assert len(declared) == len(TOPIC) + len(BROKER) > 350
    for kind, name, type_, default, validator, taken in declared:
        ours = (TOPIC if kind == "topic" else BROKER)[name]
        assert ours.type == type_, name
        assert ("<null>" if ours.default is None else ours.default) == default, name
        bounds = re.match(r"\[(-?[\d.]+),\.\.\.", validator)
        if bounds:
            assert ours.lowest == float(bounds[1]), name
        if ours.default not in (None, "<required>"):
            ours.parse(name, ours.default)
        if kind == "topic" or (name in modes and ours.type != "class" and name != "listeners"):
            assert "".join("01"[takes(ours, name, text)] for text in VALUES) == taken, name


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "x"), ("retention.ms", "-2"), ("retention.ms", "9223372036854775808"), ("retention.ms", ""),
        ("cleanup.policy", "shred"), ("min.cleanable.dirty.ratio", "1.5"), ("preallocate", "perhaps"),
        ("compression.type", "rar"), ("compression.gzip.level", "0"), ("segment.bytes", "1e6"), ("retention.ms", "１"),
    ],
)  # fmt: skip
def test_wrong_values_are_refused(name: str, text: str) -> None:
    with pytest.raises(InvalidConfig, match=name):
        TOPIC[name].parse(name, text)


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("retention.ms", " 5 ", 5), ("retention.ms", "+5", 5), ("cleanup.policy", "compact, delete", ("compact", "delete")),
        ("compression.gzip.level", "-1", -1), ("min.cleanable.dirty.ratio", "0.25", 0.25), ("preallocate", "TRUE", True),
    ],
)  # fmt: skip
def test_right_values_are_understood(name: str, text: str, value: object) -> None:
    assert TOPIC[name].parse(name, text) == value
