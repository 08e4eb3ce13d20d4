"""This node's registration as a controller with the active one, once per incarnation (KIP-919).

The active controller finalizes a feature only if each voter has reported its supported levels.
Source: kafka.server.ControllerRegistrationManager.
"""

from __future__ import annotations

from collections.abc import Callable

from reference.controller.brokers import METADATA_FEATURE
from reference.controller.controllers import FIRST_WITH_CONTROLLERS
from reference.controller.image import MetadataImage
from reference.node.identity import Identity
from reference.node.peers import Answered
from reference.node.release import SUPPORTED_FEATURES
from reference.protocol.messages.controller_registration import ControllerRegistrationRequest
from reference.protocol.messages.register_controller_record import RegisterControllerRecord
from reference.protocol.primitives import TimestampMs
from reference.protocol.schema import Message

PURPOSE = "registration"

RETRY_MS = 1_000
"""The delay before a controller that is not in the metadata registers again."""


AskController = Callable[[str, Message, Answered, TimestampMs], None]
"""Sends a request to the active controller on the channel for a purpose; the answer is None if there is none."""


class Registering:
    """Registers a controller until the metadata have its incarnation."""

    def __init__(self, identity: Identity, image: MetadataImage, ask: AskController, now: TimestampMs) -> None:
        self._identity = identity
        self._image = image
        self._ask = ask
        self._next = now
        self._asking = False

    def tick(self, now: TimestampMs) -> None:
        """Send a registration, if it is due."""
        if self._asking or now < self._next or not self._is_missing():
            return
        self._asking = True
        self._next = TimestampMs(now + RETRY_MS)
        self._ask(PURPOSE, self._request(), self._answered, now)

    def next_deadline(self) -> TimestampMs | None:
        return None if self._asking or not self._is_missing() else self._next

    def _is_missing(self) -> bool:
        """Whether this node is a controller whose incarnation is missing from metadata that support registrations."""
        if not self._identity.controller_endpoints:
            return False
        if self._image.features.get(METADATA_FEATURE, 0) < FIRST_WITH_CONTROLLERS:
            return False
        found = self._image.carried.get((RegisterControllerRecord, self._identity.node))
        return not isinstance(found, RegisterControllerRecord) or found.incarnation_id != self._identity.incarnation

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._identity.node,
            incarnation_id=self._identity.incarnation,
            listeners=[
                ControllerRegistrationRequest.Listener(
                    name=each.listener, host=each.host, port=each.port, security_protocol=each.protocol
                )
                for each in self._identity.controller_endpoints
            ],
            features=[
                ControllerRegistrationRequest.Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        )

    def _answered(self, answer: Message | None, now: TimestampMs) -> None:
        """Ignore the response: the metadata have the result."""
        self._asking = False
