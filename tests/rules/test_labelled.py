"""The 500 labelled histories: ours equal the labels, or the difference is written down with the reason.

The labels are the anomaly types that Jepsen's Kafka checker reports. `labelled_differences.md` holds every difference; it
is written by `python -m tests.rules.test_labelled` and reviewed as a diff. Each reason is proven here for its history,
and `definitions.py` says independently of the checks that what we report is what the rules' definitions say.
"""

from __future__ import annotations

import gzip
import json
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from linearizability.history.paired import derive_events
from linearizability.pipeline.engine import judge_history
from linearizability.pipeline.verdict import Judgement
from linearizability.rules.rule import Anomaly
from tests.rules.definitions import COMPARED, Plain, anomalies, plain

LABELLED = Path(__file__).parents[1] / "history" / "data" / "labelled.jsonl.gz"
DIFFERENCES = Path(__file__).with_name("labelled_differences.md")
README = Path(__file__).parents[2] / "linearizability" / "history" / "README.md"
VOCABULARY = {
    *("unseen", "lost-write", "duplicate", "inconsistent-offsets", "G1a", "precommitted-read", "G0", "G0-realtime"),
    *("int-nonmonotonic-poll", "nonmonotonic-poll", "int-poll-skip", "poll-skip"),
    *("int-send-skip", "int-nonmonotonic-send", "nonmonotonic-send"),
}
"""The types that the labels know. Ours has more: offset-reuse, realtime-order, torn-transaction and others."""

REASONS = {
    "delivered": "Every record that the label means was given to a client by a poll, if in an operation that failed or whose "
    "outcome is unknown. What was delivered is neither lost nor unseen.",
    "apart": "Every record that the label means is lost for sure and reported as lost-write; unseen is kept for records of "
    "which no client knows.",
    "each record": "The label takes a send of unknown outcome for one act, of which one record that was read proves the "
    "others. Outside of transactions each record travels by itself, and what no client read may never have been stored, whatever "
    "offset a completion of unknown outcome names: that another record lies there is inconsistent-offsets, and no loss.",
    "named": "The offset that a completion of unknown outcome names was reported by a broker, whatever became of the record: where "
    "another record lies there, one offset was reported for two. The label counts such an offset only where the send is proven.",
    "either start": "After an operation of unknown outcome a consumer reads on behind its records or before them. The label takes "
    "them for given back, and what they hold for skipped.",
    "any poll": "What a poll returned was given to the application, whatever became of the operation that polled.",
    "by offset": "The label looks up each polled or sent value's place in one order of values. Where a value stands at two "
    "offsets, or an offset holds two values, a value has no one place: the last one, or an arbitrary one, is taken, and steps "
    "are compared that no client made. Ours compares the offsets that were answered. What is wrong with the log is said by "
    "duplicate and inconsistent-offsets; the evidence names it. HIS-05 and HIS-06 speak of offsets too.",
}
"""Why ours is right; each difference names one, and the evidence in its history."""


class Difference(NamedTuple):
    history: str
    sign: str
    anomaly: str
    reason: str
    evidence: str


def documents() -> list[dict[str, Any]]:
    with gzip.open(LABELLED, "rt") as lines:
        return [json.loads(line) for line in lines]


def differences(document: dict[str, Any]) -> Iterator[Difference]:
    judgement = judge_history(derive_events(document["id"], document["history"]))
    ours, theirs = set(judgement.anomalies) & VOCABULARY, set(document["anomalies"])
    history = plain(document["history"])
    for anomaly in sorted(theirs - ours):
        yield Difference(document["id"], "-", anomaly, *missing(anomaly, judgement, history))
    for anomaly in sorted(ours - theirs):
        yield Difference(document["id"], "+", anomaly, *added(anomaly, judgement, history))


def missing(anomaly: str, judgement: Judgement, history: Plain) -> tuple[str, str]:
    """Why the label is not ours: the reason and its evidence."""
    ok_read = {(o.key, o.value) for o in history.seen if o.outcome == "ok"}
    read = {(o.key, o.value): o for o in history.seen}
    meant = {(s.key, s.value) for s in history.sent if s.outcome == "ok"} - ok_read
    delivered = ", ".join(
        f"{value} by operation {read[key, value].operation}" for key, value in sorted(meant & set(read))
    )
    if anomaly == "unseen":
        assert meant
        if meant <= set(read):
            return "delivered", f"polled: {delivered}"
        assert judgement.anomalies["lost-write"] >= len(meant - set(read))
        return "apart", f"lost: {', '.join(str(value) for _, value in sorted(meant - set(read)))}"
    if anomaly == "lost-write" and meant & set(read):
        return "delivered", f"polled: {delivered}"
    if anomaly == "poll-skip" and (behind := read_on_behind(history)):
        return "either start", behind
    if anomaly == "lost-write" or not disagreements(judgement):
        return "each record", f"sent besides what was read: {besides(history)}"
    return "by offset", disagreement(judgement)


def read_on_behind(history: Plain) -> str:
    """The place where a consumer continued after records that an operation of unknown outcome had polled; "" if none did."""
    polled: dict[tuple[int, str], list[int]] = defaultdict(list)
    for o in history.seen:
        polled[o.operation, o.key].append(o.offset)
    last: dict[tuple[int, str], tuple[str, int, int]] = {}
    for kind, process, operation, what in history.events:
        if kind == "assign":
            last = {place: known for place, known in last.items() if place[0] != process or place[1] in what}
            continue
        for key in (key for number, key in [*polled] if number == operation):
            first, *_, end = polled[operation, key] * 2
            outcome, before, behind = last.get((process, key), ("", -1, first))
            if outcome == "info" and behind < first:
                return f"partition {key}: operation {before} polled up to offset {behind}, operation {operation} from {first} on"
            if what == "ok" or (what == "info" and outcome and end > behind):
                last[process, key] = what, operation, end
    return ""


def besides(history: Plain) -> str:
    """The unread records of sends of unknown outcome, outside of transactions, of which another record was read."""
    read = {(o.key, o.value) for o in history.seen if o.outcome == "ok"}
    unknown = [s for s in history.sent if s.outcome == "info" and not s.transactional]
    partly = {s.operation for s in unknown if (s.key, s.value) in read}
    found = [s for s in unknown if s.operation in partly and (s.key, s.value) not in read]
    assert found
    return ", ".join(f"{s.value} by operation {s.operation}" for s in found)


def added(anomaly: str, judgement: Judgement, history: Plain) -> tuple[str, str]:
    """Why ours is not in the label: the reason and its evidence."""
    witness = next(a for a in judgement.witnesses() if a.rule == anomaly)
    said = f"partition {witness.partition}, value {witness.value}: {witness.text}"
    if anomaly == "G1a":
        failed = {(s.key, s.value) for s in history.sent if s.outcome == "fail"}
        assert not any((o.key, o.value) in failed for o in history.seen if o.outcome == "ok")
        return "any poll", said
    if anomaly == "inconsistent-offsets" and (named := in_doubt(judgement, history)):
        return "named", f"{said} ({named})"
    if not disagreements(judgement):
        return "each record", f"{said} (sent besides what was read: {besides(history)})"
    return "by offset", f"{said} ({disagreement(judgement)})"


def in_doubt(judgement: Judgement, history: Plain) -> str:
    """The evidence that an offset has two records only because a send of unknown outcome reports this offset."""
    reported = []
    for found in (a for a in judgement.witnesses() if a.rule == "inconsistent-offsets"):
        here = [s for s in history.sent if str(s.key) == str(found.partition) and s.offset == found.offset]
        sure = {s.value for s in here if s.outcome == "ok"}
        sure |= {o.value for o in history.seen if str(o.key) == str(found.partition) and o.offset == found.offset}
        named = [s for s in here if s.outcome == "info" and s.value not in sure]
        if len(sure) > 1 or not named:
            return ""
        reported += [f"{s.value} named by operation {s.operation}" for s in named]
    return ", ".join(reported[:2])


def disagreement(judgement: Judgement) -> str:
    """How the log disagrees with itself; there is no difference `by offset` where it does not."""
    found = disagreements(judgement)
    assert found
    return "; ".join(f"partition {a.partition}: value {a.value} {a.text}" for a in found[:2])


def disagreements(judgement: Judgement) -> list[Anomaly]:
    return [a for a in judgement.witnesses() if a.rule in ("duplicate", "inconsistent-offsets")]


def table(found: list[Difference], total: int) -> str:
    histories = {difference.history for difference in found}
    kinds = Counter((difference.sign, difference.anomaly) for difference in found)
    lines = [
        "# Where our anomalies differ from the labels of labelled.jsonl.gz",
        "",
        f"{total - len(histories)} of {total} histories have exactly the labelled types (of the types that the labels know).",
        f"{len(histories)} differ, in {len(found)} types; `-` is labelled and not ours, `+` ours and not labelled:",
        "",
        *(f"- `{sign}{anomaly}` {count}" for (sign, anomaly), count in sorted(kinds.items())),
        "",
        "Where no value stands at two offsets and no offset holds two values, only `unseen`, `lost-write` and what is reported",
        "as *each record* differ.",
        "",
        "## Reasons",
        "",
        *(f"- *{name}*: {text}" for name, text in REASONS.items()),
        "",
        "## Differences",
        "",
        "| history | | anomaly | reason | evidence |",
        "| --- | --- | --- | --- | --- |",
        *(f"| {d.history} | {d.sign} | {d.anomaly} | {d.reason} | {d.evidence} |" for d in found),
        "",
    ]
    return "\n".join(lines)


def all_differences() -> str:
    documented = documents()
    return table([difference for document in documented for difference in differences(document)], len(documented))


def test_every_difference_is_written_down() -> None:
    assert all_differences() == DIFFERENCES.read_text()


def test_the_readme_says_how_many_are_equal() -> None:
    equal = DIFFERENCES.read_text().split(" of 500 histories have exactly", maxsplit=1)[0].split()[-1]
    assert f"| 500 | {equal} equal;" in README.read_text()


def test_ours_is_what_the_definitions_say() -> None:
    for document in documents():
        ours = judge_history(derive_events(document["id"], document["history"])).anomalies
        expected = anomalies(document["history"])
        assert {rule: ours.get(rule, 0) for rule in COMPARED} == {rule: expected[rule] for rule in COMPARED}


def test_no_history_with_an_anomaly_is_valid() -> None:
    """A label other than unseen never leaves a history valid, unless what it names is only ever noted."""
    notes = {"unseen", "int-send-skip", "G0", "G0-realtime", "lost-write"}
    for document in documents():
        if set(document["anomalies"]) - notes:
            assert judge_history(derive_events(document["id"], document["history"])).verdict != "valid", document["id"]


if __name__ == "__main__":
    DIFFERENCES.write_text(all_differences())
