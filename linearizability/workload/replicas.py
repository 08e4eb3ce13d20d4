"""The replicas' records, read from the nodes' own data folders after healing.

Consumers see leaders only; two replicas that differ are found here, before one of them ever leads.
"""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from linearizability.history.contract import Contract
from linearizability.history.operations import Value, replica
from linearizability.history.recorder import Recorder
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import Target
from reference.protocol.records.batch import read_batches, records_of
from reference.protocol.records.errors import RecordsError
from reference.protocol.records.legacy import read_message_set

CHECKPOINT = "replication-offset-checkpoint"
"""The file in which a broker notes, every few seconds, the high watermark of each of its partitions."""
MAGIC_AT = 16
"""The position of the format's number, old or new, in an entry of a segment."""


def record_replicas(
    target: Target, topic: str, folder: Path, *, process: int, contract: Contract, run: str
) -> list[str]:
    """Record each node's replica of each partition. Returns a sentence for each one that could not be read."""
    if not isinstance(target, ClusterTarget):
        return []
    failures: list[str] = []
    with Recorder.open(folder, process=process, contract=contract, run=run) as recorder:
        for member in target.members:
            watermarks = high_watermarks(member.data)
            for home in sorted(member.data.glob(f"{topic}-*")):
                try:
                    records = list(held(home))
                except (OSError, RecordsError) as error:
                    failures.append(f"the replica of {home.name} on node {member.node.id} cannot be read: {error}")
                    continue
                watermark = watermarks.get(home.name, -1)
                operation = recorder.invoke("replica")
                recorder.ok(operation, [replica(home.name, member.node.id, records, watermark)])
    return failures


def held(home: Path) -> Iterator[tuple[Value, ...]]:
    """Offset, value and leader epoch of every record in a partition's folder; control records are left out.

    Errors: OSError, RecordsError.
    """
    for segment in sorted(home.glob("*.log")):
        data = segment.read_bytes()
        if len(data) <= MAGIC_AT or data[MAGIC_AT] < 2:
            for record in read_message_set(data):
                yield record.offset, _value(record.value), -1
            continue
        for batch in read_batches(data):
            if batch.header.is_control:
                continue
            for record in records_of(batch.data):
                yield record.offset, _value(record.value), batch.header.leader_epoch


def high_watermarks(data: Path) -> dict[str, int]:
    """Partition's folder name -> high watermark, as the broker last noted it; empty where it has not."""
    found: dict[str, int] = {}
    with suppress(OSError):
        for line in (data / CHECKPOINT).read_text().splitlines()[2:]:
            name, partition, offset = line.rsplit(" ", 2)
            found[f"{name}-{partition}"] = int(offset)
    return found


def _value(raw: object) -> Value:
    text = bytes(raw).decode(errors="replace") if isinstance(raw, bytes | bytearray | memoryview) else ""
    return int(text) if text.isdigit() else text
