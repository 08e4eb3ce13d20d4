"""The process of one client: `python -m linearizability.workload.client JSON`.

It works until SIGTERM, then ends cleanly: it waits for requests in flight, within bounds, and the history file is
closed. A client that is killed leaves a history file without its last line, which its readers detect.
"""

import errno
import os
import signal
import sys
import threading

from linearizability.history.recorder import RecordingError
from linearizability.workload.client_run import CANNOT_RECORD, ClientRun, ClientTask
from linearizability.workload.profile import Consuming, Producing, Transacting


def main(arguments: list[str]) -> None:
    """Run one client until SIGTERM.

    The handler does not set the event itself: it may have interrupted the main thread, or itself, inside the event's lock.
    """
    task = ClientTask.model_validate_json(arguments[0])
    client_run = ClientRun(task)
    signal.signal(signal.SIGTERM, lambda *_: threading.Thread(target=client_run.stopping.set, daemon=True).start())
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    match task.does:
        case Producing(client="exact"):
            from linearizability.workload.exact_producer import run
        case Producing():
            from linearizability.workload.producer import run
        case Transacting():
            from linearizability.workload.transacting import run
        case Consuming():
            from linearizability.workload.consumer import run
    try:
        run(client_run)
        client_run.say(client_run.counts)
    except (RecordingError, OSError) as error:
        if isinstance(error, OSError) and error.errno != errno.ENOSPC:
            raise
        os._exit(CANNOT_RECORD)
    if client_run.hung:
        os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
