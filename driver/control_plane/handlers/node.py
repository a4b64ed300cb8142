"""The control plane as its handlers see it.

Owns: the interface between handlers and the control plane.  Must not know the controller or the
journal behind it.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol, TypeAlias
from uuid import UUID

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.controller import Event
from sparklog.driver.control_plane.metadata_feed import MetadataFeed
from sparklog.driver.control_plane.spare_supervisors import SpareSupervisors
from sparklog.driver.transaction_coordinator import TransactionCoordinator
from sparklog.metadata import ClusterImage
from sparklog.runtime_environment import RuntimeEnvironment
from sparklog.service.handler import MANY_ITEMS, ApiHandler
from sparklog.service.suspected_brokers import SuspectedBrokers
from sparklog.transport import HandlerResult, ServerConnection
from sparklog.wire.protocol.schema import Request, Response

#: Decides on a request.  The result is an awaitable while the decision is not durable.
Decide: TypeAlias = Callable[[Event], Response | Awaitable[Response | None] | None]


class Node(Protocol):
    """The control plane, as its handlers see it."""

    @property
    def image(self) -> ClusterImage: ...

    @property
    def config(self) -> BrokerConfig: ...

    @property
    def settings(self) -> Mapping[str, str]: ...

    @property
    def secret(self) -> bytes: ...

    @property
    def journal_url(self) -> str: ...

    @property
    def runtime(self) -> RuntimeEnvironment: ...

    @property
    def metadata_feed(self) -> MetadataFeed: ...

    @property
    def spare_supervisors(self) -> SpareSupervisors: ...

    @property
    def transaction_coordinator(self) -> TransactionCoordinator: ...

    @property
    def suspected_brokers(self) -> SuspectedBrokers: ...

    def decide(self, event: Event) -> Response | Awaitable[Response | None] | None: ...

    def has_failed(self, broker_id: int, topic_id: UUID, partition: int) -> bool: ...

    def stop(self, reason: str) -> None: ...

    def status(self) -> dict[str, Any]: ...

    def redispatch(self, connection: ServerConnection, frame: memoryview) -> HandlerResult: ...


def member_handler(request_type: type[Request], handle: Callable[..., Any]) -> ApiHandler:
    """The handler of a private API: version 0, not advertised, for members of the cluster only."""
    return ApiHandler(
        api_key=request_type.API_KEY,
        min_version=0,
        max_version=0,
        items_max=MANY_ITEMS,
        handle=handle,
        advertise=False,
        members_only=True,
    )
