"""Closing all logs of a directory at a clean shutdown."""

from collections.abc import Iterable

from reference.protocol.primitives import Offset
from reference.storage.disk import Disk
from reference.storage.errors import StorageError
from reference.storage.log import Log


def close_all(disk: Disk, logs: Iterable[Log]) -> list[StorageError]:
    """Close the logs, with their flushes side by side. Returns the errors of logs that cannot be closed.

    Errors: OSError where a flush fails: then no log is known to be durable beyond its recovery point.
    """
    failures: list[StorageError] = []
    closing: dict[Log, Offset] = {}
    for log in logs:
        try:
            log.resume()  # the order of what it writes matters
            closing[log] = log.recovery_point
        except StorageError as error:
            failures.append(error)
    try:
        with disk.side_by_side():
            for log in closing:
                try:
                    log.close()
                except StorageError as error:
                    failures.append(error)
    except OSError:
        for log, recovery_point in closing.items():
            log.recovery_point = recovery_point
        raise
    return failures
