"""Access control: each request is admitted, admitted without some of its items, or refused (reference.protocol.needs).

A request is checked on the node that handles it: on the broker for its own APIs, on the active controller for a forwarded
request, with the client in the envelope. Refused items are removed before the handler gets the request, and added to its
response when that is sent. Items that a client may not see are removed from the response then. Most APIs need only the table;
the others have a step of their own (`access_steps`). Fetch checks each partition at each read, because a session has more
partitions than its request names.

Without an authorizer every request is admitted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from reference.authorizer.acl import AclTable
from reference.authorizer.authorizer import Asker, Authorizer, super_users_of
from reference.controller.configs import Configuration
from reference.controller.quorum import Quorum
from reference.node.refusals import ITEMS, items_of, refusal, refused_items, with_items
from reference.node.release import BROKER
from reference.node.requests import Client, Key, Purgatories, Request
from reference.protocol.acls import CLUSTER_NAME, Operation, ResourceType
from reference.protocol.apis import APIS
from reference.protocol.errors import ErrorCode
from reference.protocol.needs import NEEDS, ON_CONTROLLERS, Need, Row
from reference.protocol.primitives import NO_UUID, TimestampMs, TopicName
from reference.protocol.schema import Message
from reference.storage.log_directory import Logger

ASKED_WITHOUT_ITEMS = frozenset({47})
"""OffsetDelete: the group's error precedes that of a topic, so the coordinator handles a request without items too."""

ASKED_WITHOUT_AUTHORIZER = frozenset({38, 39, 40, 41})
"""Delegation tokens: permission also depends on how the client has authenticated. A broker checks that before it forwards the
request, because the controller does not know the client's listener."""

NOT_ASKED = -(1 << 31)
"""The value of an authorized-operations field that was not requested."""

Amendment = Callable[[Any], None]
"""Changes a response before it is sent."""


@dataclass(slots=True)
class Admission:
    """The admitted part of a request."""

    body: Message
    """The request, without refused items."""
    amendments: list[Amendment] = field(default_factory=list[Amendment])
    refusal: Message | None = None
    """The response, if nothing of the request is admitted."""

    def amend(self, response: Message) -> Message:
        """The client's response: `response` with all amendments."""
        for amendment in self.amendments:
            amendment(response)
        return response


Step = Callable[["Access", Request, Any, Admission], None]
"""Takes a request with its body, and fills the admission."""


class Access:
    """Decides which requests this node admits."""

    def __init__(
        self, configuration: Configuration, authorizer: Authorizer | None, steps: Mapping[int, Step], log: Logger
    ) -> None:
        """`steps` has the APIs that need more than the table."""
        self.configuration = configuration
        self.image = configuration.image
        self.authorizer = authorizer
        self.is_ready = False
        """Whether all committed ACLs are replayed; before, only super users are admitted, so that controllers can hold
        elections (AuthorizerNotReadyException)."""
        self._steps = steps
        self._log = log
        self._fetched_by = self.image.acls.changes
        """The number of ACL changes that delayed fetches and fetch sessions have seen."""

    def metadata_applied(
        self, quorum: Quorum, purgatories: Purgatories, partitions: Iterable[Key], now: TimestampMs
    ) -> None:
        """Note applied metadata. If the ACLs have changed, delayed fetches read all partitions again."""
        self.is_ready |= quorum.leader >= 0 and self.image.end_offset >= quorum.high_watermark
        if self.authorizer is not None and self._fetched_by != self.image.acls.changes:
            self._fetched_by = self.image.acls.changes
            for key in [*partitions]:
                purgatories.wake_fetches(key, now)

    def admit(self, request: Request, body: Message, kind: str = BROKER) -> Admission:
        """Check a request that arrived on a listener of this kind."""
        admission = Admission(body)
        if self.authorizer is None and request.key not in ASKED_WITHOUT_AUTHORIZER:
            return admission
        if kind is not BROKER and request.key in ON_CONTROLLERS:
            self.check_all(ON_CONTROLLERS[request.key], request, admission)
        if admission.refusal is None:
            step = self._steps.get(request.key, Access.apply_table)
            step(self, request, body, admission)
        return admission

    def apply_table(self, request: Request, body: Message, admission: Admission) -> None:
        """The step of an API that needs only the table."""
        row = NEEDS[request.key]
        self.check_all(row, request, admission)
        for need in row.hides:
            if need.on_cluster is None or not self.may(request, need.on_cluster, ResourceType.CLUSTER, is_logged=False):
                admission.amendments.append(partial(self.hide, need, request))

    def check_all(self, row: Row, request: Request, admission: Admission) -> None:
        """Check each need of an API, until one refuses the rest of the request."""
        for need in row.needs:
            if admission.refusal is None and need.is_of(request.version):
                self.check(need, request, admission)

    def check(self, need: Need, request: Request, admission: Admission) -> None:
        """Check one need: refuse the whole request, or the items that do not meet it."""
        if need.on_cluster is not None and self.may(request, need.on_cluster, ResourceType.CLUSTER, is_logged=False):
            return
        if need.items:
            _, _, name = need.of.partition("[].")
            self.refuse_items(
                request,
                admission,
                lambda item: self.may(request, need.operation, need.resource, self.name_of(item, name)),
                need.error,
            )
            return
        name = CLUSTER_NAME if need.resource is ResourceType.CLUSTER else getattr(admission.body, need.of)
        if not self.may(request, need.operation, need.resource, name):
            self.refuse(request, admission, need.error)

    def refuse(self, request: Request, admission: Admission, code: ErrorCode) -> None:
        """Refuse the request as a whole."""
        admission.refusal = refusal(request.key, request.version, admission.body, code)

    def refuse_items(self, request: Request, admission: Admission, may: Callable[[Any], bool], code: ErrorCode) -> None:
        """Remove the refused items; without any other item, refuse the request."""
        key, items = request.key, items_of(request.key, admission.body)
        admitted = [may(item) for item in items]
        if all(admitted):
            return
        refused = [item for item, is_admitted in zip(items, admitted, strict=True) if not is_admitted]
        left = [item for item, is_admitted in zip(items, admitted, strict=True) if is_admitted]
        part = refused_items(key, with_items(key, admission.body, refused), code)
        admission.body = with_items(key, admission.body, left)
        if left or key in ASKED_WITHOUT_ITEMS:
            admission.amendments.append(partial(add_results, key, part))
        else:
            admission.refusal = admission.amend(part)

    def name_of(self, item: Any, name: str) -> str | None:
        """The name of an item of a request. For a topic by id it is None if the id is unknown: such an item is not refused."""
        if not name:
            return item
        topic_id = getattr(item, "topic_id", NO_UUID)
        return getattr(item, name) if topic_id == NO_UUID else self.image.topic_name(topic_id)

    def hide(self, need: Need, request: Request, response: Message) -> None:
        """Remove the items of a response that do not meet a need."""
        *lists, name = need.of.split("[].")
        parents: list[Any] = [response]
        for each in lists[:-1]:
            parents = [child for parent in parents for child in getattr(parent, each)]
        for parent in parents:
            shown = [
                item
                for item in getattr(parent, lists[-1])
                if self.may(request, need.operation, need.resource, getattr(item, name), is_logged=False)
            ]
            setattr(parent, lists[-1], shown)

    def may(
        self,
        request: Request,
        operation: Operation,
        resource: ResourceType,
        name: str | None = CLUSTER_NAME,
        is_logged: bool = True,
    ) -> bool:
        """Whether the request's client may do the operation; True for `name` None, which is no resource."""
        authorizer = self.authorizer
        if authorizer is None or name is None:
            return True
        asker = asker_of(request.client)
        if self.is_ready:
            allowed = authorizer.authorize(asker, operation, resource, name)
        else:
            allowed = authorizer.is_super_user(asker.principal)
        if not allowed and is_logged:
            self._log(
                "info",
                f"Principal = {asker.principal} is Denied operation = {operation.name} from host = {asker.host} "
                f"on resource = {resource.name}:LITERAL:{name!r} for request = {APIS[request.key].name}",
            )
        return allowed

    def may_with_any(self, request: Request, operation: Operation, resource: ResourceType) -> bool:
        """Whether the client may do the operation on any resource of a type."""
        asker = asker_of(request.client)
        if self.authorizer is None or self.authorizer.is_super_user(asker.principal):
            return True
        return self.is_ready and self.authorizer.authorize_any(asker, operation, resource)

    def may_fetch(self, request: Request, topic: TopicName | None, is_follower: bool) -> bool:
        """Whether a fetch may read the topic, as a consumer or as a follower; no consumer is refused an unknown one (None)."""
        if is_follower:
            return self.may(request, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return self.may(request, Operation.READ, ResourceType.TOPIC, topic)

    def operations(
        self, request: Request, resource: ResourceType, all_operations: int, name: str = CLUSTER_NAME
    ) -> int:
        """The operations of `all_operations` that the client may do, as bits."""
        return sum(
            1 << operation
            for operation in Operation
            if all_operations >> operation & 1 and self.may(request, operation, resource, name, is_logged=False)
        )


def authorizer_of(properties: Mapping[str, str], acls: AclTable) -> Authorizer | None:
    """The authorizer of a node's configuration file; None if it has none."""
    if not properties.get("authorizer.class.name", "").strip():
        return None
    allow = properties.get("allow.everyone.if.no.acl.found", "").strip().lower() == "true"
    return Authorizer(acls, super_users_of(properties), allow)


def asker_of(client: Client) -> Asker:
    return Asker(client.principal, client.host)


def add_results(key: int, part: Message, response: Message) -> None:
    """Add the results of refused items to a response, unless it has an error at its top level."""
    if getattr(response, "error_code", ErrorCode.NONE) != ErrorCode.NONE:
        return
    _, results = ITEMS[key]
    getattr(response, results).extend(getattr(part, results))
