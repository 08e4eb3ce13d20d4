"""Ports of processes side by side."""

from __future__ import annotations

import subprocess
import sys

import pytest

from linearizability.targets import ports
from linearizability.targets.ports import BLOCK, free_ports

TAKE = "from linearizability.targets.ports import free_ports\nprint(free_ports(100), flush=True)\ninput()"


def test_processes_side_by_side_draw_different_ports() -> None:
    """A port that one was given, and on which nothing listens yet, is given to no other."""
    others = [
        subprocess.Popen([sys.executable, "-c", TAKE], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in range(4)
    ]
    try:
        drawn = [free_ports(100)]
        for other in others:
            assert other.stdout is not None
            drawn.append([int(port) for port in other.stdout.readline().strip("[]\n").split(",")])
    finally:
        for other in others:
            other.communicate("\n", timeout=60)
    assert len({port for some in drawn for port in some}) == 500


def test_a_port_is_not_soon_given_again() -> None:
    first = free_ports(1)[0]
    assert first not in [port for _ in range(BLOCK // 8 - 8) for port in free_ports(4)]


def test_without_a_lock_ports_are_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ports, "_block", None)
    monkeypatch.setattr(ports, "_lock_block", lambda highest: None)
    assert len({*free_ports(20)}) == 20
