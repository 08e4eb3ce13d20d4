"""Counters of the shell, and the endpoint at which Prometheus reads them (only when it is asked for)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

MAX_HEAD_BYTES = 8192
READ_TIMEOUT_S = 5.0


@dataclass(slots=True)
class Metrics:
    """What the shell counts."""

    requests: int = 0
    bytes_in: int = 0
    connections_accepted: int = 0
    connections_closed: int = 0


Gauges = Callable[[], Iterable[tuple[str, str, float]]]
"""Gives (name, labels, value) for each gauge of the node."""


def exposition(metrics: Metrics, gauges: Gauges) -> str:
    """The text that Prometheus reads (exposition format 0.0.4)."""
    lines = [
        "# TYPE tidegauge_requests_total counter",
        f"tidegauge_requests_total {metrics.requests}",
        "# TYPE tidegauge_received_bytes_total counter",
        f"tidegauge_received_bytes_total {metrics.bytes_in}",
        "# TYPE tidegauge_connections_accepted_total counter",
        f"tidegauge_connections_accepted_total {metrics.connections_accepted}",
        "# TYPE tidegauge_connections gauge",
        f"tidegauge_connections {metrics.connections_accepted - metrics.connections_closed}",
    ]
    announced: set[str] = set()
    for name, labels, value in gauges():
        if name not in announced:
            announced.add(name)
            lines.append(f"# TYPE {name} gauge")
        lines.append(f"{name}{labels} {value:g}")
    return "\n".join(lines) + "\n"


async def serve_metrics(host: str, port: int, metrics: Metrics, gauges: Gauges) -> asyncio.Server:
    """Answer GET /metrics on an address. Errors: OSError when it cannot be bound."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_TIMEOUT_S)
            found = head.startswith(b"GET /metrics ")
            body = exposition(metrics, gauges).encode() if found else b"GET /metrics\n"
            status = "200 OK" if found else "404 Not Found"
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: text/plain; version=0.0.4\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, host, port, limit=MAX_HEAD_BYTES)
