"""The page of access control: what each API needs, by the table that the reference enforces."""

from __future__ import annotations

from conformance.requirement import catalogue
from reference.protocol.acls import Operation
from reference.protocol.apis import APIS
from reference.protocol.needs import NEEDS, ON_CONTROLLERS, Need, Row

INTRODUCTION = """# What each API needs

An API needs an operation on each resource that its request names. A need of items refuses these items; any other refuses the
request as a whole. What is hidden is left out of the response, without an error. An operation on the cluster that does as well
is named after "or". The reference enforces this table ([protocol/needs.py](../reference/README.md)), and the area
[ACL](ACL.md) judges it. Source: KafkaApis and ControllerApis
of Apache Kafka 4.0, by the methods in the last column; rows that the area judges were confirmed on 4.3.1 and 3.9.2.
"""
COLUMNS = ("API", "versions", "needs", "of", "refused with", "method of Kafka")


def access_page() -> str:
    """Markdown."""
    rows = [row for key in NEEDS for row in rows_of(APIS[key].name, NEEDS[key])]
    rows += [row for key in ON_CONTROLLERS for row in rows_of(f"{APIS[key].name}, on controllers", ON_CONTROLLERS[key])]
    lines = ["| " + " | ".join(each) + " |" for each in (COLUMNS, ("---",) * len(COLUMNS), *rows)]
    judged = sum(id.startswith("ACL-") for id in catalogue())
    return "\n".join([INTRODUCTION, f"{judged} requirements judge access control.\n", *lines]) + "\n"


def rows_of(name: str, row: Row) -> list[tuple[str, ...]]:
    """The lines of one API."""
    lines = [(name, need.versions, needed(need), place(need), need.error.name, row.source) for need in row.needs]
    lines += [(name, need.versions, needed(need), place(need), "hidden", row.source) for need in row.hides]
    return lines or [(name, "0+", "nothing", "", "", row.source)]


def needed(need: Need) -> str:
    """The operations that are enough."""
    other = f" or {operation(need.on_cluster)} of the cluster" if need.on_cluster is not None else ""
    return f"{operation(need.operation)} of {need.resource.name.lower().replace('_', ' ')}{other}"


def operation(number: Operation) -> str:
    """Its name in Kafka's documentation: `ClusterAction`."""
    return "".join(word.capitalize() for word in number.name.split("_"))


def place(need: Need) -> str:
    return f"`{need.of}`" if need.of else "the request"
