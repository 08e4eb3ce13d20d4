"""The numbers of access control on the wire: operations, kinds of resources, patterns, permissions.

Source: org.apache.kafka.common.acl.AclOperation, AclPermissionType; org.apache.kafka.common.resource.ResourceType, PatternType.
"""

from __future__ import annotations

from enum import IntEnum


class Operation(IntEnum):
    """An operation on a resource."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """The kind of a resource."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """How an ACL names resources; ANY and MATCH are for filters alone."""

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """Whether an ACL denies or allows."""

    ANY = 1
    DENY = 2
    ALLOW = 3


CLUSTER_NAME = "kafka-cluster"
"""The one name of the cluster as a resource."""
