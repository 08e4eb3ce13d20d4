"""A cluster on a network of ours, with the hooks `partition` and `heal`. Only inside a sandbox.

with open_networked("reference:3", folder=run_folder, config={}) as target:
    target.partition([[1], [2, 3]]); target.heal()
"""

from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from linearizability.faults.network import Network
from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.cluster import ClusterTarget


@dataclass
class Networked:
    """A target that is started, each node in a network namespace, when this is entered. Errors: TargetError; WrongTarget."""

    spec: str
    folder: Path
    config: Mapping[str, str] | None
    protocol: str
    interposed: bool = False
    """Whether its nodes have disks and clocks that can be hurt."""
    _stack: ExitStack = field(default_factory=ExitStack)

    def interpose(self) -> None:
        """As `ClusterTarget.interpose`, before it is entered."""
        self.interposed = True

    def __enter__(self) -> Target:
        sketch = open_target(self.spec, folder=self.folder)
        if not isinstance(sketch, ClusterTarget):
            raise TargetError(f"{self.spec} brings its own processes: they cannot be put on a network of ours")
        with ExitStack() as stack:
            network = stack.enter_context(Network(sketch.places))
            target = open_target(
                self.spec, folder=self.folder, config=self.config, hosts=network.hosts, protocol=self.protocol
            )
            assert isinstance(target, ClusterTarget)
            target.connect(network)
            if self.interposed:
                target.interpose()
            stack.enter_context(target)
            self._stack = stack.pop_all()
        return target

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._stack.__exit__(kind, error, traceback)


def open_networked(
    spec: str, *, folder: Path, config: Mapping[str, str] | None = None, protocol: str = "PLAINTEXT"
) -> Networked:
    """The target that `spec` names, on a network of its own."""
    return Networked(spec, folder, config, protocol)
