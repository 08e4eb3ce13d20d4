"""The levels of this broker's loggers, which an operator may change at run time (KIP-412). They are lost at a restart.

There are two: the root, and the broker's own, which uses the root's level while it has none.
"""

from __future__ import annotations

from reference.controller.configs import APPEND, DELETE, SUBTRACT, Alteration
from reference.protocol.errors import ErrorCode, KafkaError

ROOT, OWN = "root", "tidegauge.broker"
LEVELS = ("TRACE", "DEBUG", "INFO", "WARN", "ERROR", "FATAL")
_LEVEL_OF = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
"""The node's names of log levels -> Kafka's."""


class Loggers:
    """The loggers and their levels."""

    def __init__(self) -> None:
        self._levels: dict[str, str | None] = {ROOT: "INFO", OWN: None}

    def admits(self, level: str) -> bool:
        """Whether a message of this level (info, warning, error) is logged."""
        return LEVELS.index(_LEVEL_OF[level]) >= LEVELS.index(self.effective()[OWN])

    def effective(self) -> dict[str, str]:
        """Logger -> its effective level."""
        root = self._levels[ROOT] or "INFO"
        return {name: level or root for name, level in self._levels.items()}

    def alter(self, changes: list[Alteration], validate_only: bool) -> None:
        """Change all of the levels, or none. Errors: KafkaError with Kafka's messages."""
        for change in changes:
            self._require_possible(change)
        for change in changes if not validate_only else ():
            self._levels[change.name] = None if change.operation == DELETE else change.value

    def _require_possible(self, change: Alteration) -> None:
        name, level = change.name, change.value
        if change.operation in (APPEND, SUBTRACT):
            word = "APPEND" if change.operation == APPEND else "SUBTRACT"
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"{word} operation is not allowed for the BROKER_LOGGER resource"
            )
        if change.operation != DELETE and level is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {name}")
        if name not in self._levels:
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
        if change.operation == DELETE and name == ROOT:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not allowed")
        if change.operation != DELETE and level not in LEVELS:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"Cannot set the log level of {name} to {level} as it is not a supported log level. Valid log levels are "
                + ", ".join(sorted(LEVELS)),
            )
