"""How commands reach a target that was started by other means."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

Mapped = Annotated[
    list[str] | None,
    typer.Option(
        "--map",
        metavar="ADVERTISED=REACHABLE",
        help="Where an advertised address is reached from here: HOST:PORT=HOST:PORT or HOST=HOST; may be repeated.",
    ),
]
ClientConfig = Annotated[
    Path | None,
    typer.Option(
        "--client-config",
        metavar="FILE",
        exists=True,
        dir_okay=False,
        help="client.properties of a secured addr: or exec: target, by the names of Kafka's clients: security.protocol, ssl.*, "
        "sasl.*.",
    ),
]


class SecurityProtocol(StrEnum):
    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"


SecuredBy = Annotated[
    SecurityProtocol,
    typer.Option(
        "--security",
        help="The protocol between clients and brokers, and between brokers, of clusters that are started here (reference, "
        "kafka:, mixed:): with a certificate and a user of their own, by PLAIN.",
    ),
]
