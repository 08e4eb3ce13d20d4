"""What the conductors of transactions and of groups have in common: the coordinator is where the score has it."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable

from linearizability.simulation.conducting.conductor import Conductor, S
from linearizability.simulation.schedule import Fault


class ShardConductor(Conductor[S]):
    """Plays a score on a coordinator, which is the first of the score's brokers, and on its clients."""

    topic = ""
    """Whose only partition the coordinator leads."""

    def _bring_shard(self, is_known: Callable[[], bool], then: Callable[[], None]) -> None:
        """Once there is a coordinator and `is_known`: have an operator move it to its broker, and go on."""
        self._wait_until(lambda: is_known() and self._is_led(), lambda: self._move(then))

    def _is_led(self) -> bool:
        operator = self._cluster.operator
        return operator is not None and operator.is_ready and self._cluster.leader_of((self.topic, 0)) is not None

    def _move(self, then: Callable[[], None]) -> None:
        assert self._cluster.operator is not None
        broker, shard = self._places[0], (self.topic, 0)
        if self._cluster.leader_of(shard) != broker:
            self._cluster.operator.take(Fault(at_ms=0, kind="reassign", topic=self.topic, others=(broker,)))
        self._wait_until(lambda: self._cluster.leader_of(shard) == broker and self._serves(), then)

    @abstractmethod
    def _serves(self) -> bool:
        """Whether the coordinator has taken up its log."""
