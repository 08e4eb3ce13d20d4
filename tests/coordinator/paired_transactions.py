"""The same steps for the transactions of a node of ours and for Apache Kafka's coordinator of them (`java/Transactions.java`).

After each step the answers, the records, the markers that a broker answers, and what is described and listed are compared.
Either loads its own log again or the other's. Not compared, or not drawn, are:

- The last update of a completed transaction: Kafka's is from when its markers were sent, ours from when all were written.
- While a record is not committed, Kafka refuses every step of its transactional id (CONCURRENT_TRANSACTIONS). Ours decides by
  the record, and answers when both are committed. Nothing is asked in between here.
- A record that was appended and is not committed in time: Kafka's memory then lacks what its log has. Ours keeps to the log.
- After a record that was refused, Kafka remembers in memory what no log has: the producer id of a transactional id that it made,
  and before transaction.version 2 the epoch by which it would have fenced. Both load the log again then.
- A partition without a leader: Kafka completes the transaction without its marker (KAFKA-20734). Ours waits for a leader.
- A partition that refuses its marker for good: Kafka no longer retries the others of the same request. Ours does.
- A cluster of transaction.version 0 where a client ended a transaction in version 2: Kafka cannot write its state.
- An EndTxn with the previous epoch where the last end did not raise it (`reference.coordinator.transaction_endings`).
- An InitProducerId with another epoch than the present one where no epoch is left: Kafka fails with UNKNOWN_SERVER_ERROR. Ours
  repeats its answer or fences, as with any other epoch.
- The last epoch there is, which no client gets: Kafka fails at an EndTxn with it.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from reference.coordinator.transaction_records import KeyValue, decode_key, decode_value
from reference.coordinator.transaction_state import COMPLETED
from reference.node.markers import RETRY_MS
from reference.protocol.errors import ErrorCode
from reference.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from reference.protocol.messages.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnResponse
from reference.protocol.messages.end_txn import EndTxnRequest, EndTxnResponse
from reference.protocol.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from reference.protocol.messages.list_transactions import ListTransactionsRequest
from reference.protocol.schema import Message
from tests.coordinator.our_transactions import EXPIRATION_MS, LONGEST_MS, NOW, OFFSETS, OurTransactions
from tests.coordinator.paired_groups import Difference, Kafka

SOURCE = Path(__file__).parent / "java" / "Transactions.java"
IDS = ("a", "b", "c")
ADD_BY_LEADER, ADD_BY_CLIENT = 5, 3
"""Versions of AddPartitionsToTxn."""

Step = dict[str, Any]


class PairedTransactions:
    """Both coordinators; a step is made at `now`."""

    def __init__(self, kafka: Kafka, allows_two_phase_commit: bool) -> None:
        self.kafka = kafka
        self.ours = OurTransactions(allows_two_phase_commit)
        self.now = NOW
        self.kafkas_log: list[KeyValue] = []
        self.version = 2
        self.leaders: dict[tuple[str, int], int] = {}
        self._held: Step = {}
        """The step whose records are not committed yet: its response comes with the next step."""
        settings = {"expiration": EXPIRATION_MS, "longest": LONGEST_MS, "two_phase": allows_two_phase_commit}
        self._ask({"op": "begin", **settings})

    def _ask(self, step: Step) -> dict[str, Any]:
        leaders = [[topic, index, leader] for (topic, index), leader in self.leaders.items()]
        common = {"now": self.now, "version": self.version, "leaders": leaders, "ids": IDS, "filters": [[], [], -1, ""]}
        return self.kafka.make(common | {"refusal": "", "is_held": False, "has_ids": True} | step)

    def make(self, step: Step, log: Sequence[KeyValue] = ()) -> list[dict[str, Any]]:
        """Make a step on both sides, and return the responses; ours loads `log`. Errors: Difference."""
        ours = self.ours
        before = len(log) if step["op"] == "load" else len(ours.log.records)
        theirs = self._ask(step)
        ours.now, ours.version = self.now, self.version
        ours.has_ids, ours.log.is_held = step.get("has_ids", True), step.get("is_held", False)
        refusal = step.get("refusal", "")
        ours.log.refusal = ErrorCode[refusal] if refusal else None
        ours.answers.clear()
        if step["op"] != "load":  # who has lost the partition tries nothing more
            ours.advance()
        ours.leaders = dict(self.leaders)
        markers = self._make_ours(step, log)
        ours.advance()
        if step["op"] == "answer" and not refusal:
            ours.transactions.advance(self.now + RETRY_MS)  # Kafka looks for the new leaders at once
        answers = [_plain(each) for each in ours.answers]
        written = ours.log.records[before:]
        kafkas = _records(theirs["written"])
        self.kafkas_log = (_records(step["log"]) if step["op"] == "load" else self.kafkas_log) + kafkas
        asked, self._held = self._held or step, step if step.get("is_held") else {}
        _compare("answers", answers, [_known(each, asked) for each in theirs["answers"]])
        _compare("records", _readable(written), _readable(kafkas))
        _compare("markers", markers, theirs["markers"])
        if not step.get("is_held") and not step.get("refusal"):
            _compare("described", ours.described(IDS), theirs["described"])
            _compare("listed", ours.listed(_filters(step)), theirs["listed"])
        return answers

    def _make_ours(self, step: Step, log: Sequence[KeyValue]) -> list[str]:
        ours = self.ours
        match step["op"]:
            case "answer":
                return ours.answer_markers(step["broker"], step["errors"], step["is_lost"])
            case "time":
                ours.transactions.tick(self.now)
            case "load":
                ours.load(log)
            case "init" | "add" | "verify" | "end":
                ours.handle(*_request(step))
            case _:
                pass
        return []


def _request(step: Step) -> tuple[Message, int]:
    id, producer, epoch = step["id"], step["producer"], step["epoch"]
    is_new = step.get("spoken") == 2
    match step["op"]:
        case "init":
            return InitProducerIdRequest(
                transactional_id=id,
                transaction_timeout_ms=step["timeout"],
                producer_id=producer,
                producer_epoch=epoch,
                enable2_pc=step["two_phase"],
                keep_prepared_txn=step["keep"],
            ), 6
        case "end":
            return EndTxnRequest(
                transactional_id=id, producer_id=producer, producer_epoch=epoch, committed=step["commits"]
            ), 5 if is_new else 4
        case "add" if step["partitions"] == [OFFSETS]:
            return AddOffsetsToTxnRequest(
                transactional_id=id, producer_id=producer, producer_epoch=epoch, group_id="g"
            ), 4
        case _:
            return _partitions_request(step, is_new)


def _partitions_request(step: Step, is_new: bool) -> tuple[AddPartitionsToTxnRequest, int]:
    by_topic: dict[str, list[int]] = {}
    for topic, index in step["partitions"]:
        by_topic.setdefault(topic, []).append(index)
    topic = AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
    topics = [topic(name=name, partitions=indexes) for name, indexes in by_topic.items()]
    id, producer, epoch = step["id"], step["producer"], step["epoch"]
    if not is_new:
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=id,
            v3_and_below_producer_id=producer,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=topics,
        ), ADD_BY_CLIENT
    of_one = AddPartitionsToTxnRequest.AddPartitionsToTxnTransaction(
        transactional_id=id,
        producer_id=producer,
        producer_epoch=epoch,
        verify_only=step["op"] == "verify",
        topics=topics,
    )
    return AddPartitionsToTxnRequest(transactions=[of_one]), ADD_BY_LEADER


def _filters(step: Step) -> ListTransactionsRequest:
    producers, states, duration_ms, pattern = step.get("filters", [[], [], -1, ""])
    return ListTransactionsRequest(
        producer_id_filters=producers,
        state_filters=states,
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


def _plain(answer: Message) -> dict[str, Any]:
    match answer:
        case InitProducerIdResponse() | EndTxnResponse():
            return {"error": answer.error_code, "producer": answer.producer_id, "epoch": answer.producer_epoch}
        case AddOffsetsToTxnResponse():
            return {"error": answer.error_code}
        case AddPartitionsToTxnResponse():
            topics = [topic for each in answer.results_by_transaction for topic in each.topic_results]
            return {
                f"{topic.name}-{each.partition_index}": each.partition_error_code
                for topic in answer.results_by_topic_v3_and_below + topics
                for each in topic.results_by_partition
            }
        case _:
            raise AssertionError(answer)


def _known(answer: dict[str, Any], step: Step) -> dict[str, Any]:
    """Kafka's answer in the form of the request's: an error of AddPartitionsToTxn is each partition's."""
    if "partitions" not in step or "error" not in answer:
        return answer
    if step["partitions"] == [OFFSETS]:
        return {"error": answer["error"]}
    return {f"{topic}-{index}": answer["error"] for topic, index in step["partitions"]}


def as_text(records: Sequence[KeyValue]) -> list[tuple[str, str]]:
    return [(key.hex(), (value or b"").hex()) for key, value in records]


def _records(rows: Sequence[tuple[str, str]]) -> list[KeyValue]:
    return [(bytes.fromhex(key), bytes.fromhex(value) or None) for key, value in rows]


def _readable(records: Sequence[KeyValue]) -> list[Any]:
    return sorted(map(_readable_record, records), key=repr)


def _readable_record(record: KeyValue) -> Any:
    key, value = record
    if value is None:
        return decode_key(key), None
    found = decode_value(decode_key(key), value)
    shown = {name: getattr(found, name) for name in found.__slots__ if name != "partitions"}
    if found.state in COMPLETED:
        del shown["updated_at"]
    return value[:2], shown, sorted(found.partitions)


def _compare(what: str, ours: Any, kafkas: Any) -> None:
    if ours != kafkas:
        raise Difference(f"{what}:\n  ours   {ours}\n  Kafka's {kafkas}")
