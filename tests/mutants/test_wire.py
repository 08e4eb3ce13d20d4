"""Lies on the wire: the tables match the protocol and the catalogue, the proxy plants lies, and the suite finds them."""

from __future__ import annotations

import json
import random
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance import liars
from conformance.requirement import AREAS, catalogue
from conformance.results import INTERRUPTED, Judgement, Run, TargetRecord, Verdict
from linearizability.bench.suite import STORE, Store, Trial, Worker, fingerprint, selection, summary, try_lie
from linearizability.mutants.wire.chance import Chance
from linearizability.mutants.wire.lies import LIES
from linearizability.mutants.wire.proxy import NAMING_NODES, Proxy, Tamper, names_nodes
from linearizability.mutants.wire.rewriting import (
    Change,
    Liar,
    Lie,
    closed,
    cut,
    errors,
    held_back,
    put,
    sent_twice,
    twice,
    when,
)
from linearizability.targets.loop import Loop
from linearizability.targets.target import Node
from reference.protocol.apis import APIS
from reference.protocol.codec import CodecError
from reference.protocol.frames import decode_request, decode_response, encode_request, encode_response
from reference.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tests.protocol.frame import frame_of

BY_NAME = {api.name: api for api in APIS.values()}
ROOT = Path(__file__).parents[2]


def test_there_are_two_hundred_lies_and_each_names_its_requirements() -> None:
    assert len(LIES) >= 200
    for lie in LIES.values():
        assert not lie.api or lie.api in BY_NAME, lie.name
        assert all(id in AREAS or id in catalogue() for id in lie.accusers), (lie.name, lie.accusers)
        assert lie.answer or lie.ask or lie.raw or lie.end, lie.name


def test_every_api_of_the_suite_that_clients_use_has_lies() -> None:
    used = {api for used in Store.read(STORE).usage.values() for api in used.apis}
    unlied = used - {lie.api for lie in LIES.values()}
    assert unlied <= NOT_LIED_ABOUT, sorted(unlied)


NOT_LIED_ABOUT = {
    "AlterPartitionReassignments", "ListPartitionReassignments", "ElectLeaders", "DescribeLogDirs", "AlterReplicaLogDirs",
    "UpdateFeatures", "ListConfigResources", "DescribeQuorum",
    "DescribeDelegationToken", "UnregisterBroker", "GetTelemetrySubscriptions", "ShareGroupHeartbeat",
    "ShareGroupDescribe", "AddRaftVoter", "RemoveRaftVoter",
}  # fmt: skip
"""Sent only by API-05, which sends every API, or by requirements with several nodes, for which there are no lies yet."""


def test_the_proxy_rewrites_addresses_wherever_answers_have_them() -> None:
    used = {api for used in Store.read(STORE).usage.values() for api in used.apis}
    naming = {api.name for api in APIS.values() if names_nodes(api.response)}
    assert naming & used <= {*NAMING_NODES}


# ---- the proxy


METADATA, VERSION = MetadataRequest.KEY, 8


class Broker(threading.Thread):
    """Answers every request with Metadata of one broker at its own address.

    `asked` are the correlation ids of requests, `unread` the bytes that were no request.
    """

    def __init__(self) -> None:
        super().__init__(daemon=True)
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self.listener.getsockname()[1]
        self.asked: list[int] = []
        self.unread = b""

    def run(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as stream:
            while size := stream.read(4):
                length = struct.unpack(">i", size)[0] if len(size) == 4 else -1
                frame = stream.read(length)
                try:
                    header, *_ = decode_request(frame)
                except CodecError:
                    self.unread += size + frame
                    return
                self.asked.append(header.correlation_id)
                broker = MetadataResponse.MetadataResponseBroker(node_id=1, host="127.0.0.1", port=self.port)
                topic = MetadataResponse.MetadataResponseTopic(error_code=3, name=str(header.correlation_id))
                body = MetadataResponse(brokers=[broker], topics=[topic], cluster_id="c")
                connection.sendall(frame_of(encode_response(METADATA, VERSION, header.correlation_id, body)))


@pytest.fixture
def broker() -> Iterator[Broker]:
    thread = Broker()
    thread.start()
    yield thread
    thread.listener.close()


@pytest.fixture
def loop() -> Iterator[Loop]:
    with Loop() as found:
        yield found


def exchange(loop: Loop, broker: Broker, tamper: Tamper | None, *requests: bytes) -> list[bytes]:
    """Send requests through a proxy and end the stream. Return the frames that come back until the proxy closes."""
    with (
        Proxy(loop, [Node(1, "127.0.0.1", broker.port)], tamper) as proxy,
        socket.create_connection((proxy.nodes[0].host, proxy.nodes[0].port), 10) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.settimeout(10)
        connection.sendall(b"".join(requests))
        connection.shutdown(socket.SHUT_WR)
        frames: list[bytes] = []
        while len(size := stream.read(4)) == 4:
            frames.append(stream.read(struct.unpack(">i", size)[0]))
        return frames


def asking(correlation_id: int) -> bytes:
    return encode_request(METADATA, VERSION, correlation_id, "client", MetadataRequest(topics=[]))


def read(frame: bytes) -> tuple[int, MetadataResponse]:
    correlation_id, message = decode_response(METADATA, VERSION, frame)
    assert isinstance(message, MetadataResponse)
    return correlation_id, message


def lying(answer: Change | None = None, ask: Change | None = None) -> Liar:
    return Liar(Lie("a-lie", "Metadata", "a lie", "MET-01", answer=answer, ask=ask))


def test_without_a_lie_clients_stay_on_the_proxy(loop: Loop, broker: Broker) -> None:
    (frame,) = exchange(loop, broker, None, asking(7))
    correlation_id, message = read(frame)
    assert correlation_id == 7
    assert message.brokers[0].port != broker.port
    assert message.topics[0].error_code == 3


def test_bytes_that_are_no_request_pass(loop: Loop, broker: Broker) -> None:
    for garbage, requests in ((b"\xff\xff\xff\xff and more", [7]), (b"\x00\x00\x00\x09 nine?", []), (b"\x00\x00", [])):
        for liar in (None, lying(ask=put("topics", None))):
            broker.unread = b""
            frames = exchange(loop, broker, liar, *map(asking, requests), garbage)
            assert [read(frame)[0] for frame in frames] == requests
            assert broker.unread == garbage


def test_a_field_is_rewritten_in_answers_of_its_versions_only(loop: Loop, broker: Broker) -> None:
    (frame,) = exchange(loop, broker, lying(errors(3, 5)), asking(7))
    assert read(frame)[1].topics[0].error_code == 5
    other = Liar(Lie("a-lie", "Metadata", "a lie", "MET-01", answer=errors(3, 5), versions="9+"))
    (frame,) = exchange(loop, broker, other, asking(7))
    assert read(frame)[1].topics[0].error_code == 3


def test_answers_are_doubled_cut_swapped_and_closed(loop: Loop, broker: Broker) -> None:
    first, second = exchange(loop, broker, lying(twice), asking(7))
    assert first == second
    (whole,), (shorter,) = exchange(loop, broker, None, asking(7)), exchange(loop, broker, lying(cut(1)), asking(7))
    assert len(shorter) == len(whole) - 1
    swapped = exchange(loop, broker, lying(when(lambda x, m: x.correlation_id == 7, held_back)), asking(7), asking(8))
    assert [read(frame)[0] for frame in swapped] == [8, 7]
    assert exchange(loop, broker, lying(closed), asking(7), asking(8)) == []


def test_a_request_is_sent_twice_and_answered_once(loop: Loop, broker: Broker) -> None:
    frames = exchange(loop, broker, lying(ask=sent_twice), asking(7), asking(8))
    assert [read(frame)[0] for frame in frames] == [7, 8]
    assert [id & 0xFF for id in broker.asked] == [7, 7, 8, 8]


def test_rewritings_by_chance_are_those_of_their_seed(loop: Loop, broker: Broker) -> None:
    requests = [asking(number) for number in range(60)]
    once, again = Chance(11), Chance(11)
    for chance in (once, again):
        exchange(loop, broker, chance, *requests)
    assert once.done and [what.split("=")[0] for what in once.done] == [what.split("=")[0] for what in again.done]


# ---- the bench


def test_a_lie_is_judged_by_its_requirements_and_by_bystanders() -> None:
    usage = Store.read(STORE).usage
    with_bystanders = 0
    for lie in random.Random(1).sample([*LIES.values()], 40):
        chosen = selection(lie, usage, 0)
        assert {id for id in lie.accusers if len(id) > 3} <= {*chosen}
        with_bystanders += any(id not in lie.accusers and id[:3] not in lie.accusers for id in chosen)
        assert chosen == selection(lie, usage, 0)
        assert len(fingerprint(lie)) == 12
    assert with_bystanders > 30


def test_the_store_is_read_as_it_was_written(tmp_path: Path) -> None:
    usage = Store.read(STORE).usage
    trials = {"watermark-plus-one": Trial(["FET-01"], ["FET-02"], 1, 9, {"FET-03": "KeyError: 1"}, False, 1.5, "f")}
    kept = Store(usage, trials, {"0": {"rewritten": 7}})
    kept.write(tmp_path / "suite.json")
    assert Store.read(tmp_path / "suite.json") == kept
    totals = summary(trials, LIES)
    assert (totals["planted"], totals["found_by_the_right_one"], totals["bystanders_accused"]) == (1, 1, 1)
    assert totals["engine_errors"] == {"watermark-plus-one": {"FET-03": "KeyError: 1"}}


def test_the_suite_finds_a_lie_and_accuses_no_bystander() -> None:
    usage = Store.read(STORE).usage
    few = {id: usage[id] for id in ("LOF-16", "LOF-14", "MET-01")}
    with Worker("reference:1") as worker:
        trial = try_lie(LIES["earliest-has-timestamp"], few, worker, "reference:1", 0, whole=False)
        lines = worker.judge(LIES["complete-is-empty"], ["TXV-14", "TXN-08"])
        unlisted = worker.judge(LIES["config-missing"], ["CFG-01", "CFG-04"])
    assert trial.found_by == ["LOF-16"], trial
    assert not trial.bystanders and not trial.engine_errors, trial
    assert {line["verdict"] for line in lines} == {"pass"}, (
        lines
    )  # a log is read from its start, which DeleteRecords moved
    assert {line["id"]: line["verdict"] for line in unlisted}["CFG-04"] == "blocked", unlisted


@pytest.mark.slow
def test_a_log_start_that_only_a_fetch_knows_is_no_failure_of_retention() -> None:
    with Worker("reference:1") as worker:
        lines = worker.judge(LIES["earliest-is-0"], ["LOF-01", "RET-05"])
    assert {line["id"]: line["verdict"] for line in lines if line["id"][:3] in ("LOF", "RET")} == {
        "LOF-01": "fail",
        "RET-05": "blocked",
    }, lines


def test_a_run_that_a_signal_ended_has_no_verdict_about_a_lie(
    tmp_path: Path, loop: Loop, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed = Judgement(requirement=catalogue()["MET-01"].requirement, verdict=Verdict.FAIL)
    unreached = Judgement(
        requirement=catalogue()["MET-02"].requirement, verdict=Verdict.NOT_JUDGED, reason=INTERRUPTED, unreached=True
    )
    report = Run(
        suite_version="1",
        target=TargetRecord(spec="exec:a-lie"),
        selection="",
        started_at="",
        judgements=[failed, unreached],
    )
    report.sum_up(target_broke=INTERRUPTED)
    monkeypatch.setattr(liars, "run", lambda _: report)
    lines = liars.judged("no-cluster-id", ["MET-01", "MET-02"], liars.Brokers("reference:1", tmp_path, loop))
    assert lines[-1] == {"id": "", "verdict": Verdict.ENGINE_ERROR, "reason": INTERRUPTED}


def test_rewritten_answers_break_nothing_of_the_suite() -> None:
    """A sample; the whole is `tidegauge bench suite --rewritings 5000`."""
    command = [sys.executable, "-m", "conformance.rewritten", "--first", "0", "--trials", "25", "--jobs", "20"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    *trials, totals = [json.loads(line) for line in done.stdout.splitlines()]
    assert totals["rewritten"] > 20, totals
    assert [trial for trial in trials if trial["verdict"] in ("engine error", "hangs") or trial["overran"]] == []
