"""An event loop beside blocking code, for proxies and tunnels."""

from __future__ import annotations

import asyncio
import threading
from typing import Any


class Loop:
    """An event loop in its own thread. A context manager."""

    def __enter__(self) -> Loop:
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, name="event loop", daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def run(self, coroutine: Any) -> Any:
        """Run a coroutine in the loop, and return its result."""
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()
