"""Histories of one partition whose log loses its oldest records to retention; in some, another record is lost besides.

In each step of `play` records are appended, the log start rises, a consumer reads on, or a client asks for the log start. With
`loses` one record is taken out of the log before any consumer has come to it. The loss counts as planted where a consumer reads
past it while the log still begins below.
"""

from __future__ import annotations

from random import Random
from typing import Any, NamedTuple

from linearizability.history.notation import history
from linearizability.history.streams import History

KEY = "t-0"
CONTRACT: dict[str, Any] = {"cleanup": "delete"}


class Planted(NamedTuple):
    """A history, and the record (its value is its offset) that is lost in it; None where none is."""

    text: str
    lost: int | None

    @property
    def history(self) -> History:
        return history(self.text, CONTRACT)


class Play:
    """One log, and what its clients see of it."""

    def __init__(self, rng: Random, loses: bool) -> None:
        self.rng, self.now, self.start, self.end = rng, 0, 0, 0
        self.positions = [0, 0]
        self.gone: int | None = None
        self.loses, self.is_passed = loses, False
        self.lines: list[str] = []

    def record(self, process: int, what: str) -> None:
        self.lines.append(f"{process} [{self.now} {self.now + 4}] {what}")
        self.now += 10

    def append(self) -> None:
        for _ in range(self.rng.randint(1, 3)):
            self.record(0, f"send {KEY}:{self.end}@{self.end}")
            self.end += 1

    def lose(self) -> None:
        """Take a record out of the log that no consumer has come to, and that is not the last one."""
        ahead = list(range(max(self.start, *self.positions), self.end - 1))
        if self.loses and self.gone is None and ahead:
            self.gone = self.rng.choice(ahead)

    def expire(self) -> None:
        """Retention never takes the last record, nor a loss that no consumer has come by."""
        limit = self.end - 1 if self.gone is None or self.is_passed else min(self.end - 1, self.gone)
        if limit > self.start:
            self.start = self.rng.randint(self.start + 1, limit)

    def ask(self) -> None:
        what = self.rng.choice([f"list_offsets {KEY} start=", f"state {KEY} node=1 epoch=0 log_start="])
        self.record(9, f"{what}{self.start}")

    def poll(self, consumer: int, most: int = 0) -> None:
        begin = max(self.positions[consumer], self.start)
        stop = min(self.end, begin + (most or self.rng.randint(1, 4)))
        self._read(1 + consumer, begin, stop)
        self.positions[consumer] = max(self.positions[consumer], stop)

    def _read(self, process: int, begin: int, stop: int) -> None:
        offsets = [offset for offset in range(begin, stop) if offset != self.gone]
        if offsets:
            self.record(process, "poll " + " ".join(f"{KEY}:{offset}@{offset}" for offset in offsets))
            self.is_passed |= self.gone is not None and begin <= self.gone < offsets[-1]


def play(seed: int, loses: bool) -> Planted:
    """One history; `lost` is None where no consumer came by the loss while the log began below it."""
    rng = Random(seed)
    game = Play(rng, loses)
    game.append()
    for _ in range(rng.randint(6, 20)):
        step = rng.choice(
            [game.append, game.append, game.lose, game.expire, game.ask, *[lambda: game.poll(rng.randrange(2))] * 3]
        )
        step()
    if rng.random() < 0.8:  # a final reader begins where the log does
        game.positions.append(0)
        game.poll(2, most=game.end)
    return Planted("\n".join(game.lines), game.gone if game.is_passed else None)
