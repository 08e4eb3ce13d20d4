"""Raising a transactional id's epoch to its end, by as many requests."""

from __future__ import annotations

import time

from conformance.transaction_client import TransactionalClient, expect_agreed
from conformance.wire import Failed
from linearizability.client.requests import TRANSACTION
from reference.protocol.messages.init_producer_id import InitProducerIdRequest

MANY = 100
"""How many requests wait on one connection at a time."""


def raise_epoch(client: TransactionalClient, to: int) -> None:
    """Ask for producer ids until the epoch is the given one: many requests at a time, carried out in any order.

    Skips where the first of them show that the requirement's time is not enough for all.
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
