"""Brokers behind one proxy that terminates TLS: the server name in a client's handshake (SNI) selects the broker."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import trustme
from typer.testing import CliRunner

from linearizability.targets.cluster import Member
from linearizability.targets.loop import Loop
from linearizability.targets.ports import free_ports
from linearizability.targets.reference import ReferenceCluster
from tidegauge import app

PORT = 9093
"""The advertised one, of every broker."""
BOOTSTRAP = "localhost"
Address = tuple[str, int]


def name_of(node: int) -> str:
    return f"b-{node}.cluster.example"


class Behind(ReferenceCluster):
    """Brokers that advertise to clients a name which is the proxy's."""

    def __init__(self, folder: Path, nodes: int) -> None:
        super().__init__(f"reference:{nodes}", nodes=nodes, folder=folder)
        self.ports = dict(enumerate(free_ports(nodes), 1))

    def properties(self, member: Member) -> dict[str, str]:
        given, node = super().properties(member), member.node.id
        return given | {
            "listeners": f"{given['listeners']},EXTERNAL://127.0.0.1:{self.ports[node]}",
            "advertised.listeners": f"{given['advertised.listeners']},EXTERNAL://{name_of(node)}:{PORT}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,EXTERNAL:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
        }


async def pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
    writer.close()


@contextmanager
def proxy(authority: trustme.CA, brokers: dict[str, int]) -> Iterator[int]:
    """Its port; it knows brokers by the names that are asked for, and refuses others."""
    asked: dict[int, str] = {}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*brokers).configure_cert(context)
    context.sni_callback = lambda line, name, _: asked.update({id(line): name or ""})

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        name = asked[id(writer.get_extra_info("ssl_object"))]
        inner_reader, inner_writer = await asyncio.open_connection("127.0.0.1", brokers[name])
        await asyncio.gather(pour(reader, inner_writer), pour(inner_reader, writer))

    with Loop() as loop:
        server = loop.run(asyncio.start_server(handle, "127.0.0.1", 0, ssl=context))
        yield server.sockets[0].getsockname()[1]
        loop.loop.call_soon_threadsafe(server.close)


def test_the_name_in_the_handshake_leads_to_its_broker(tmp_path: Path) -> None:
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    config = tmp_path / "client.properties"
    config.write_text(
        f"security.protocol=SSL\nssl.truststore.type=PEM\nssl.truststore.location={tmp_path / 'ca.pem'}\n"
    )
    with Behind(tmp_path / "brokers", 3) as target:
        ports = {name_of(node): port for node, port in target.ports.items()}
        with proxy(authority, ports | {BOOTSTRAP: target.ports[1]}) as port:
            mapped = [part for name in ports for part in ("--map", f"{name}:{PORT}=127.0.0.1:{port}")]
            command = ["run", "BAS-14", "MET-01", "GAD-06", "--target", f"addr:{BOOTSTRAP}:{port}", *mapped]
            done = CliRunner().invoke(
                app, [*command, "--client-config", str(config), "--results", str(tmp_path / "results"), "--json"]
            )
    assert done.exit_code == 0, done.output
    assert done.output.count('"verdict": "pass"') >= 3
