"""The work of a fault in a thread of its own. If the thread dies, the round must not count as tested."""

import threading
from collections.abc import Callable


class Background:
    """Work until `end`; an error that ends it earlier is kept."""

    def __init__(self, name: str, work: Callable[[threading.Event], None]) -> None:
        self.name = name
        self.failure = ""
        """Why it ended by itself; empty where it did not."""
        self._work = work
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def is_alive(self) -> bool:
        return self._thread.is_alive()

    def end(self) -> None:
        """Stop, and wait until it has."""
        self.stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            self._work(self.stopping)
        except Exception as error:  # any error: the fault did not have its effect
            self.failure = f"{self.name} ended by itself: {type(error).__name__}: {error}"
