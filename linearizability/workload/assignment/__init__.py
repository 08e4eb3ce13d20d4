"""How the leader of a classic group shares out partitions: the three assignors of Kafka's consumers.

- `subscription`   what an assignor is told, and what it answers
- `range`, `round_robin`, `sticky`   one assignor each: a pure function from a group to an assignment
- `comparison`     the three on one example, as the table of the page

Each member of a group offers the assignors that it knows, by name; the coordinator chooses one that all know (GRP-07).
"""

from collections.abc import Callable, Mapping

from linearizability.workload.assignment import range, round_robin, sticky
from linearizability.workload.assignment.subscription import Assignment, Group

ASSIGNORS: Mapping[str, Callable[[Group], Assignment]] = {
    module.NAME: module.assign for module in (range, round_robin, sticky)
}
"""By the name that a JoinGroup offers."""
