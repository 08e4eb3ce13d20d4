"""The vocabulary of histories: clients' operations, and the events of their begin and end.

An operation is one call of a client. It begins with an `invoke` event and ends with one of

- `ok`    it happened, and this is what was seen,
- `fail`  it certainly did not happen (and never will),
- `info`  unknown: a timeout, a lost connection, a killed client. Where it does not say what a poll returned, the consumer may
          read on anywhere; a poll that certainly returned nothing is `fail`, or `ok` without records.

An operation that never ends is as `info`. What an operation does is a list of micro-operations, plain dictionaries made
by the functions of this module; the completion repeats them with the results filled in.

| f | micro-operations | meaning |
| --- | --- | --- |
| `send` | `send` | records produced outside a transaction, or inside the transaction named by `txn` |
| `poll` | `poll` | records that one or more polls returned |
| `txn` | `send`, `poll`, `commit` | one whole transaction in one operation |
| `begin`, `end` | – | a transaction's begin, and its commit (`commit: true`) or abort (`commit: false`); both name `txn` |
| `assign`, `subscribe` | – | the consumer's partitions are from now on `keys`; positions of kept partitions stay |
| `seek` | – | the consumer jumps in the partitions `keys`; `to` says where, if it is one of `PASSES_NOTHING` |
| `commit` | `commit` | a group's offsets committed (also from within a transaction, where `txn` is named) |
| `committed` | `committed` | a group's committed offsets fetched |
| `list_offsets` | `list_offsets` | a partition's start and end offset asked for |
| `drain` | `drain` | a reader read a partition from its start up to its end: the final read after healing |
| `state` | `state` | one node's view of a partition: high watermark, last stable offset, log start, log end, epoch |
| `replica` | `replica` | the records that one replica holds |
| `read`, `write`, `cas` | – | a register (`key`), for imported histories |

A *key* is a partition's name: `topic-partition` (`orders-3`), or any name or number where there are no topics. A *value*
is a record's identity: an integer or a string, **unique in its partition for the whole run**; a value that is sent twice
cannot be judged. A topic that is deleted and created again is another topic: from then on name its partitions otherwise
(`orders.2-3`), or its offsets seem to be given twice. Times are monotonic nanoseconds of one machine's clock, or virtual ones.
"""

from collections.abc import Mapping, Sequence
from typing import Any

Key = str | int
Value = int | str
MicroOperation = dict[str, Any]

INVOKE, OK, FAIL, INFO = "invoke", "ok", "fail", "info"
COMPLETIONS = (OK, FAIL, INFO)
PRODUCING = ("send", "begin", "end", "txn")
CONSUMING = ("poll", "assign", "subscribe", "seek", "drain", "list_offsets", "commit", "committed")
INSPECTING = ("state", "replica")
REGISTERS = ("read", "write", "cas")
OPERATIONS = frozenset((*PRODUCING, *CONSUMING, *INSPECTING, *REGISTERS))
PASSES_NOTHING = frozenset({"start", "committed", "truncation"})
"""Seeks after which a consumer must still read all records: to the log start, its group's offset, a truncated log."""
MARKS = frozenset({"fault", "heal", "quiet", "note", "excuse", "excuse-over"})
"""Events that are no client's operation: faults begin and end, phases of a run, what may explain a loss (`excuses`)."""


def send(key: Key, value: Value, offset: int | None = None, acks: str | None = None) -> MicroOperation:
    """A record sent; the completion carries its offset where the broker returned it. `acks` where it differs."""
    operation: MicroOperation = {"op": "send", "key": key, "value": value}
    if offset is not None:
        operation["offset"] = offset
    if acks is not None:
        operation["acks"] = acks
    return operation


def poll(
    records: Mapping[Key, Sequence[Sequence[Value]]] | None = None, ends: Mapping[Key, int] | None = None
) -> MicroOperation:
    """What one poll returned: per partition, in the order of delivery, pairs of offset and value (or triples with the
    leader epoch). `ends` are the high watermarks that the fetch answered, where the client shows them."""
    operation: MicroOperation = {"op": "poll"}
    if records is not None:
        operation["records"] = {str(key): [list(pair) for pair in pairs] for key, pairs in records.items()}
    if ends is not None:
        operation["ends"] = {str(key): end for key, end in ends.items()}
    return operation


def commit(group: str, offsets: Mapping[Key, int], generation: int = -1, member: str = "") -> MicroOperation:
    """Offsets committed for a group, in a generation, by a member: a static one by its instance id, for it comes back in the same
    generation under another member id."""
    return {
        "op": "commit",
        "group": group,
        "generation": generation,
        "member": member,
        "offsets": {str(key): offset for key, offset in offsets.items()},
    }


def committed(group: str, offsets: Mapping[Key, int | None] | None = None) -> MicroOperation:
    """A group's committed offsets as the coordinator answered; None where it had none."""
    operation: MicroOperation = {"op": "committed", "group": group}
    if offsets is not None:
        operation["offsets"] = {str(key): offset for key, offset in offsets.items()}
    return operation


def list_offsets(key: Key, start: int | None = None, end: int | None = None) -> MicroOperation:
    """A partition's log start and end (the next offset) as the leader answered."""
    return {"op": "list_offsets", "key": key, "start": start, "end": end}


def drain(key: Key, start: int, end: int, position: int) -> MicroOperation:
    """A final read: the reader began at `start`, `end` was the log end when it began, and it reached `position`.

    The log end is the high watermark, also for a reader of committed records: its own end would be the last stable offset, and
    acknowledged records beyond that would count as lost. Where records may expire, it lists the log start again (`list_offsets`)
    before it ends: records that have expired meanwhile are not lost."""
    return {"op": "drain", "key": key, "start": start, "end": end, "position": position}


def state(key: Key, node: int, **offsets: int) -> MicroOperation:
    """A node's view: any of high_watermark, last_stable_offset, log_start, log_end, epoch."""
    return {"op": "state", "key": key, "node": node, **offsets}


def replica(key: Key, node: int, records: Sequence[Sequence[int | str]], high_watermark: int = -1) -> MicroOperation:
    """What one replica holds on disk: triples of offset, value and leader epoch (-1 where unknown)."""
    return {
        "op": "replica",
        "key": key,
        "node": node,
        "high_watermark": high_watermark,
        "records": [list(record) for record in records],
    }
