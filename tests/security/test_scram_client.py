"""The client's side of SCRAM: it refuses a server without proof, and too few or too many iterations."""

from __future__ import annotations

import base64

import pytest

from reference.security.errors import WrongSecurity
from reference.security.scram_client import MAX_ITERATIONS, ScramExchange


def proof(iterations: int) -> bytes | None:
    """The client's answer to a server that asks for so many iterations."""
    exchange = ScramExchange("SCRAM-SHA-256", "user", "pencil")
    nonce = exchange.first().decode().rpartition("r=")[2]
    salt = base64.b64encode(b"sixteen  letters").decode()
    return exchange.answer(f"r={nonce}x,s={salt},i={iterations}".encode())


@pytest.mark.parametrize("iterations", [1, 4095, MAX_ITERATIONS + 1, 1 << 31, 10**30])
def test_neither_too_few_nor_too_many_iterations_are_made(iterations: int) -> None:
    with pytest.raises(WrongSecurity, match=r"iterations|must not be [<>]"):
        proof(iterations)
    assert b",p=" in (proof(4096) or b"")


@pytest.mark.parametrize("message", [b"\xff", b"", b"r=other,s=c2l4dGVlbiAgbGV0dGVycw==,i=4096", b"e=unknown-user"])
def test_a_message_that_cannot_be_the_servers_is_refused(message: bytes) -> None:
    exchange = ScramExchange("SCRAM-SHA-512", "user", "pencil")
    exchange.first()
    with pytest.raises(WrongSecurity):
        exchange.answer(message)
