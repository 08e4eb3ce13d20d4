"""Raising kraft.version from 0 to 1, as the leader: the voters of the configuration are written into the log (KIP-853).

The entries of the others are what they reported to this leader in this epoch (UpdateRaftVoter). The ids stay the same, so that
any two majorities of before and after have a voter in common; from then on a voter is its id and its directory.

Source: KIP-853; org.apache.kafka.raft.LeaderState.maybeAppendUpgradedKRaftVersion of 4.3.1.
"""

from __future__ import annotations

from reference.controller.quorum_changing import Changing
from reference.controller.quorum_roles import Leader
from reference.controller.quorum_voters import FEATURE, VoterSet
from reference.protocol.errors import ErrorCode, KafkaError
from reference.protocol.primitives import TimestampMs


class Raising(Changing):
    """The leader's part in writing the configured voters into the log."""

    def raise_kraft_version(self, level: int, now: TimestampMs, *, validate_only: bool = False) -> None:
        """Append the level and the voters, durably; a level that is there already is none to append.

        Errors: KafkaError NOT_CONTROLLER; INVALID_UPDATE_VERSION where a voter has not said that it supports the level, or
        which directory it has; KAFKA_STORAGE_ERROR.
        """
        state = self._state
        if not isinstance(state, Leader) or not self.is_ready:
            raise KafkaError(ErrorCode.NOT_CONTROLLER, "No controller appears to be active.")
        if level == self.kraft_version:
            return
        voters = self._reported_voters(state, level)
        if not validate_only:
            self._append_voters(state, voters, now, level=level)

    def _reported_voters(self, state: Leader, level: int) -> VoterSet:
        found = [self._own_voter() if id == self.node else state.reported.get(id) for id in self._voters.ids]
        voters = [each for each in found if each is not None and each.levels[0] <= level <= each.levels[1]]
        if len(voters) < len(found):
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION,
                f"Invalid upgrade of {FEATURE} to KRAFT_VERSION_{level} because not all of the voters support it",
            )
        return VoterSet(voters)
