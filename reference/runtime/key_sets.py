"""Sets of public keys for tokens (JWKS): read once from a file, or periodically from an HTTP server.

Source: org.apache.kafka.common.security.oauthbearer.internals.secured (VerificationKeyResolverFactory, RefreshingHttpsJwks).
"""

from __future__ import annotations

import asyncio
import time
import urllib.request
from collections.abc import Callable

from reference.node.listeners import BearerSettings
from reference.security.errors import WrongSecurity
from reference.security.signed_tokens import KeySet

LARGEST_SET_BYTES = 1 << 20
TIMEOUT_S = 10.0
SETTING = "sasl.oauthbearer.jwks.endpoint.url"


def read_keys(url: str) -> KeySet:
    """The keys behind a URL. Errors: WrongSecurity."""
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as source:
            data: bytes = source.read(LARGEST_SET_BYTES + 1)
        if len(data) > LARGEST_SET_BYTES:
            raise WrongSecurity(f"the set has more than {LARGEST_SET_BYTES} bytes")
        return KeySet.read(data.decode())
    except (OSError, ValueError, WrongSecurity) as error:
        raise WrongSecurity(f"{SETTING}={url}: {error}") from error


class KeySets:
    """The keys of one listener, and their refresh."""

    def __init__(
        self,
        settings: BearerSettings,
        listener: str,
        found: Callable[[str, KeySet], None],
        log: Callable[[str, str], None],
    ) -> None:
        """Read the keys and pass them to `found`. Errors: WrongSecurity."""
        self._settings, self._listener, self._found, self._log = settings, listener, found, log
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._looked_at = time.monotonic()
        self._is_looking = False
        found(listener, read_keys(settings.keys_url))

    def begin(self, loop: asyncio.AbstractEventLoop) -> None:
        """Refresh the keys periodically, unless they are a file's."""
        if not self._settings.keys_url.startswith("file:"):
            self._loop = loop
            self._rest()

    def _rest(self) -> None:
        assert self._loop is not None
        self._timer = self._loop.call_later(self._settings.refresh_ms / 1000, self._look)

    def look(self) -> None:
        """Refresh now, for an unknown key, but not before the retry backoff since the last refresh has passed."""
        if time.monotonic() - self._looked_at >= self._settings.backoff_ms / 1000:
            self._look()

    def _look(self) -> None:
        if self._loop is None or self._is_looking:
            return
        self._is_looking, self._looked_at = True, time.monotonic()
        reading = self._loop.run_in_executor(None, read_keys, self._settings.keys_url)
        reading.add_done_callback(self._on_read)

    def _on_read(self, reading: asyncio.Future[KeySet]) -> None:
        self._is_looking = False
        if self._timer is not None:
            self._timer.cancel()
        if self._loop is None or reading.cancelled():
            return
        self._rest()
        error = reading.exception()
        if error is None:
            self._found(self._listener, reading.result())
        else:
            self._log("error", f"the keys of {self._listener} could not be read, the former ones stay: {error}")

    def close(self) -> None:
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
