"""A cluster on a network of ours, with the hooks `partition` and `heal`. Only inside a sandbox.

with open_networked("reference:3", folder=run_folder, config={}) as target:
    target.partition([[1], [2, 3]]); target.heal()
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from linearizability.faults.network import Network
from linearizability.targets import Target, TargetError, open_target
from linearizability.targets.cluster import ClusterTarget


@contextmanager
def open_networked(
    spec: str, *, folder: Path, config: Mapping[str, str] | None = None, protocol: str = "PLAINTEXT"
) -> Iterator[Target]:
    """The target that `spec` names, started, each node in a network namespace. Errors: TargetError; WrongTarget."""
    sketch = open_target(spec, folder=folder)
    if not isinstance(sketch, ClusterTarget):
        raise TargetError(f"{spec} brings its own processes: they cannot be put on a network of ours")
    with Network(sketch.places) as network:
        target = open_target(spec, folder=folder, config=config, hosts=network.hosts, protocol=protocol)
        assert isinstance(target, ClusterTarget)
        target.connect(network)
        with target:
            yield target
