"""The election of the controller: the broker that creates /controller; the others watch it.

One multi creates the ephemeral znode and increments /controller_epoch, conditional on the epoch's version. So an epoch belongs
to one controller, and both znodes have the zxid of that transaction. The znode is removed with its session; its owner resigns
when it learns of that.
Source: kafka.controller.KafkaController.elect, kafka.zk.KafkaZkClient.registerControllerAndIncrementControllerEpoch.
"""

from __future__ import annotations

from collections.abc import Callable

from reference.protocol.primitives import NO_NODE, LeaderEpoch, NodeId, TimestampMs
from reference.storage.log_directory import Logger
from reference.zookeeper import znodes
from reference.zookeeper.operations import Code, Create, GetData, Multi, Result, SetData, ZnodeVersion, Zxid
from reference.zookeeper.session import Session

Won = Callable[[LeaderEpoch, ZnodeVersion, bool, TimestampMs], None]
"""Takes the controller epoch, its znode's version, and whether it is new."""


class Election:
    """A broker's part in the controller elections."""

    def __init__(
        self, node: NodeId, session: Session, won: Won, lost: Callable[[TimestampMs], None], log: Logger
    ) -> None:
        """`lost` is called when another broker, or none, is the controller."""
        self.controller: NodeId = NO_NODE
        """The controller, at the last read of /controller."""
        self._node = node
        self._session = session
        self._won = won
        self._lost = lost
        self._log = log

    def look(self, now: TimestampMs) -> None:
        """Read /controller, and try to create it if it does not exist."""
        self._session.ask(GetData(znodes.CONTROLLER, watch=True), self._take_controller, now, self.look)

    def _take_controller(self, result: Result, now: TimestampMs) -> None:
        if result.code == Code.NO_NODE:
            self.controller = NO_NODE
            self._lost(now)
            self._session.ask(GetData(znodes.CONTROLLER_EPOCH), self._take_epoch, now)
        elif result.code == Code.OK:
            try:
                self.controller = znodes.decode_controller(znodes.CONTROLLER, result.data)
            except znodes.DamagedZnode as error:
                self._log("error", f"{error}: no controller is elected until it is removed")
                self.controller = NO_NODE
            if result.stat.ephemeral_owner == self._session.id:
                created = result.stat.czxid
                self._session.ask(
                    GetData(znodes.CONTROLLER_EPOCH),
                    lambda epoch, then: self._take_own_epoch(created, epoch, then),
                    now,
                )
            else:
                self._lost(now)

    def _take_epoch(self, result: Result, now: TimestampMs) -> None:
        if result.code == Code.NO_NODE:
            first = str(znodes.FIRST_CONTROLLER_EPOCH).encode()
            self._session.ask(Create(znodes.CONTROLLER_EPOCH, first), self._made_epoch, now)
        elif result.code == Code.OK:
            self._stand(LeaderEpoch(self._epoch_of(result) + 1), result.stat.version, now)

    def _made_epoch(self, result: Result, now: TimestampMs) -> None:
        if result.code in (Code.OK, Code.NODE_EXISTS):
            self.look(now)

    def _stand(self, epoch: LeaderEpoch, version: ZnodeVersion, now: TimestampMs) -> None:
        def counted(result: Result, at: TimestampMs) -> None:
            if result.code == Code.OK:
                self.controller = self._node
                self._won(epoch, ZnodeVersion(version + 1), True, at)
                self.look(at)
            elif result.code in (Code.NODE_EXISTS, Code.BAD_VERSION, Code.NO_NODE):
                self.look(at)  # another broker was faster

        creation = Create(znodes.CONTROLLER, znodes.encode_controller(self._node, now), ephemeral=True)
        counting = SetData(znodes.CONTROLLER_EPOCH, str(epoch).encode(), version)
        self._session.ask(Multi((creation, counting)), counted, now)

    def _take_own_epoch(self, created: Zxid, result: Result, now: TimestampMs) -> None:
        """Handle a /controller of this session: its creation was not answered, or the connection was lost since.

        An operator may have deleted it after it was read. If the epoch's last transaction is not the one that created this
        broker's znode, the epoch is a later controller's.
        """
        if result.code != Code.OK:
            return
        if result.stat.mzxid != created:
            self._log("info", f"{znodes.CONTROLLER_EPOCH} was counted after {znodes.CONTROLLER} was read")
            return  # the watch on /controller triggers the next read
        self._won(self._epoch_of(result), result.stat.version, False, now)

    def _epoch_of(self, result: Result) -> LeaderEpoch:
        try:
            return LeaderEpoch(znodes.decode_number(znodes.CONTROLLER_EPOCH, result.data))
        except znodes.DamagedZnode as error:
            self._log("error", str(error))
            return LeaderEpoch(znodes.FIRST_CONTROLLER_EPOCH)
