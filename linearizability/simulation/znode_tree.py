"""The state of a simulated ZooKeeper: znodes, their versions, and what each operation does to them.

Source: ZooKeeper's programmer's guide; org.apache.zookeeper.server.DataTree, PrepRequestProcessor.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

from reference.zookeeper.operations import (
    ANY_VERSION,
    NO_SESSION,
    Check,
    Code,
    Create,
    Delete,
    GetChildren,
    GetData,
    Multi,
    Operation,
    Result,
    SessionId,
    SetData,
    Stat,
    Write,
    ZnodeVersion,
    Zxid,
)


@dataclass(slots=True)
class Znode:
    data: bytes
    czxid: Zxid
    version: int = 0
    mzxid: Zxid = 0
    owner: SessionId = NO_SESSION
    children: set[str] = field(default_factory=set[str])
    created: int = 0
    """How many children it ever had: the number of the next sequential one."""


class Refused(Exception):
    def __init__(self, code: Code) -> None:
        super().__init__(code.name)
        self.code = code


OnWrite = Callable[[str, "Znode | None"], None]
"""Takes a path and what is there now; None where the znode is gone."""


class ZnodeTree:
    """All znodes. Each write is one transaction; `changed` collects the paths that watches are for."""

    def __init__(self) -> None:
        self.zxid: Zxid = 0
        self._znodes: dict[str, Znode] = {"/": Znode(b"", 0)}
        self.changed: list[tuple[str, bool]] = []
        """Paths that a write touched, and whether it was their children."""
        self.on_write: OnWrite = lambda path, znode: None
        self.on_transaction: Callable[[SessionId], None] = lambda session: None
        """Called with the session of each transaction that was carried out, before its writes."""

    def find(self, path: str) -> Znode | None:
        return self._znodes.get(path)

    def children(self, path: str) -> list[str]:
        """The names of a znode's children; none where there is no such znode."""
        found = self._znodes.get(path)
        return [] if found is None else sorted(found.children)

    def carry_out(self, operation: Operation, session: SessionId) -> Result:
        """Carry out an operation and return its result."""
        match operation:
            case GetData(path):
                found = self._znodes.get(path)
                return Result(Code.NO_NODE) if found is None else Result(data=found.data, stat=_stat(found))
            case GetChildren(path):
                found = self._znodes.get(path)
                return Result(Code.NO_NODE) if found is None else Result(children=tuple(sorted(found.children)))
            case Multi(operations):
                return self._transact(operations, session)
            case _:
                return self._transact((operation,), session)

    def end_session(self, session: SessionId) -> None:
        """Delete the session's ephemeral znodes in one transaction."""
        self.zxid += 1
        for path in [path for path, each in self._znodes.items() if each.owner == session]:
            self._delete(path)
            self.on_write(path, None)

    def remove(self, path: str) -> None:
        """Delete a znode as an operator, in a session that is no broker's."""
        self.zxid += 1
        self._delete(path)
        self.on_write(path, None)

    def _transact(self, operations: tuple[Write, ...], session: SessionId) -> Result:
        before, changed = self._znodes, self.changed
        self._znodes = {**before}
        self.changed = [*changed]
        self.zxid += 1
        written: list[str] = []
        for place, operation in enumerate(operations):
            try:
                written.append(self._write(operation, session))
            except Refused as refused:
                self._znodes, self.changed = before, changed
                return Result(refused.code, failed=place)
        if written:
            self.on_transaction(session)
        for path in written:
            self.on_write(path, self._znodes.get(path))
        return Result()

    def _write(self, operation: Write, session: SessionId) -> str:
        match operation:
            case Create(path, data, ephemeral, sequential):
                return self._create(path, data, session if ephemeral else NO_SESSION, sequential)
            case SetData(path, data, version):
                znode = self._own(self._require(path, version), path)
                znode.data, znode.version, znode.mzxid = data, znode.version + 1, self.zxid
                self.changed.append((path, False))
            case Delete(path, version):
                if self._require(path, version).children:
                    raise Refused(Code.NOT_EMPTY)
                self._delete(path)
            case Check(path, version):
                self._require(path, version)
        return operation.path

    def _own(self, znode: Znode, path: str) -> Znode:
        """Return a copy of a znode to change, so that a failed transaction leaves the original."""
        copied = self._znodes[path] = copy.copy(znode)
        copied.children = {*znode.children}
        return copied

    def _require(self, path: str, version: ZnodeVersion) -> Znode:
        found = self._znodes.get(path)
        if found is None:
            raise Refused(Code.NO_NODE)
        if version not in (ANY_VERSION, found.version):
            raise Refused(Code.BAD_VERSION)
        return found

    def _create(self, path: str, data: bytes, owner: SessionId, sequential: bool) -> str:
        parent_path = _parent(path)
        found = self._znodes.get(parent_path)
        if found is None:
            raise Refused(Code.NO_NODE)
        parent = self._own(found, parent_path)
        if sequential:
            path = f"{path}{parent.created:010d}"
        if path in self._znodes:
            raise Refused(Code.NODE_EXISTS)
        parent.created += 1
        parent.children.add(path.rpartition("/")[2])
        self._znodes[path] = Znode(data, self.zxid, owner=owner, mzxid=self.zxid)
        self.changed += [(path, False), (parent_path, True)]
        return path

    def _delete(self, path: str) -> None:
        del self._znodes[path]
        parent_path = _parent(path)
        self._own(self._znodes[parent_path], parent_path).children.discard(path.rpartition("/")[2])
        self.changed += [(path, False), (parent_path, True)]


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"


def _stat(znode: Znode) -> Stat:
    return Stat(znode.czxid, ZnodeVersion(znode.version), znode.owner, znode.mzxid)
