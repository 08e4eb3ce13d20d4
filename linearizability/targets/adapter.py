"""`exec:PATH`: any broker, through an executable that answers JSON lines (CONTRACT.md)."""

import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from linearizability.targets import contract, leash
from linearizability.targets.addresses import AddressMap, address_text
from linearizability.targets.cluster import new_folder
from linearizability.targets.security import ClientSecurity, Tunnels
from linearizability.targets.target import DiskError, HookMissing, Node, Target, TargetError

ANSWER_WITHIN_S = {"start": 180.0, "restart": 120.0, "config": 120.0}
OTHER_ANSWERS_WITHIN_S = 60.0
END_WITHIN_S = 10.0
END_UNSTARTED_WITHIN_S = 1.0
"""The time to end for an adapter that started no node, and has nothing to clean up."""
EXITS_WITHIN_S = 1.0
"""The longest time between the end of an adapter's output and its exit."""
USUAL_NODES = 3
"""The default number of nodes, enough for replication, where the adapter offers so many."""
LONGEST_LINE_BYTES = 1 << 20


def path_with_ours() -> str:
    """The PATH of an adapter, which ends with this environment's programs, such as `tidegauge`."""
    return os.pathsep.join([os.environ.get("PATH", os.defpath), str(Path(sys.executable).parent)])


class Adapter(Target):
    """A target behind a third party's executable."""

    def __init__(
        self,
        spec: str,
        command: Sequence[str],
        *,
        folder: Path,
        config: Mapping[str, str] | None = None,
        nodes: int | None = None,
    ) -> None:
        self.spec = spec
        self.command = list(command)
        self.wanted_nodes = nodes
        self.folder = folder
        self.given = dict(config or {})
        self.description: contract.Description | None = None
        self._nodes: list[Node] = []
        self._child: subprocess.Popen[bytes] | None = None
        self._log = folder / "adapter.log"
        self._unread = b""
        self._requests = 0

    @property
    def nodes(self) -> Sequence[Node]:
        return self._nodes

    def open(self) -> None:
        leash.remove_leftovers()
        self.folder.mkdir(parents=True, exist_ok=True)
        home = new_folder(self.folder)
        self._log, self._unread = home / "adapter.log", b""
        try:
            with self._log.open("ab") as log:
                self._child = leash.start(
                    self.command,
                    environment={"PATH": path_with_ours()},
                    is_target=True,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=log,
                )
        except PermissionError as error:
            raise TargetError(f"{self.spec} could not be started: {error}; chmod +x makes it a program") from error
        except OSError as error:
            name = self.command[0]
            hint = f"; ./{name} is here, and PATH has no {name}" if "/" not in name and Path(name).exists() else ""
            raise TargetError(f"{self.spec} could not be started: {error}{hint}") from error
        described = self._ask(contract.Describe(id=0), contract.Description)
        self.description = described
        self.hooks = tuple(described.hooks)
        if described.client and not self.security:
            self.security = ClientSecurity.of(described.client)
        wanted = self.wanted_nodes or min(described.max_nodes, USUAL_NODES)
        if wanted > described.max_nodes:
            raise TargetError(f"{self.spec} offers {described.max_nodes} nodes; {wanted} are wanted")
        config = {name: value for name, value in self.given.items() if _is_honoured(name, described)}
        self.unknown_config = tuple(self.given.keys() - config.keys())
        data = home / "adapter"
        data.mkdir()
        start = contract.Start(id=0, nodes=wanted, folder=str(data), config=config)
        started = self._ask(start, contract.Started)
        if self.security:
            tunnels = self.tunnels = Tunnels(self.security)
            ways = {(node.host, node.port): self.addresses.reach(node.host, node.port) for node in started.nodes}
            self.addresses |= AddressMap(
                {address_text(*at): address_text(*tunnels.to(*there, name=at[0])) for at, there in ways.items()}
            )
        self._nodes = [Node(node.id, *self.addresses.reach(node.host, node.port)) for node in started.nodes]

    def close(self) -> None:
        if self.tunnels:
            self.tunnels.close()
            self.tunnels = None
        child, self._child = self._child, None
        if child is None:
            return
        if child.poll() is None and self._nodes:
            with suppress(TargetError):
                self._child = child
                self._ask(contract.Stop(id=0), contract.Nothing)
        self._child = None
        with suppress(OSError):
            child.stdin.close()  # type: ignore[union-attr]
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_WITHIN_S if self._nodes else END_UNSTARTED_WITHIN_S)
        self._end(child)

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """Kill the rest of the adapter's process group."""
        leash.kill_group(child.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            child.wait(END_WITHIN_S)
        child.stdout.close()  # type: ignore[union-attr]
        leash.let_go(child.pid)

    def end_input(self) -> bool:
        """Close the adapter's standard input. Returns whether its whole process group then ends in time."""
        child, self._child = self._child, None
        if child is None:
            raise TargetError(f"{self.spec} is not open")
        child.stdin.close()  # type: ignore[union-attr]
        until = time.monotonic() + END_WITHIN_S
        while (is_alive := child.poll() is None or leash.group_lives(child.pid)) and time.monotonic() < until:
            time.sleep(0.05)
        self._end(child)
        return not is_alive

    @property
    def software(self) -> str:
        return f"{self.description.name} {self.description.version}".strip() if self.description else ""

    def describe(self) -> dict[str, Any]:
        described = self.description.model_dump(exclude={"client"}) if self.description else {}
        return super().describe() | {"config": self.given, "adapter": described}

    def ended_for_memory(self, node: int) -> str:
        return leash.ended_for_memory(self._child.pid) if self._child else ""

    def kill(self, node: int) -> None:
        self._hook("kill", contract.OnNode(id=0, command="kill", node=node))

    def stop(self, node: int) -> None:
        self._hook("stop", contract.Stop(id=0, node=node))

    def restart(self, node: int, *, wait: bool = True) -> None:
        self._hook("restart", contract.OnNode(id=0, command="restart", node=node))
        if self._child:
            leash.forget_end(self._child.pid)

    def pause(self, node: int) -> None:
        self._hook("pause", contract.OnNode(id=0, command="pause", node=node))

    def resume(self, node: int) -> None:
        self._hook("resume", contract.OnNode(id=0, command="resume", node=node))

    def partition(self, groups: Sequence[Collection[int]]) -> None:
        self._hook("partition", contract.CutNetwork(id=0, groups=[list(group) for group in groups]))

    def heal(self) -> None:
        self._hook("heal", contract.Heal(id=0))

    def power_loss(self, nodes: Collection[int], kept: float = 0.0, *, journaled: bool = False) -> None:
        self._hook("power-loss", contract.PowerLoss(id=0, nodes=list(nodes)))

    def disk(self, node: int, error: DiskError | None, bytes_left: int = 0) -> None:
        self._hook("disk", contract.Disk(id=0, node=node, error=error, bytes_left=bytes_left))

    def clock(self, node: int, seconds: float) -> None:
        self._hook("clock", contract.Clock(id=0, node=node, seconds=seconds))

    def config(self, node: int, changes: Mapping[str, str]) -> None:
        self._hook("config", contract.Config(id=0, node=node, config=dict(changes)))

    def logs(self, node: int) -> list[Path]:
        found = self._hook("logs", contract.OnNode(id=0, command="logs", node=node), contract.Logs)
        return [Path(path) for path in found.paths]

    # ---- asking

    def _hook(self, hook: str, request: contract.Said, result: type[contract.Result] = contract.Nothing) -> Any:
        if hook not in self.hooks:
            raise HookMissing(self.spec, hook)
        return self._ask(request, result)

    def _ask(self, request: contract.Said, result: type[contract.Result]) -> Any:
        """Write one request line, and read one response line. Errors: TargetError, with the end of the adapter's log."""
        if self._child is None:
            raise TargetError(f"{self.spec} is not open")
        self._requests += 1
        request.id = self._requests
        command = str(getattr(request, "command", ""))
        line = request.model_dump_json(exclude_none=True) + "\n"
        try:
            self._child.stdin.write(line.encode())  # type: ignore[union-attr]
            self._child.stdin.flush()  # type: ignore[union-attr]
            answer = contract.read_answer(self._read_line(command), request.id)
            if answer.error is not None:
                raise TargetError(f"{self.spec}: {command} failed: {answer.error}")
            return contract.read_result(result, answer.ok or {}, command)
        except contract.ContractBroken as error:
            raise TargetError(f"{self.spec} breaks the contract: {error}{self._log_tail()}") from None
        except OSError as error:
            raise TargetError(f"{self.spec} ended {self._exit()}when {command} was asked{self._log_tail()}") from error

    def _read_line(self, command: str) -> str:
        within_s = ANSWER_WITHIN_S.get(command, OTHER_ANSWERS_WITHIN_S)
        until = time.monotonic() + within_s
        assert self._child is not None and self._child.stdout is not None
        with selectors.DefaultSelector() as selector:
            selector.register(self._child.stdout, selectors.EVENT_READ)
            while b"\n" not in self._unread:
                if len(self._unread) > LONGEST_LINE_BYTES:
                    raise contract.ContractBroken(f"a line longer than {LONGEST_LINE_BYTES} bytes")
                if not selector.select(max(0.0, until - time.monotonic())):
                    raise TargetError(f"{self.spec} did not answer {command} within {within_s:.0f} s{self._log_tail()}")
                part = self._child.stdout.read1(1 << 16)  # type: ignore[attr-defined]
                if not part:
                    raise BrokenPipeError("its output ended")
                self._unread += part
        line, _, self._unread = self._unread.partition(b"\n")
        return line.decode(errors="replace")

    def _exit(self) -> str:
        """The adapter's exit code, as text; empty where it only closed its output."""
        assert self._child is not None
        with suppress(subprocess.TimeoutExpired):
            return f"with exit code {self._child.wait(EXITS_WITHIN_S)} "
        return ""

    def _log_tail(self) -> str:
        with suppress(OSError):
            lines = self._log.read_text(errors="replace").splitlines()[-10:]
            if lines:
                return f"; its log {self._log} ends:\n" + "\n".join(lines)
        return ""


def _is_honoured(name: str, described: contract.Description) -> bool:
    """Whether the adapter honours a property. Properties of the suite's listeners might keep another broker from starting."""
    return described.config and (described.listeners or not name.startswith(contract.OF_LISTENERS))
