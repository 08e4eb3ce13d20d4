"""A broker is asked to change a configuration by an operation that does not exist (KIP-339)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from linearizability.findings import quorum
from linearizability.findings.waiting import await_true
from linearizability.targets import open_target
from linearizability.targets.cluster import ClusterTarget
from linearizability.targets.target import Node
from linearizability.targets.wire import Wire, WireError
from reference.protocol.errors import name_of
from reference.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from reference.protocol.primitives import NO_NODE

TOPIC = 2
"""The type of the resource."""
KNOWN, UNKNOWN = 0, 4
"""SET, and one above SUBTRACT."""
ASKED = 3
ANSWERED_WITHIN_S = 10.0
RENOUNCES_WITHIN_S = 5.0


def reproduce(spec: str, folder: Path) -> tuple[bool | None, list[str]]:
    """Reproduce the finding. Errors: TargetError, WrongTarget."""
    seen: list[str] = []
    with open_target(spec, folder=folder) as opened:
        target = quorum.several_nodes(opened)
        changes = 0
        for operation in (KNOWN, *[UNKNOWN] * ASKED):
            before = quorum.leader(target)
            said = _asked(target.nodes[0], operation)
            changed = await_true(partial(_is_another, target, before), RENOUNCES_WITHIN_S)
            seen.append(
                f"operation {operation}: {said}; the active controller was {before}, is {quorum.leader(target)}"
            )
            if operation == KNOWN and changed:
                return None, [*seen, "so nothing can be said of the operation"]
            changes += operation == UNKNOWN and changed
        return changes > 0, seen


def _is_another(target: ClusterTarget, before: int) -> bool:
    """Whether another node than before is the active controller."""
    return quorum.leader(target) not in (before, NO_NODE)


def _asked(broker: Node, operation: int) -> str:
    """Send the request, which names a topic that does not exist, and return the error."""
    table = IncrementalAlterConfigsRequest
    config = table.AlterableConfig(name="retention.ms", config_operation=operation, value="1")
    request = table(
        resources=[table.AlterConfigsResource(resource_type=TOPIC, resource_name="nowhere", configs=[config])]
    )
    try:
        with Wire.connect(broker.host, broker.port, timeout_s=ANSWERED_WITHIN_S) as wire:
            return name_of(wire.call(request).responses[0].error_code)
    except (WireError, OSError) as error:
        return str(error)
