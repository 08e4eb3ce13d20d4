"""The consumer's claims: in which generation it holds its partitions, which the library reports only in its own notation."""

import threading
from types import SimpleNamespace

import pytest
from confluent_kafka import Consumer

from linearizability.history.recorder import Recorder
from linearizability.workload import consumer as consumer_module
from linearizability.workload.consumer import Incarnation, generation_of


def test_a_consumer_that_has_not_joined_has_no_generation():
    consumer = Consumer({"bootstrap.servers": "", "group.id": "g"})
    metadata = consumer.consumer_group_metadata()
    assert metadata is not None and metadata.startswith(b"CGMDv2:"), "another librdkafka: the notation has changed"
    assert generation_of(metadata) == -1
    consumer.close()


@pytest.mark.parametrize(
    ("metadata", "generation"),
    [
        (b"CGMDv2:\x07\x00\x00\x00g\0m\0", 7),
        (b"CGMDv9:\x07\x00\x00\x00g\0m\0", -1),
        (b"CGMDv2:\x07", -1),
        (b"", -1),
        (None, -1),
    ],
)
def test_the_generation_stands_behind_the_word(metadata, generation):
    assert generation_of(metadata) == generation


@pytest.mark.parametrize("hangs", [False, True])
def test_a_close_that_does_not_end_is_left_behind_and_the_history_is_whole(tmp_path, monkeypatch, hangs):
    monkeypatch.setattr(consumer_module, "CLOSE_WITHIN_S", 0.05 if hangs else 20)
    ended = threading.Event()
    client_run = Incarnation.__new__(Incarnation)
    client_run.consumer = SimpleNamespace(close=ended.wait if hangs else ended.set)  # type: ignore[assignment]
    client_run.client_run = SimpleNamespace(hung=False)  # type: ignore[assignment]
    with Recorder.open(tmp_path, process=1000) as client_run.recorder:
        client_run._close()
    assert (client_run.client_run.hung, ended.is_set()) == (hangs, not hangs)
    lines = (tmp_path / "history-01000.jsonl").read_text().splitlines()
    assert ("close did not end" in lines[-2]) == hangs and '"type":"end"' in lines[-1]
    ended.set()
