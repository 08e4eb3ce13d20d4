"""Small partitions in which no rule can find anything, recognised many at a time.

A rule costs some 30 µs a partition even where there is nothing to find, all rules together more than a millisecond: with
50,000 partitions of 20 facts that is a minute. So small partitions are first looked at together, column by column. One is
*plain* where all of this holds:

- it has nothing but sends, polls, final reads and reported log ends, and none is part of a transaction;
- every send and poll succeeded and names an offset; no two sends share a value or an offset;
- every record read was sent with that value and acknowledged at that offset, and every record sent was read;
- each producer's records lie in the order in which it sent them, those of one operation side by side;
- each consumer was given record after record, within an operation and, in one session, from one operation to the next;
- no send began after a record at its place or beyond had been acknowledged, read, or covered by a reported log end;
- epochs of a producer do not differ, and leader epochs do not fall along the log;
- each final read reached the log end and returned every record.

Each of the rules in `SILENT` needs one of these to be broken. A partition that is not plain is judged as ever, so a condition
that is too strict costs time and never a finding; one that is too lax would hide one, which `tests/pipeline/test_plain.py`
looks for.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from linearizability.history.facts import Flag, Kind, Outcome
from linearizability.rules import exactly_once, progress, transactions
from linearizability.rules.partition import Array, Columns, Mask
from linearizability.rules.progress import GAP_NS
from linearizability.rules.rule import Context, Rule, RunRule

SMALL = 2_000
"""A partition of more facts is judged by itself: the fixed cost does not matter there."""
KNOWN_KINDS = (Kind.APPEND, Kind.OBSERVATION, Kind.DRAIN, Kind.END_OFFSETS)
MAX_DRAINS = 4
SILENT = frozenset({
    "lost-write", "unseen", "not-delivered", "phantom-read", "duplicate", "inconsistent-offsets", "offset-reuse",
    "repeated-value", "realtime-order", "future-read", "nonlinearizable", "stale-end-offset", "stale-read",
    "nonmonotonic-poll", "int-nonmonotonic-poll", "poll-skip", "int-poll-skip", "nonmonotonic-send",
    "int-nonmonotonic-send", "int-send-skip", "G1a", "G1b", "precommitted-read", "zombie-producer",
    "committed-offset-regression", "committed-offset-loss", "commit-past-undelivered", "two-owners",
    "commit-of-former-generation", "high-watermark-regression", "last-stable-offset-regression", "log-start-regression",
    "lso-above-hw", "leader-epoch-regression", "replica-divergence", "nonlinearizable-register", "undecided-register",
    "no-progress",
})  # fmt: skip
"""The rules that find nothing in a plain partition. A pause between successful sends breaks no condition: its rule is run, as
is each that is not named here."""
WITHOUT_TRANSACTIONS = (transactions.emit_parts, exactly_once.emit_copies)
"""The functions that emit nothing for a plain partition."""


def applies(rules: Iterable[RunRule]) -> bool:
    """Whether it is known what each of these rules over a run emits for a plain partition."""
    return {rule.emit for rule in rules} <= {*WITHOUT_TRANSACTIONS, transactions.emit_dependencies}


class Screen:
    """Several small partitions; rows are sorted by partition, process, operation and position.

    `part` numbers each row's partition, from 0 and without gaps.
    """

    def __init__(self, part: Array, columns: Columns, context: Context) -> None:
        self.part, self._columns = part, columns
        self._odd = np.zeros(int(part[-1]) + 1, bool)
        self._appends, self._observations = self._rows(Kind.APPEND), self._rows(Kind.OBSERVATION)
        self._look_at_kinds(context)
        self._place()
        if len(self._log):
            self._look_at_consumers()
            self._look_at_producers()
            self._look_at_times()
        elif len(self._observations):
            self._odd[part[self._observations]] = True
        self._look_at_drains()

    @property
    def plain(self) -> Mask:
        """For each partition whether it is plain."""
        return ~self._odd

    def asks(self, rule: Rule) -> Mask:
        """In which plain partitions a rule may find something."""
        if rule.id in SILENT:
            return np.zeros(len(self._odd), bool)
        if rule.id != progress.GAP.id:
            return self.plain
        completed, part = self._of("completed", self._appends), self.part[self._appends]
        first, last = np.full(len(self._odd), np.iinfo(np.int64).max), np.full(len(self._odd), np.iinfo(np.int64).min)
        np.minimum.at(first, part, completed)
        np.maximum.at(last, part, completed)
        return self.plain & (last > first) & (last - np.minimum(first, last) > GAP_NS)

    def dependencies(self) -> Array:
        """The rows of `transactions.emit_dependencies` for all plain partitions together."""
        log = self._log[self.plain[self.part[self._log]]]
        part, owner = self.part[log], self._of("operation", log)
        if not len(log):
            return np.empty((0, 4), np.int64)
        last = np.append((part[1:] != part[:-1]) | (owner[1:] != owner[:-1]), True)
        log, part, owner = log[last], part[last], owner[last]
        within = np.flatnonzero(part[1:] == part[:-1])
        edges = _distinct(part[within], owner[within], owner[within + 1])
        nodes = _distinct(part, owner)
        times = log[nodes]
        node, kind = np.full(len(nodes), transactions.NODE), np.full(len(edges), transactions.WW)
        ends = self._of("invoked", times), node, self._of("completed", times)
        neighbours = owner[within][edges], owner[within + 1][edges]
        return np.concatenate(
            [
                np.stack([*neighbours, kind, np.zeros(len(edges), np.int64)], axis=1),
                np.stack([owner[nodes], *ends], axis=1),
            ]
        )

    # -- the conditions ------------------------------------------------------------------------------------------------

    def _rows(self, kind: Kind) -> Array:
        return np.flatnonzero(self._columns["kind"] == kind)

    def _of(self, name: str, rows: Array) -> Array:
        return self._columns[name][rows]

    def _has_flag(self, flag: Flag, rows: Array) -> Mask:
        return (self._of("flags", rows) & int(flag)) != 0

    def _mark(self, rows: Array, wrong: Mask) -> None:
        """The partitions of these rows are not plain where something is wrong."""
        self._odd[self.part[rows[wrong]]] = True

    def _look_at_kinds(self, context: Context) -> None:
        known = [int(kind) for kind in KNOWN_KINDS]
        if context.contract.strict_recency:
            known.remove(Kind.END_OFFSETS)
        self._odd[self.part[~np.isin(self._columns["kind"], known)]] = True
        records = np.concatenate([self._appends, self._observations])
        self._mark(records, self._of("outcome", records) != Outcome.OK)
        self._mark(records, (self._of("offset", records) < 0) | (self._of("transaction", records) >= 0))
        self._mark(records, self._has_flag(Flag.TRANSACTIONAL, records))
        self._mark(self._appends, self._of("extra", self._appends) >= 0)
        self._mark(*self._repeated("value"))
        self._mark(*self._repeated("offset"))

    def _repeated(self, name: str) -> tuple[Array, Mask]:
        """The sends by partition and this column, and which of them have the same value as the one before."""
        values, part = self._of(name, self._appends), self.part[self._appends]
        order = np.lexsort((values, part))
        same = np.zeros(len(order), bool)
        same[1:] = (values[order][1:] == values[order][:-1]) & (part[order][1:] == part[order][:-1])
        return self._appends[order], same

    def _place(self) -> None:
        """The sends as one log, by partition and offset, and the place of each record read in it."""
        offsets = self._columns["offset"]
        self._ranks = np.unique(offsets)
        key = self.part * np.int64(len(self._ranks)) + np.searchsorted(self._ranks, offsets)
        order = np.argsort(key[self._appends], kind="stable")
        self._log, self._keys = self._appends[order], key[self._appends][order]
        self._place_of_append = np.empty(len(order), np.int64)
        self._place_of_append[order] = np.arange(len(order))
        if not len(self._log):
            return
        read = self._observations
        self._read = np.minimum(np.searchsorted(self._keys, key[read]), len(self._log) - 1)
        writer = self._log[self._read]
        same = (self._keys[self._read] == key[read]) & (self._of("value", writer) == self._of("value", read))
        self._is_sent = same
        self._mark(read, ~same)
        self._mark(read, self._of("completed", read) < self._of("invoked", writer))
        unread = np.ones(len(self._log), bool)
        unread[self._read[same]] = False
        self._mark(self._log, unread)

    def _look_at_consumers(self) -> None:
        read = self._observations
        before, after = read[:-1], read[1:]
        alike = {name: self._of(name, before) == self._of(name, after) for name in ("process", "operation", "session")}
        one_operation = alike["operation"] & ~self._has_flag(Flag.REBALANCED, after)
        step = one_operation | (alike["process"] & alike["session"] & ~alike["operation"])
        step &= self.part[before] == self.part[after]
        self._mark(after, step & (self._read[1:] != self._read[:-1] + 1))
        epoch = self._of("epoch", read)
        known = np.flatnonzero(epoch >= 0)
        known = known[np.lexsort((epoch[known], self._read[known]))]
        part, epoch = self.part[read[known]], epoch[known]
        self._mark(read[known[1:]], (part[1:] == part[:-1]) & (epoch[1:] < epoch[:-1]))

    def _look_at_producers(self) -> None:
        sent, place = self._appends, self._place_of_append
        before, after = sent[:-1], sent[1:]
        neighbours = self.part[before] == self.part[after]
        one_operation = self._of("operation", before) == self._of("operation", after)
        one_process = self._of("process", before) == self._of("process", after)
        wrong = (one_operation & (place[1:] != place[:-1] + 1)) | (one_process & (place[1:] <= place[:-1]))
        self._mark(after, neighbours & wrong)
        named = sent[(self._of("group", sent) >= 0) & (self._of("epoch", sent) >= 0)]
        part, epoch = self.part[named], self._of("epoch", named)
        self._mark(named[1:], (part[1:] == part[:-1]) & (epoch[1:] != epoch[:-1]))

    def _look_at_times(self) -> None:
        """Mark sends that began after a record at their place or beyond was known there."""
        known = self._of("completed", self._log).copy()
        np.minimum.at(known, self._read, self._of("completed", self._observations))
        ends = self._rows(Kind.END_OFFSETS)
        ends = ends[(self._of("outcome", ends) == Outcome.OK) & (self._of("offset", ends) >= 0)]
        behind = self.part[ends] * np.int64(len(self._ranks)) + np.searchsorted(self._ranks, self._of("offset", ends))
        place = np.searchsorted(self._keys, behind) - 1  # the last record below the log end
        is_there = (place >= 0) & (self.part[self._log[place]] == self.part[ends])
        np.minimum.at(known, place[is_there], self._of("completed", ends[is_there]))
        times, rank = np.unique(known, return_inverse=True)
        lift = self.part[self._log] * np.int64(len(times))  # a minimum from the back, of each partition by itself
        earliest = np.minimum.accumulate((rank + lift)[::-1])[::-1] - lift
        self._mark(self._log, self._of("invoked", self._log) > times[earliest])

    def _look_at_drains(self) -> None:
        drains = self._rows(Kind.DRAIN)
        if not len(drains):
            return
        end = self._of("offset", drains)
        complete = (self._of("outcome", drains) == Outcome.OK) & (end >= 0) & (self._of("extra", drains) >= end)
        self._mark(drains, ~complete)
        sent = np.bincount(self.part[self._appends], minlength=len(self._odd))
        number = np.arange(len(drains)) - np.searchsorted(self.part[drains], self.part[drains])
        self._mark(drains, number >= MAX_DRAINS)
        for each in range(MAX_DRAINS):
            rows = drains[number == each]
            self._odd[self.part[rows]] |= self._returned(rows)[self.part[rows]] < sent[self.part[rows]]

    def _returned(self, drains: Array) -> Array:
        """For each partition how many records its drain, of which it has one at most, returned."""
        if not len(drains) or not len(self._log):
            return np.zeros(len(self._odd), np.int64)
        drain_of = np.full(len(self._odd), -1)
        drain_of[self.part[drains]] = drains
        read, its = self._observations, drain_of[self.part[self._observations]]
        within = self._is_sent & (its >= 0) & (self._of("process", read) == self._of("process", its))
        within &= self._of("invoked", read) >= self._of("invoked", its)
        within &= self._of("completed", read) <= self._of("completed", its)
        places = np.unique(self._read[within])
        return np.bincount(self.part[self._log[places]], minlength=len(self._odd))


def _distinct(*keys: Array) -> Array:
    """The first row of each combination of keys."""
    order = np.lexsort(keys[::-1])
    fresh = np.ones(len(order), bool)
    fresh[1:] = np.any([key[order][1:] != key[order][:-1] for key in keys], axis=0)
    return order[fresh]
