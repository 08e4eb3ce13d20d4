"""What a client asks of ZooKeeper, and what it receives.

A session's answers come in the order of its requests. A watch is triggered once, and comes before the answer to any later
request that shows the change. Watches end with the connection: after each `SessionConnected` everything is read again.
Source: ZooKeeper's programmer's guide; org.apache.zookeeper.ZooDefs and KeeperException.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NewType, TypeAlias

SessionId: TypeAlias = int
Zxid: TypeAlias = int
"""The number of a transaction of ZooKeeper; that of a broker's registration is its broker epoch (KIP-380)."""

ZnodeVersion = NewType("ZnodeVersion", int)
ANY_VERSION = ZnodeVersion(-1)
NO_SESSION: SessionId = 0


class Code(IntEnum):
    """An error, by ZooKeeper's number."""

    OK = 0
    RUNTIME_INCONSISTENCY = -2
    """Of an operation of a multi: it was not carried out, because another one failed."""
    CONNECTION_LOSS = -4
    """Whether the operation was carried out is unknown."""
    NO_NODE = -101
    BAD_VERSION = -103
    NODE_EXISTS = -110
    NOT_EMPTY = -111
    SESSION_EXPIRED = -112


UNKNOWN_OUTCOMES = frozenset({Code.CONNECTION_LOSS, Code.SESSION_EXPIRED})


@dataclass(frozen=True, slots=True)
class Create:
    path: str
    data: bytes
    ephemeral: bool = False
    sequential: bool = False


@dataclass(frozen=True, slots=True)
class SetData:
    path: str
    data: bytes
    version: ZnodeVersion = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Delete:
    path: str
    version: ZnodeVersion = ANY_VERSION


@dataclass(frozen=True, slots=True)
class Check:
    """Fails unless the znode has this version; only within a multi."""

    path: str
    version: ZnodeVersion


@dataclass(frozen=True, slots=True)
class GetData:
    path: str
    watch: bool = False
    """Also where the znode does not exist: then the watch is for its creation (ZooKeeper's `exists`)."""


@dataclass(frozen=True, slots=True)
class GetChildren:
    path: str
    watch: bool = False


Write = Create | SetData | Delete | Check


@dataclass(frozen=True, slots=True)
class Multi:
    """All of it, or nothing."""

    operations: tuple[Write, ...]


Operation = Create | SetData | Delete | GetData | GetChildren | Multi


@dataclass(frozen=True, slots=True)
class Stat:
    czxid: Zxid
    """The transaction that created the znode."""
    version: ZnodeVersion
    ephemeral_owner: SessionId = NO_SESSION
    mzxid: Zxid = -1
    """The transaction that wrote its data last."""


NO_STAT = Stat(-1, ANY_VERSION)


@dataclass(frozen=True, slots=True)
class Result:
    """An answer; what the operation does not give keeps its default."""

    code: Code = Code.OK
    data: bytes = b""
    stat: Stat = NO_STAT
    children: tuple[str, ...] = ()
    failed: int = -1
    """Of a multi that failed: the place of the operation that was refused; -1 where it is unknown."""


# ---- effects


@dataclass(frozen=True, slots=True)
class OpenSession:
    """Connect, and go on connecting until there is a session."""


@dataclass(frozen=True, slots=True)
class CloseSession:
    """End the session: its ephemeral znodes vanish at once."""


@dataclass(frozen=True, slots=True)
class AskZooKeeper:
    """Carry out an operation in the session that there is, after those that were asked before."""

    number: int
    operation: Operation


ZooKeeperEffect = OpenSession | CloseSession | AskZooKeeper


# ---- inputs


@dataclass(frozen=True, slots=True)
class SessionConnected:
    """A connection stands, in a new session or in the one of before."""

    session: SessionId


@dataclass(frozen=True, slots=True)
class ConnectionLost:
    """The connection is gone; the session may go on. What was asked and not answered may have been carried out or not."""


@dataclass(frozen=True, slots=True)
class SessionExpired:
    """The session is over, and its ephemeral znodes are gone: the driver connects in a new one by itself."""


@dataclass(frozen=True, slots=True)
class Answered:
    number: int
    result: Result


@dataclass(frozen=True, slots=True)
class Watched:
    """A watch was triggered."""

    path: str


ZooKeeperEvent = SessionConnected | ConnectionLost | SessionExpired | Answered | Watched
