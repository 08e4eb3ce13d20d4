"""FRM: a frame of an impossible size may be answered before the connection is closed, as SeaweedFS does."""

from __future__ import annotations

import socketserver
import struct
import threading
from collections.abc import Iterator

import pytest

from conformance.judging import judge
from conformance.requirement import catalogue
from conformance.results import Verdict
from conformance.subject import Subject

TOO_LARGE = 104_857_600


class Answering(socketserver.StreamRequestHandler):
    """Answers ApiVersions with an empty list, and an impossible size with an error, after which it closes."""

    def handle(self) -> None:
        while size := self.rfile.read(4):
            (length,) = struct.unpack(">i", size)
            if not 0 <= length <= TOO_LARGE:
                self.wfile.write(struct.pack(">iih", 6, 0, 10))
                return
            correlation_id = self.rfile.read(length)[4:8]
            self.wfile.write(struct.pack(">i4shi", 10, correlation_id, 0, 0))


@pytest.fixture
def port() -> Iterator[int]:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield server.server_address[1]
        server.shutdown()


@pytest.mark.parametrize("id", ["FRM-04", "FRM-05"])
def test_a_size_that_is_answered_and_closed_holds_nothing(id: str, port: int) -> None:
    judgement = judge(catalogue()[id], Subject([("127.0.0.1", port)], "4.3.1"))
    assert judgement.verdict is Verdict.TOLERATED, judgement.reason
    assert "was answered with 10 bytes before it was closed" in judgement.reason
