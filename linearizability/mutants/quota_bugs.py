"""Bugs in quotas: clients that are not throttled, or throttled by the wrong quota."""

from __future__ import annotations

from typing import Any

from linearizability.mutants.registry import mutant


@mutant(
    "reference.quotas.table:QuotaTable.limit_of_client",
    "A quota for a client id goes before one for this client id of any user.",
    caught_by=("QTA-25",),
)
def general_quota_first(original: Any, table: Any, quota: str, user: str, client_id: str) -> Any:
    for which in (client_id, None):
        found = table.of((("client-id", which),)).get(quota)
        if found is not None:
            return original(_Alone({(("client-id", which),): {quota: found}}), quota, user, client_id)
    return original(table, quota, user, client_id)


class _Alone:
    """A table with one quota."""

    def __init__(self, values: dict[Any, dict[str, float]]) -> None:
        self._values = values

    def of(self, entity: Any) -> dict[str, float]:
        return self._values.get(entity, {})


@mutant(
    "reference.quotas.table:QuotaTable.limit_of_client",
    "A client may use ten times its quota.",
    caught_by=("QTA-20",),
)
def quota_tenfold(original: Any, table: Any, quota: str, user: str, client_id: str) -> Any:
    found = original(table, quota, user, client_id)
    return found and (found[0], 10 * found[1])


@mutant(
    "reference.node.quotas:Quotas.throttle_fetch",
    "A consumer gets records, whatever its quota.",
    caught_by=("QTA-30",),
)
def consumer_never_throttled(original: Any, quotas: Any, request: Any, size: int) -> int:
    return 0


@mutant(
    "reference.node.quotas:Quotas.throttle",
    "A client that has used up its quota learns it, and its next request is answered at once.",
    caught_by=("QTA-22",),
)
def connection_not_muted(original: Any, quotas: Any, request: Any, response: Any) -> int:
    original(quotas, request, response)
    return 0
