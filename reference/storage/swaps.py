"""Completes segment swaps that a crash interrupted: the compacted segment replaces its originals.

    00000000000000000000.log.cleaned    incomplete: it does not count
    00000000000000000000.log.swap       complete and durable: it counts, its originals do not
    00000000000000000010.log.deleted    an original that was replaced

An index that a crash left may belong to either: the indexes of the swapped segment are built again from its batches. An
original after the swapped segment's last batch cannot be recognized, and is kept: the next compaction drops its records. Of
several segments that Kafka makes of one, none counts before all are written.
Source: org.apache.kafka.storage.internals.log.LogLoader (KAFKA-6264).
"""

from pathlib import Path

from reference.protocol.primitives import Offset
from reference.protocol.records.batch import HEADER_BYTES, LENGTH_END, header_at
from reference.storage.disk import Disk
from reference.storage.segment import CLEANED_SUFFIX, LOG_SUFFIX, SWAP_SUFFIX, file_name, remove_files


def complete_swaps(disk: Disk, folder: Path, names: list[str]) -> list[str]:
    """Complete each swap that counts. `names` are the folder's; returns its names afterwards. Errors: OSError."""
    unfinished, swaps = _bases(names, CLEANED_SUFFIX), _bases(names, SWAP_SUFFIX)
    for base in swaps:
        if unfinished and base >= unfinished[0]:
            remove_files(disk, folder, base, SWAP_SUFFIX)
            continue
        end = _end_of(disk, folder / (file_name(base, LOG_SUFFIX) + SWAP_SUFFIX), base)
        for original in {base, *(each for each in _bases(disk.list_folder(folder), "") if base <= each < end)}:
            remove_files(disk, folder, original, "")
        log = file_name(base, LOG_SUFFIX)
        disk.rename(folder / (log + SWAP_SUFFIX), folder / log)
    return disk.list_folder(folder) if swaps else names


def _bases(names: list[str], ending: str) -> list[Offset]:
    """Base offsets of the segments whose log file has this ending, ascending."""
    return [Offset(int(name.partition(".")[0])) for name in names if name.endswith(LOG_SUFFIX + ending)]


def _end_of(disk: Disk, path: Path, base: Offset) -> Offset:
    """The offset behind the last batch of a log file."""
    file, position, end = disk.open_file(path), 0, base
    while position + HEADER_BYTES <= file.size:
        header = header_at(file.read(position, HEADER_BYTES), 0)
        if header.length < HEADER_BYTES - LENGTH_END or header.next_offset < end:
            break
        position, end = position + header.size, header.next_offset
    return end
