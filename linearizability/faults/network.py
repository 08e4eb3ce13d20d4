"""A network of our own: each node in a network namespace, all on one bridge, without root.

Everything runs in a *sandbox*: the hunt runs itself again under `unshare`, in user, network, mount and process namespaces of
its own (`sandbox`). When the sandbox's first process ends, however that comes, the kernel removes all of it: processes,
namespaces, interfaces. Nothing is left to clean up.

    sandbox           bridge 127.77.0.254, clients, nemesis
      host 1          eth0   127.77.0.1
      host 2          eth0   127.77.0.2  ...

Addresses are of 127/8, so that a program that ends up in the wrong namespace gets a refusal and sends nothing off the
machine; the kernel routes them with route_localnet, and `lo` is narrowed to 127.0.0.1.

A node's line is made slow or lossy by a process in the middle (`relay`): the node's end of the bridge is taken off it, and a
pair of interfaces put between. It needs no qdisc of the kernel's, for many have none.

A link is cut in one direction by giving the sender a wrong hardware address for the receiver: packets leave and are lost
silently, as on a broken cable. It takes a millisecond and no packet filter.
"""

import subprocess
import sys
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol, Self, runtime_checkable

from linearizability.faults.link_agent import PERMANENT, UNUSED_ADDRESS
from linearizability.targets.hosts import Host
from linearizability.targets.target import TargetError

SUBNET = "127.77.0"
CLIENTS = 0
"""The number of the place where clients run: the sandbox itself. Hosts are numbered from 1 on, as nodes are."""
CLIENTS_ADDRESS = f"{SUBNET}.254"
PREFIX_LENGTH = 24
HOLDER_WITHIN_S = 10.0


class Links(Protocol):
    """The interface of a network for faults."""

    @property
    def places(self) -> list[int]: ...

    def cut(self, sender: int, receiver: int) -> None: ...

    def join(self, sender: int, receiver: int) -> None: ...

    def heal(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Line:
    """The state of a node's line: the delay of packets, and the share of them that is lost."""

    delay_ms: float = 0
    jitter_ms: float = 0
    loss: float = 0


@runtime_checkable
class Lines(Links, Protocol):
    """A network whose lines can be made bad."""

    def spoil(self, place: int, line: Line) -> bool: ...

    def mend(self, place: int) -> None: ...


class CountedCuts(ABC):
    """Hosts on a network whose links several faults may cut at once. A context manager; methods may be called from any thread."""

    def __init__(self, hosts: int) -> None:
        self.size = hosts
        self._cuts: Counter[tuple[int, int]] = Counter()
        """(sender, receiver) -> how many faults want it cut."""
        self._lock = threading.Lock()

    @property
    def places(self) -> list[int]:
        """All hosts, and the place of the clients."""
        return list(range(self.size + 1))

    def __enter__(self) -> Self:
        try:
            self._build()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def cut(self, sender: int, receiver: int) -> None:
        """Cut a link: from now on no packet of the sender reaches the receiver."""
        link = self._link(sender, receiver)
        with self._lock:
            self._cuts[link] += 1
            self._set(*link, is_cut=True)

    def join(self, sender: int, receiver: int) -> None:
        """Take one cut back; the link works again when no fault wants it cut."""
        link = self._link(sender, receiver)
        with self._lock:
            self._cuts[link] = max(0, self._cuts[link] - 1)
            if not self._cuts[link]:
                self._set(*link, is_cut=False)

    def heal(self) -> None:
        """Take all cuts back."""
        with self._lock:
            for link in [link for link, count in self._cuts.items() if count]:
                self._set(*link, is_cut=False)
            self._cuts.clear()

    def _link(self, sender: int, receiver: int) -> tuple[int, int]:
        """The link that is cut."""
        return sender, receiver

    @abstractmethod
    def _set(self, sender: int, receiver: int, *, is_cut: bool) -> None:
        """Cut a link, or let it work. Errors: TargetError."""

    @abstractmethod
    def _build(self) -> None:
        """Make the hosts and the links."""

    @abstractmethod
    def close(self) -> None:
        """Remove them. May be called twice."""


class Network(CountedCuts):
    """Hosts in network namespaces on a bridge. Only inside a sandbox."""

    def __init__(self, hosts: int) -> None:
        super().__init__(hosts)
        self._holders: list[subprocess.Popen[bytes]] = []
        self._links: dict[int, Any] = {}
        """Place -> netlink socket in its namespace."""
        self._interfaces: dict[int, int] = {}
        self._relays: dict[int, subprocess.Popen[bytes]] = {}
        """Host -> the process that makes its line bad."""

    @property
    def hosts(self) -> Sequence[Host]:
        """The hosts of node 1, 2 …."""
        return [
            Host(f"{SUBNET}.{place}", ("nsenter", f"--net=/proc/{holder.pid}/ns/net", "--"))
            for place, holder in enumerate(self._holders, start=1)
        ]

    def heal(self) -> None:
        super().heal()
        for place in list(self._relays):
            self.mend(place)

    def _set(self, sender: int, receiver: int, *, is_cut: bool) -> None:
        self._point(sender, receiver, UNUSED_ADDRESS if is_cut else _hardware(receiver))

    # ---- bad lines

    def spoil(self, place: int, line: Line) -> bool:
        """Make a host's line bad; False where it is already. Errors: TargetError, and the line is as it was."""
        with self._lock:
            if place in self._relays:
                return False
            outside = self._links[CLIENTS]
            near, far, end = f"host{place}", f"far{place}", f"end{place}"
            outside.link("add", ifname=far, kind="veth", peer={"ifname": end})
            for interface in (far, end):
                outside.link("set", index=_index(outside, interface), state="up")
            numbers = [str(number) for number in (line.delay_ms, line.jitter_ms, line.loss)]
            relay = subprocess.Popen(
                [sys.executable, "-m", "linearizability.faults.relay", near, far, *numbers],
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,  # Ctrl-C is not for it
            )
            assert relay.stdout is not None and relay.stderr is not None
            if relay.stdout.readline().strip() != b"ready":
                relay.kill()
                outside.link("del", index=_index(outside, far))
                raise TargetError(f"no bad line: {relay.stderr.read().decode(errors='replace').strip()[-300:]}")
            outside.link("set", index=_index(outside, near), master=0)
            outside.link("set", index=_index(outside, end), master=self._interfaces[CLIENTS])
            self._relays[place] = relay
            return True

    def mend(self, place: int) -> None:
        """Make a host's line good again. May be called twice."""
        with self._lock:
            relay = self._relays.pop(place, None)
            if relay is None:
                return
            outside = self._links[CLIENTS]
            outside.link("del", index=_index(outside, f"far{place}"))
            outside.link("set", index=_index(outside, f"host{place}"), master=self._interfaces[CLIENTS])
            _end(relay)

    def _point(self, sender: int, receiver: int, hardware: str) -> None:
        self._links[sender].neigh(
            "replace", dst=_address(receiver), lladdr=hardware, ifindex=self._interfaces[sender], state=PERMANENT
        )

    # ---- building

    def _build(self) -> None:
        from pyroute2 import IPRoute, NetNS

        outside = self._links[CLIENTS] = IPRoute()
        outside.link("add", ifname="bridge", kind="bridge", address=_hardware(CLIENTS))
        bridge = self._interfaces[CLIENTS] = _index(outside, "bridge")
        _narrow_loopback(outside)
        Path("/proc/sys/net/ipv4/conf/all/route_localnet").write_text("1")
        for place in range(1, self.size + 1):
            holder = _new_namespace()
            self._holders.append(holder)
            outside.link("add", ifname=f"host{place}", kind="veth", peer={"ifname": "eth0", "net_ns_pid": holder.pid})
            port = _index(outside, f"host{place}")
            outside.link("set", index=port, master=bridge, state="up")
            inside = self._links[place] = NetNS(f"/proc/{holder.pid}/ns/net")
            interface = self._interfaces[place] = _index(inside, "eth0")
            inside.link("set", index=interface, address=_hardware(place), state="up")
            inside.addr("add", index=interface, address=_address(place), prefixlen=PREFIX_LENGTH)
            _narrow_loopback(inside)
        outside.link("set", index=bridge, state="up")
        outside.addr("add", index=bridge, address=_address(CLIENTS), prefixlen=PREFIX_LENGTH)
        for sender in self.places:
            for receiver in self.places:
                if sender != receiver:
                    self._point(sender, receiver, _hardware(receiver))

    def close(self) -> None:
        """End the namespaces, and leave a sandbox in which another network can be made. May be called twice."""
        outside = self._links.get(CLIENTS)
        if outside is not None:  # a namespace's own end of a pair goes with it, but not at once
            hosts = [f"host{place}" for place in range(1, self.size + 1)]
            for interface in ("bridge", *hosts, *(f"far{place}" for place in self._relays)):
                with suppress(Exception):
                    outside.link("del", index=_index(outside, interface))
        for link in self._links.values():
            with suppress(Exception):
                link.close()
        self._links.clear()
        for process in (*self._relays.values(), *self._holders):
            _end(process)
        self._relays.clear()
        self._holders.clear()


def groups_cut(groups: Sequence[Collection[int]]) -> list[tuple[int, int]]:
    """The links, both directions, between members of different groups."""
    return [
        (sender, receiver)
        for number, group in enumerate(groups)
        for other in (*groups[:number], *groups[number + 1 :])
        for sender in group
        for receiver in other
    ]


def _end(process: "subprocess.Popen[bytes]") -> None:
    process.kill()
    process.communicate()


def _new_namespace() -> "subprocess.Popen[bytes]":
    """A process that does nothing but hold a network namespace. Errors: TargetError."""
    script = "echo 1 > /proc/sys/net/ipv4/conf/all/route_localnet && echo ready && exec sleep infinity"
    holder = subprocess.Popen(
        ["unshare", "--net", "sh", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,  # Ctrl-C reaches the sandbox's whole group, and its nodes must be healed after it
    )
    assert holder.stdout is not None and holder.stderr is not None
    until = time.monotonic() + HOLDER_WITHIN_S
    if holder.stdout.readline().strip() != b"ready" or time.monotonic() > until:
        holder.kill()
        raise TargetError(f"no network namespace: {holder.stderr.read().decode(errors='replace').strip()}")
    return holder


def _narrow_loopback(link: Any) -> None:
    """`lo` serves 127.0.0.1 alone: the rest of 127/8 is the network's."""
    loopback = _index(link, "lo")
    link.link("set", index=loopback, state="up")
    with suppress(Exception):
        link.addr("del", index=loopback, address="127.0.0.1", prefixlen=8)
    with suppress(Exception):
        link.addr("add", index=loopback, address="127.0.0.1", prefixlen=32)


def _index(link: Any, interface: str) -> int:
    """The number of an interface. Errors: TargetError."""
    found = list(link.link_lookup(ifname=interface))
    if not found:
        raise TargetError(f"there is no interface {interface}")
    return found[0]


def _address(place: int) -> str:
    return CLIENTS_ADDRESS if place == CLIENTS else f"{SUBNET}.{place}"


def _hardware(place: int) -> str:
    return f"02:77:00:00:00:{place:02x}"
