"""Raise a transactional id's epoch to its limit, by one InitProducerId for each epoch."""

from __future__ import annotations

import time

from conformance.transaction_client import TransactionalClient, expect_agreed
from conformance.wire import Failed
from linearizability.client.requests import TRANSACTION
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

MANY = 100
"""The most requests in flight on one connection."""


def raise_epoch(client: TransactionalClient, to: int) -> None:
    """Send InitProducerId until the epoch is `to`: many requests at a time, which the coordinator may serve in any order.

    Skips where the duration of the first ones shows that the deadline is too short for all.
    """
    request = InitProducerIdRequest(transactional_id=client.name, transaction_timeout_ms=client.timeout_ms)
    version = client.broker.version_for(request)
    connection = client.broker.connect(client.broker.coordinator(client.name, TRANSACTION))
    id, epoch = client.identity
    begun, begun_s = epoch, time.monotonic()
    while epoch < to:
        taken_s = time.monotonic() - begun_s
        if epoch > begun and taken_s * (to - epoch) / (epoch - begun) > client.broker.ends_s - time.monotonic():
            client.broker.skip(f"{epoch - begun} epochs took {taken_s:.1f} s: {to} are too many for the deadline")
        together = min(to - epoch, MANY)
        for _ in range(together):
            connection.send(request, version)
        answers = [connection.receive() for _ in range(together)]
        for answer in answers:
            expect_agreed("InitProducerId", answer.error_code)
        given = sorted((answer.producer_id, answer.producer_epoch) for answer in answers)
        for number, found in enumerate(given):
            if found != (id, epoch + number + 1):
                raise Failed(f"after ({id}, {epoch + number}) comes {found}")
        epoch += together
    client.become(id, epoch)
