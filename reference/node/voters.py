"""Who votes in the metadata quorum, and where they are found: controller.quorum.voters."""

from __future__ import annotations

import re
from collections.abc import Mapping

from reference.protocol.primitives import NodeId

Address = tuple[str, int]

QUORUM_LANE, QUORUM_FETCH_LANE = "quorum", "quorum-fetch"
QUORUM_LANES = frozenset({QUORUM_LANE, QUORUM_FETCH_LANE})
"""On these voters ask each other."""

_VOTER = re.compile(r"(\d+)@(\[[0-9a-fA-F:]+\]|[^:@]+):(\d+)")


def voters_of(properties: Mapping[str, str], node: NodeId) -> dict[NodeId, Address]:
    """The voters by id. Where none are named the node is its own quorum, and nobody needs its address.

    Errors: ValueError for what is no `ID@HOST:PORT`.
    """
    text = properties.get("controller.quorum.voters", "")
    found: dict[NodeId, Address] = {}
    for item in text.split(","):
        if item.strip():
            matched = _VOTER.fullmatch(item.strip())
            if matched is None:
                raise ValueError(f"'{item}' is no voter: ID@HOST:PORT is needed")
            found[int(matched[1])] = matched[2].strip("[]"), int(matched[3])
    return found or {node: ("127.0.0.1", 0)}
