"""What the metrics endpoint writes is what the library's own parser reads, to the last digit."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families

from reference.runtime.exposition import NodeCollector, page
from reference.runtime.metrics import Metrics

REQUESTS = 123_456_789_012_345
END = 987_654_321


def node() -> Any:
    log = SimpleNamespace(log_end_offset=END, size_bytes=7)
    partitions = {("t", index): SimpleNamespace(high_watermark=END - index, log=log) for index in range(2)}
    fetching = SimpleNamespace(sessions=SimpleNamespace(sessions={}))
    purgatories = SimpleNamespace(fetches=[], produces=[1])
    return SimpleNamespace(partitions=partitions, purgatories=purgatories, fetching=fetching)


def test_each_number_is_read_to_its_last_digit() -> None:
    registry = CollectorRegistry()
    registry.register(NodeCollector(Metrics(REQUESTS, 2, 5, 3), node()))
    status, content_type, body = page(b"GET /metrics HTTP/1.1\r\n\r\n", registry)
    assert status == "200 OK" and content_type.startswith("text/plain; version=0.0.4")
    families = [*text_string_to_metric_families(body.decode())]
    samples = {(each.name, each.labels.get("partition")): each.value for one in families for each in one.samples}
    assert samples["tidegauge_requests_total", None] == REQUESTS
    assert samples["tidegauge_connections", None] == 2
    assert samples["tidegauge_parked_produces", None] == 1
    assert [samples["tidegauge_high_watermark", index] for index in "01"] == [END, END - 1]
    assert {each.type for each in families} == {"counter", "gauge"}


def test_there_is_one_page() -> None:
    assert page(b"GET / HTTP/1.1\r\n\r\n", CollectorRegistry()).status == "404 Not Found"
