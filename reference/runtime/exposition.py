"""The endpoint at which Prometheus reads the metrics: the shell's counters and the node's gauges.

The library writes the format (0.0.4). It does not serve it: its server runs in a thread of its own, and a node's state is read in
the event loop's. Imported only where `tidegauge.metrics.listener` is set.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterator
from typing import NamedTuple

from prometheus_client import CollectorRegistry, Metric
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from reference.node.node import Node
from reference.runtime.metrics import Metrics

MAX_HEAD_BYTES = 8192
READ_TIMEOUT_S = 5.0


class NodeCollector(Collector):
    """Reads the metrics of a node and its shell when Prometheus asks for them."""

    def __init__(self, metrics: Metrics, node: Node) -> None:
        self._metrics = metrics
        self._node = node

    def collect(self) -> Iterator[Metric]:
        metrics, node = self._metrics, self._node
        connections = metrics.connections_accepted - metrics.connections_closed
        yield CounterMetricFamily("tidegauge_requests", "Requests received.", metrics.requests)
        yield CounterMetricFamily("tidegauge_received_bytes", "Bytes of requests received.", metrics.bytes_in)
        yield CounterMetricFamily("tidegauge_connections_accepted", "Connections.", metrics.connections_accepted)
        yield GaugeMetricFamily("tidegauge_connections", "Open connections.", connections)
        yield GaugeMetricFamily("tidegauge_partitions", "Partitions with a replica here.", len(node.partitions))
        yield GaugeMetricFamily("tidegauge_parked_fetches", "Fetches that wait.", len(node.purgatories.fetches))
        yield GaugeMetricFamily(
            "tidegauge_parked_produces", "Produce requests that wait.", len(node.purgatories.produces)
        )
        yield GaugeMetricFamily("tidegauge_fetch_sessions", "Fetch sessions.", len(node.fetching.sessions.sessions))
        yield from self._of_partitions()

    def _of_partitions(self) -> Iterator[Metric]:
        labels = ("topic", "partition")
        high_watermark = GaugeMetricFamily("tidegauge_high_watermark", "High watermark.", labels=labels)
        log_end_offset = GaugeMetricFamily("tidegauge_log_end_offset", "Log end offset.", labels=labels)
        size = GaugeMetricFamily("tidegauge_log_size_bytes", "Size of the segments.", labels=labels)
        for (topic, index), partition in sorted(self._node.partitions.items()):
            values = (topic, str(index))
            high_watermark.add_metric(values, partition.high_watermark)
            log_end_offset.add_metric(values, partition.log.log_end_offset)
            size.add_metric(values, partition.log.size_bytes)
        yield from (high_watermark, log_end_offset, size)


class Page(NamedTuple):
    status: str
    content_type: str
    body: bytes


def page(head: bytes, registry: CollectorRegistry) -> Page:
    """The response to an HTTP request with this head."""
    if head.startswith(b"GET /metrics "):
        return Page("200 OK", CONTENT_TYPE_PLAIN_0_0_4, generate_latest(registry))
    return Page("404 Not Found", "text/plain", b"GET /metrics\n")


async def serve_metrics(listening: socket.socket, metrics: Metrics, node: Node) -> asyncio.Server:
    """Answer GET /metrics on a listening socket."""
    registry = CollectorRegistry()
    registry.register(NodeCollector(metrics, node))

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), READ_TIMEOUT_S)
            status, content_type, body = page(head, registry)
            writer.write(
                f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\n"
                f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n".encode()
                + body
            )
            await writer.drain()
        except (TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, OSError):
            pass
        finally:
            writer.close()

    return await asyncio.start_server(answer, sock=listening, limit=MAX_HEAD_BYTES)
