"""The common part of the drivers of transactions and groups: it moves the coordinator to the script's broker."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from linearizability.guided.driver import Driver, S
from linearizability.simulation.schedule import Fault


class CoordinatorDriver(Driver[S]):
    """Drives a coordinator, which is the first of the script's brokers, and its clients."""

    topic = ""
    """The topic whose only partition the coordinator leads."""

    def _bring_shard(self, is_known: Callable[[], bool], then: Callable[[], None]) -> None:
        """Once there is a coordinator and `is_known`: an operator moves it to its broker, and `then` is called."""
        self._wait_until(lambda: is_known() and self._has_leader(), lambda: self._move(then))

    def _has_leader(self) -> bool:
        operator = self._cluster.operator
        return operator is not None and operator.is_ready and self._cluster.leader_of((self.topic, 0)) is not None

    def _move(self, then: Callable[[], None]) -> None:
        assert self._cluster.operator is not None
        broker, shard = self._nodes[0], (self.topic, 0)
        if self._cluster.leader_of(shard) != broker:
            self._cluster.operator.take(Fault(at_ms=0, kind="reassign", topic=self.topic, others=(broker,)))
        self._wait_until(lambda: self._cluster.leader_of(shard) == broker and self._serves(), then)

    @abstractmethod
    def _serves(self) -> bool:
        """Whether the coordinator has loaded its log."""
