"""One broker process, from its configuration file to its end.

Start: configuration, log directories (`folders`), listeners, node. End: SIGTERM
and SIGINT stop cleanly; a second one ends the process at once, as SIGKILL would. The end of standard input stops cleanly, too,
where that was asked for.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import logging
import platform
import random
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, Any

from reference.node.identity import Identity
from reference.node.node import Node
from reference.node.zookeeper.node import ZooKeeperNode
from reference.protocol.codec import CodecError
from reference.protocol.errors import KafkaError
from reference.protocol.records.errors import RecordsError
from reference.runtime.clock import Clock
from reference.runtime.configuration import ConfigurationError, ServerConfiguration, remarks
from reference.runtime.descriptors import check_limit, raise_file_limit, shares_of
from reference.runtime.folders import lock_folders, log_manager, open_folders
from reference.runtime.formatting import controller_endpoints
from reference.runtime.limited_log import LimitedHandler
from reference.runtime.metrics import Metrics
from reference.runtime.pypy import collect_in_steps, compile_early
from reference.runtime.server import BoundListener, Server, advertised_endpoints, bind_listeners, bind_metrics
from reference.security.errors import WrongSecurity
from reference.storage.errors import CorruptFile, LogError


def run_broker(configuration: ServerConfiguration) -> None:
    """Serve until a signal ends it.

    Errors: ConfigurationError for an address in use, or a folder that is locked, damaged or another node's.
    """
    compile_early()
    logger = make_logger(configuration)
    for remark in remarks(configuration):
        logger.warning("%s", remark)
    with contextlib.ExitStack() as open_files:
        folders = lock_folders(configuration, open_files)
        listeners, metrics_listener = bind_listeners(configuration), bind_metrics(configuration)
        cluster_id, directories = open_folders(configuration, folders, logger, _id_of_cluster(configuration))
        say = speaker(logger)
        limit = raise_file_limit()
        say(*check_limit(limit, [*folders]))
        identity = Identity(
            node=configuration.node_id,
            cluster_id=cluster_id,
            incarnation=uuid.uuid4(),
            endpoints=advertised_endpoints(configuration, listeners),
            rack=configuration.properties.get("broker.rack"),
            controller_endpoints=controller_endpoints(configuration, {each.name: each.port for each in listeners}),
            bootstrap=tuple(configuration.other_controllers),
        )
        clock = Clock()
        try:
            kind = Node if configuration.zookeeper is None else ZooKeeperNode
            node = kind(
                identity,
                configuration.properties,
                log_manager(configuration, directories, say, shares_of(limit, len(directories))),
                random.SystemRandom(),  # what it draws, clients must not guess: nonces, ids of members and sessions
                clock.now(),
                log=say,
                tracer=_tracer(configuration.trace_file, open_files),
            )
        except (CorruptFile, CodecError, RecordsError, LogError, KafkaError, OSError) as error:
            raise ConfigurationError(f"{configuration.folder} cannot be served: {error}") from error
        asyncio.run(_serve(configuration, node, listeners, metrics_listener, clock, logger))


def _id_of_cluster(configuration: ServerConfiguration) -> Callable[[str], str]:
    """A function from the folder's cluster id to the cluster's, which ZooKeeper may decide. Errors: ConfigurationError."""
    hosts = configuration.zookeeper
    if hosts is None:
        return str
    try:
        from reference.runtime.zookeeper import cluster_id_of
    except ImportError as error:
        raise ConfigurationError("zookeeper.connect needs kazoo: install tidegauge[zookeeper]") from error
    return lambda known: cluster_id_of(hosts, configuration.zookeeper_session_ms, known)


def _tracer(path: Path | None, open_files: contextlib.ExitStack) -> Any:
    """Write each specification-level step as a JSON line; None where no trace is asked for.

    Each has a number in this incarnation and the time of the machine's monotonic clock in microseconds, which is one for all
    nodes of a machine: `spec/merging.py` puts their traces in one order.
    """
    if path is None:
        return None
    file: IO[str] = open_files.enter_context(path.open("a", buffering=1, encoding="utf-8"))
    numbers = itertools.count(1)

    def trace(action: str, arguments: Mapping[str, Any]) -> None:
        row = {"seq": next(numbers), "at": time.monotonic_ns() // 1000, "action": action, **arguments}
        file.write(json.dumps(row, default=str) + "\n")

    return trace


async def _serve(
    configuration: ServerConfiguration,
    node: Node,
    listeners: list[Any],
    metrics_listener: BoundListener | None,
    clock: Clock,
    logger: logging.Logger,
) -> None:
    loop = asyncio.get_running_loop()
    try:
        server = Server(node, listeners, Metrics(), node.log, clock)
    except WrongSecurity as error:
        raise ConfigurationError(str(error)) from error
    if configuration.zookeeper is not None and isinstance(node, ZooKeeperNode):
        from reference.runtime.zookeeper import KazooDriver

        driver = KazooDriver(configuration.zookeeper, configuration.zookeeper_session_ms, server.on_zookeeper, node.log)
        server.attach(driver, node)

    def on_signal(number: int) -> None:
        logger.info("%s: stopping", signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
        loop.remove_signal_handler(number)
        server.stop()

    collect_in_steps(loop)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    metrics = None
    if metrics_listener is not None:
        from reference.runtime.exposition import serve_metrics

        metrics = await serve_metrics(metrics_listener.socket, server.metrics, node)
        host = metrics_listener.socket.getsockname()[0]
        where = f"[{host}]" if ":" in host else host
        logger.info("metrics at http://%s:%d/metrics", where, metrics_listener.port)
    for listener in listeners:
        listener.listen()
        logger.info("listening on %s://%s:%d", listener.name, listener.socket.getsockname()[0], listener.port)
    logger.info(
        "node %d of cluster %s serves %d partitions, executed by %s %s",
        node.id,
        node.cluster_id,
        len(node.partitions),
        platform.python_implementation(),
        platform.python_version(),
    )
    try:
        await server.run()
    finally:
        if metrics is not None:
            metrics.close()
    logger.info("stopped")


def speaker(logger: logging.Logger) -> Callable[[str, str], None]:
    """The log function of node and server: takes a level's name and a sentence."""
    levels = logging.getLevelNamesMapping()
    return lambda level, message: logger.log(levels[level.upper()], "%s", message)


class JsonFormatter(logging.Formatter):
    """One JSON object a line: time, level, message."""

    def format(self, record: logging.LogRecord) -> str:
        fields = {"time": self.formatTime(record), "level": record.levelname.lower(), "message": record.getMessage()}
        return json.dumps(fields)


def make_logger(configuration: ServerConfiguration) -> logging.Logger:
    """Log to standard error, as text or as JSON lines."""
    handler = LimitedHandler(sys.stderr)
    text = logging.Formatter("%(asctime)s %(levelname)s %(message)s")
    handler.setFormatter(JsonFormatter() if configuration.log_format == "json" else text)
    logger = logging.getLogger("tidegauge.broker")
    logger.handlers = [handler]
    logger.setLevel(logging.INFO)
    logger.propagate = False
    return logger
