"""Metadata records that the image keeps as records: quotas, credentials, tokens, controllers.

A snapshot of this node has the newest record of each key, for this node and for others that load it. Records of unknown types
(from a newer Kafka) are kept in the order of the log.
Source: org.apache.kafka.image (ClientQuotasImage, ScramImage, DelegationTokenImage, ClusterImage).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Any

from reference.protocol.messages.client_quota_record import ClientQuotaRecord
from reference.protocol.messages.delegation_token_record import DelegationTokenRecord
from reference.protocol.messages.register_controller_record import RegisterControllerRecord
from reference.protocol.messages.remove_delegation_token_record import RemoveDelegationTokenRecord
from reference.protocol.messages.remove_user_scram_credential_record import RemoveUserScramCredentialRecord
from reference.protocol.messages.unregister_controller_record import UnregisterControllerRecord
from reference.protocol.messages.user_scram_credential_record import UserScramCredentialRecord
from reference.protocol.messages.zk_migration_state_record import ZkMigrationStateRecord
from reference.protocol.schema import Message, bytes_

Key = tuple[type[Message], Hashable]
Carried = dict[Key, Message]
"""The newest record of each key, in the order of the records."""


class UnknownRecord(Message, kind="metadata"):
    """A metadata record of an unknown type, with its whole value."""

    value: bytes = bytes_("0+", default=b"")


def _quota(record: ClientQuotaRecord) -> Hashable:
    return tuple((each.entity_type, each.entity_name) for each in record.entity), record.key


STATES: dict[type[Message], Callable[[Any], Hashable]] = {
    ClientQuotaRecord: _quota,
    UserScramCredentialRecord: lambda record: (record.name, record.mechanism),
    DelegationTokenRecord: lambda record: record.token_id,
    RegisterControllerRecord: lambda record: record.controller_id,
    ZkMigrationStateRecord: lambda record: "the cluster",
    UnknownRecord: lambda record: bytes(record.value),
}
"""Record that sets a state -> the key of the state."""
ENDS: dict[type[Message], tuple[type[Message], Callable[[Any], Hashable]]] = {
    RemoveUserScramCredentialRecord: (UserScramCredentialRecord, lambda record: (record.name, record.mechanism)),
    RemoveDelegationTokenRecord: (DelegationTokenRecord, lambda record: record.token_id),
    UnregisterControllerRecord: (RegisterControllerRecord, lambda record: record.controller_id),
}
"""Record that removes a state -> the type of the record that set it, and its key."""


def carry(carried: Carried, record: Message) -> None:
    """Keep the record, or remove the one that it deletes. Records of other types change nothing."""
    kind = type(record)
    if kind in ENDS:
        state, key_of = ENDS[kind]
        carried.pop((state, key_of(record)), None)
    elif kind in STATES:
        key = kind, STATES[kind](record)
        carried.pop(key, None)
        if not (isinstance(record, ClientQuotaRecord) and record.remove):
            carried[key] = record
