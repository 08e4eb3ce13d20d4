"""The client of a real ZooKeeper: kazoo executes a node's effects, and its results become the node's inputs.

kazoo has threads of its own; its callbacks are passed to the event loop, and only there to the node. After a session expires
kazoo opens another by itself. Paths are below the chroot that zookeeper.connect may name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from kazoo.client import KazooClient, KazooState  # pyright: ignore[reportMissingTypeStubs]
from kazoo.exceptions import (  # pyright: ignore[reportMissingTypeStubs]
    BadVersionError,
    ConnectionClosedError,
    ConnectionLoss,
    KazooException,
    NodeExistsError,
    NoNodeError,
    NotEmptyError,
    RolledBackError,
    RuntimeInconsistency,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError  # pyright: ignore[reportMissingTypeStubs]
from kazoo.retry import KazooRetry  # pyright: ignore[reportMissingTypeStubs]

from reference.runtime.configuration import ConfigurationError
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import (
    NO_STAT,
    Answered,
    AskZooKeeper,
    Check,
    CloseSession,
    Code,
    ConnectionLost,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    OpenSession,
    Operation,
    Result,
    SessionConnected,
    SessionExpired,
    SetData,
    Stat,
    Watched,
    ZnodeVersion,
    ZooKeeperEffect,
    ZooKeeperEvent,
)

CONNECT_WITHIN_S = 15.0
FIRST_DELAY_S, MAX_DELAY_S = 0.1, 1.0
AGAIN_AFTER_S = 10.0
"""How long after a refusal everything is read again."""

CODES: dict[type[Exception], Code] = {
    NoNodeError: Code.NO_NODE,
    NodeExistsError: Code.NODE_EXISTS,
    BadVersionError: Code.BAD_VERSION,
    NotEmptyError: Code.NOT_EMPTY,
    SessionExpiredError: Code.SESSION_EXPIRED,
    ConnectionLoss: Code.CONNECTION_LOSS,
    ConnectionClosedError: Code.CONNECTION_LOSS,
    RolledBackError: Code.RUNTIME_INCONSISTENCY,
    RuntimeInconsistency: Code.RUNTIME_INCONSISTENCY,
}
"""After any other error the operation may have taken effect or not."""
NO_DATA = None
"""The data of a znode that Kafka creates without any. A broker of Kafka 3.9.2 that finds an empty producer id block, instead of
one without data, does not start."""


def cluster_id_of(hosts: str, timeout_ms: int, new_id: str) -> str:
    """The id of the cluster whose data a ZooKeeper holds; where it holds none, `new_id`, which is then written.

    Errors: ConfigurationError for a ZooKeeper that does not answer, or holds something else.
    """
    servers, has_chroot, chroot = hosts.partition("/")
    root, retry = has_chroot + chroot.rstrip("/"), KazooRetry(max_tries=-1, max_delay=1)
    # Without the chroot, which may not be there yet: Kafka makes it, and kazoo cannot make its own.
    client: Any = KazooClient(hosts=servers, timeout=timeout_ms / 1000, connection_retry=retry)
    try:
        client.start(timeout=CONNECT_WITHIN_S)
        # By each broker, and before the id: one that dies in between leaves nothing that the next one does not make.
        for path in ("/cluster", *znodes.PERSISTENT):
            with suppress(NodeExistsError):
                client.create(root + path, NO_DATA, makepath=True)
        try:
            client.create(root + znodes.CLUSTER_ID, znodes.encode_cluster_id(new_id))
        except NodeExistsError:
            return znodes.decode_cluster_id(znodes.CLUSTER_ID, client.get(root + znodes.CLUSTER_ID)[0])
        return new_id
    except KazooTimeoutError:
        raise ConfigurationError(f"zookeeper.connect={hosts}: no ZooKeeper answers there") from None
    except (KazooException, znodes.DamagedZnode) as error:
        raise ConfigurationError(f"zookeeper.connect={hosts}: {str(error).strip() or type(error).__name__}") from error
    finally:
        client.stop()
        client.close()


class KazooDriver:
    """Carries out a node's effects on ZooKeeper."""

    def __init__(self, hosts: str, timeout_ms: int, take: Callable[[ZooKeeperEvent], None], log: Logger) -> None:
        """`take` is called with each event, in the current event loop."""
        self._log = log
        self._take = take
        self._loop = asyncio.get_running_loop()
        self._client: Any = KazooClient(
            hosts=hosts,
            timeout=timeout_ms / 1000,
            connection_retry=KazooRetry(max_tries=-1, delay=FIRST_DELAY_S, max_delay=MAX_DELAY_S),
            command_retry=KazooRetry(max_tries=0),
        )
        self._client.add_listener(self._on_state)
        self._is_closing = False
        self._again: asyncio.TimerHandle | None = None

    def carry_out(self, effect: ZooKeeperEffect) -> None:
        """Begin an effect; its event follows."""
        match effect:
            case OpenSession():
                self._client.start_async()
            case CloseSession():
                self._is_closing = True
                self._client.stop()
            case AskZooKeeper(number, operation):
                self._ask(number, operation)

    def close(self) -> None:
        self._is_closing = True
        self._client.stop()
        self._client.close()

    def _post(self, event: ZooKeeperEvent) -> None:
        if not self._is_closing:
            self._loop.call_soon_threadsafe(self._take, event)

    def _on_state(self, state: str) -> None:
        if state == KazooState.CONNECTED:
            self._post(SessionConnected(self._client.client_id[0]))
        elif state == KazooState.SUSPENDED:
            self._post(ConnectionLost())
        else:
            self._post(SessionExpired())

    # ---- operations

    def _ask(self, number: int, operation: Operation) -> None:
        def answered(result: Any) -> None:
            if result.exception is not None and not self._is_closing:
                self._loop.call_soon_threadsafe(self._take_refusal, operation, result.exception)
            self._post(Answered(number, _result(operation, result)))

        try:
            self._begin(operation).rawlink(answered)
        except (KazooException, OSError) as error:
            self._post(Answered(number, Result(_code(error))))

    def _take_refusal(self, operation: Operation, error: BaseException) -> None:
        """Log an error that is no result of its own, and soon let the node begin as on a new connection: it takes the error for a
        lost one, and another may never come. A broker that is refused a read or its znode would not be registered."""
        if isinstance(error, tuple(CODES)):
            return
        # Without the data, which may be secret.
        what = f"{type(operation).__name__} {getattr(operation, 'path', '')}".rstrip()
        self._log("error", f"ZooKeeper does not carry out {what}: {type(error).__name__}")
        if self._again is None:
            self._again = self._loop.call_later(AGAIN_AFTER_S, self._begin_again)

    def _begin_again(self) -> None:
        self._again = None
        if self._client.state == KazooState.CONNECTED:
            self._on_state(KazooState.SUSPENDED)
            self._on_state(KazooState.CONNECTED)

    def _begin(self, operation: Operation) -> Any:
        client = self._client
        match operation:
            case Create(path, data, ephemeral, sequential):
                return client.create_async(path, data or NO_DATA, ephemeral=ephemeral, sequence=sequential)
            case SetData(path, data, version):
                return client.set_async(path, data, version)
            case Delete(path, version):
                return client.delete_async(path, version)
            case GetData(path, watch):
                if watch:
                    client.exists_async(path, self._on_watch)  # also of what is not there; it is sent before the other
                return client.get_async(path)
            case GetChildren(path, watch):
                return client.get_children_async(path, self._on_watch if watch else None)
            case Multi(operations):
                transaction = client.transaction()
                for each in operations:
                    _add(transaction, each)
                return transaction.commit_async()

    def _on_watch(self, event: Any) -> None:
        if event.path:
            self._post(Watched(event.path))


def _add(transaction: Any, operation: Create | SetData | Delete | Check) -> None:
    match operation:
        case Create(path, data, ephemeral, sequential):
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)
            if not data:  # `create` of a transaction refuses NO_DATA
                transaction.operations[-1] = transaction.operations[-1]._replace(data=NO_DATA)
        case SetData(path, data, version):
            transaction.set_data(path, data, version)
        case Delete(path, version):
            transaction.delete(path, version)
        case Check(path, version):
            transaction.check(path, version)


def _result(operation: Operation, answer: Any) -> Result:
    if answer.exception is not None:
        return Result(_code(answer.exception))
    value = answer.value
    match operation:
        case GetData():
            return Result(data=value[0] or b"", stat=_stat(value[1]))
        case GetChildren():
            return Result(children=tuple(sorted(value)))
        case Multi():
            return _multi_result(value)
        case _:
            return Result()


def _multi_result(values: list[Any]) -> Result:
    """The result of a transaction; names the first operation that failed for its own reason."""
    failed = [(place, _code(each)) for place, each in enumerate(values) if isinstance(each, Exception)]
    if not failed:
        return Result()
    place, code = next((each for each in failed if each[1] != Code.RUNTIME_INCONSISTENCY), failed[0])
    return Result(code, failed=place)


def _code(error: BaseException) -> Code:
    return next((code for kind, code in CODES.items() if isinstance(error, kind)), Code.CONNECTION_LOSS)


def _stat(stat: Any) -> Stat:
    if stat is None:
        return NO_STAT
    return Stat(stat.czxid, ZnodeVersion(stat.version), stat.ephemeralOwner, stat.mzxid)
