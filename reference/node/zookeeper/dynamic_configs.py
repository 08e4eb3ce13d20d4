"""The settings of topics and brokers in ZooKeeper, and notifications of their changes.

All are read at the beginning of a connection; then each sequential znode below /config/changes names a changed one.
Source: kafka.common.ZkNodeChangeNotificationListener, kafka.server.ConfigHandler.
"""

from __future__ import annotations

from collections.abc import Callable

from reference.protocol.primitives import TimestampMs, TopicName
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, GetChildren, GetData, Result
from reference.zookeeper.session import Session

Configs = dict[tuple[int, str], dict[str, str]]
Resource = tuple[int, str]


class DynamicConfigs:
    """Maintains `configs`, which all images of a node share."""

    def __init__(self, session: Session, configs: Configs, changed: Callable[[TimestampMs], None], log: Logger) -> None:
        self.known: set[str] = set()
        """The existing znodes of settings."""
        self._session = session
        self._configs = configs
        self._changed = changed
        self._log = log
        self._seen = ""
        """The last change that was handled."""
        self._read: set[TopicName] = set()
        self._waiting: list[tuple[list[TopicName], Callable[[TimestampMs], None]]] = []

    # ---- at the beginning of a connection

    def load(self, then: Callable[[TimestampMs], None], now: TimestampMs) -> None:
        """Read all settings, then call `then`; if the connection is lost, it is not called."""
        folders: list[tuple[int, str]] = [*znodes.CONFIG_FOLDERS.items()]

        def seen(result: Result, at: TimestampMs) -> None:
            if result.code in (Code.OK, Code.NO_NODE):
                self._seen = max(result.children, default="")
                self._session.ask_all([GetChildren(f"/config/{folder}") for _, folder in folders], listed, at)

        def listed(results: list[Result], at: TimestampMs) -> None:
            if any(each.code not in (Code.OK, Code.NO_NODE) for each in results):
                return
            resources = [
                (kind, "" if name == znodes.DEFAULT_ENTITY else name)
                for (kind, _), result in zip(folders, results, strict=True)
                for name in result.children
            ]
            self._read_all(resources, loaded, at)

        def loaded(at: TimestampMs) -> None:
            self._changed(at)
            then(at)
            waiting, self._waiting = self._waiting, []
            for topics, go_on in waiting:
                self.ensure(topics, go_on, at)

        self._session.ask(GetChildren(znodes.CONFIG_CHANGES, watch=True), seen, now, self._on_changes)

    # ---- one by one

    def ensure(self, topics: list[TopicName], then: Callable[[TimestampMs], None], now: TimestampMs) -> None:
        """Call `then` when the settings of these topics are read: there are no notifications for new topics."""
        missing = [name for name in topics if name not in self._read]
        if not missing:
            then(now)
        elif not self._session.is_connected:
            self._waiting.append((topics, then))
        else:
            self._read_all([(znodes.TOPIC_RESOURCE, name) for name in missing], then, now, or_else=(topics, then))

    def forget(self, topic: TopicName) -> None:
        """Drop a deleted topic's settings: another topic of its name has other ones."""
        self._read.discard(topic)
        self._configs.pop((znodes.TOPIC_RESOURCE, topic), None)

    def _read_all(
        self,
        resources: list[Resource],
        then: Callable[[TimestampMs], None],
        now: TimestampMs,
        or_else: tuple[list[TopicName], Callable[[TimestampMs], None]] | None = None,
    ) -> None:
        def read(results: list[Result], at: TimestampMs) -> None:
            if any(each.code not in (Code.OK, Code.NO_NODE) for each in results):
                if or_else is not None:
                    self._waiting.append(or_else)
                return
            for resource, result in zip(resources, results, strict=True):
                self._take(resource, result)
            then(at)

        self._session.ask_all([GetData(znodes.config_path(*each)) for each in resources], read, now)

    def _take(self, resource: Resource, result: Result) -> None:
        path = znodes.config_path(*resource)
        if resource[0] == znodes.TOPIC_RESOURCE:
            self._read.add(resource[1])
        if result.code == Code.NO_NODE:
            self.known.discard(path)
            self._configs.pop(resource, None)
            return
        self.known.add(path)
        try:
            self._configs[resource] = znodes.decode_config(path, result.data)
        except znodes.DamagedZnode as error:
            self._log("error", f"{error}: the settings of before stay")

    # ---- changes

    def _on_changes(self, now: TimestampMs) -> None:
        self._session.ask(GetChildren(znodes.CONFIG_CHANGES, watch=True), self._take_changes, now, self._on_changes)

    def _take_changes(self, result: Result, now: TimestampMs) -> None:
        if result.code != Code.OK:
            return
        new = sorted(name for name in result.children if name > self._seen)
        self._seen = max([self._seen, *new])
        paths = [f"{znodes.CONFIG_CHANGES}/{name}" for name in new]

        def read(results: list[Result], at: TimestampMs) -> None:
            resources: dict[Resource, None] = {}
            for path, each in zip(paths, results, strict=True):
                resource = self._changed_resource(path, each)
                if resource is not None:
                    resources[resource] = None
            if resources:
                self._read_all([*resources], self._changed, at)

        self._session.ask_all([GetData(path) for path in paths], read, now)

    def _changed_resource(self, path: str, result: Result) -> Resource | None:
        if result.code != Code.OK:
            return None
        try:
            folder, _, name = znodes.decode_config_change(path, result.data).partition("/")
        except znodes.DamagedZnode as error:
            self._log("error", str(error))
            return None
        for kind, known in znodes.CONFIG_FOLDERS.items():
            if folder == known:
                return kind, "" if name == znodes.DEFAULT_ENTITY else name
        return None
