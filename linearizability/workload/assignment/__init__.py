"""How the leader of a classic group shares out partitions: the assignors of Kafka's consumers.

- `subscription`   the input and the result of an assignor
- `range`, `round_robin`, `sticky`   one eager assignor each: a pure function from a group to an assignment
- `cooperative_sticky`   the sticky one, for members that keep their partitions while they join again (KIP-429)

Each member of a group offers the assignors that it knows, by name; the coordinator chooses one that all know (GRP-07).
"""

from collections.abc import Callable

from linearizability.workload.assignment import cooperative_sticky, range, round_robin, sticky
from linearizability.workload.assignment.subscription import Assignment, Group

ASSIGNORS: dict[str, Callable[[Group], Assignment]] = {
    module.NAME: module.assign for module in (range, round_robin, sticky)
}
"""The eager ones, by the name that a JoinGroup offers."""

COOPERATIVE: dict[str, Callable[[Group], Assignment]] = {cooperative_sticky.NAME: cooperative_sticky.assign}
"""Those whose members keep their partitions until they are revoked."""
