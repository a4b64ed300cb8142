"""The decision that one event is building.

Owns: the records and completions of the event in their order, and the register of requests that
wait.  Must not know groups.
"""

from collections.abc import Collection

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import (
    Completion,
    CoordinatorRecord,
    CoordinatorResponse,
    Decision,
    Now,
)
from sparklog.executors.groups.member import WaitingRequest
from sparklog.wire.protocol.schema import Response


class WaitingRequests:
    """The ids of the requests that wait and whose clients are there."""

    __slots__ = ("_ids",)

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def add(self, request_id: int) -> None:
        self._ids[request_id] = None

    def discard(self, request_id: int) -> bool:
        """Forget a request; false if it was not there."""
        return self._ids.pop(request_id, request_id) is None

    def take_all(self) -> tuple[int, ...]:
        ids = tuple(self._ids)
        self._ids.clear()
        return ids

    def all_in(self, request_ids: Collection[int]) -> bool:
        """Whether every request that waits is among these."""
        return self._ids.keys() <= set(request_ids)


class DecisionDraft:
    """A ``Decision`` while it is made; ``changed_groups`` are those with a group record in it."""

    __slots__ = ("_completions", "_records", "_waiting", "changed_groups", "divisible", "now")

    def __init__(self, now: Now, waiting: WaitingRequests) -> None:
        self.now = now
        self.changed_groups: set[str] = set()
        #: Whether the records may be appended in several batches; see ``Decision``.
        self.divisible = False
        self._waiting = waiting
        self._records: list[CoordinatorRecord] = []
        self._completions: list[Completion] = []

    def write(self, record: CoordinatorRecord) -> None:
        self._records.append(record)

    def write_group(self, group_id: str, record: CoordinatorRecord) -> None:
        """Write a group record.  An event writes at most one per group, since the group's next
        change must see it replayed."""
        assert group_id not in self.changed_groups
        self.changed_groups.add(group_id)
        self._records.append(record)

    def respond(
        self, request_id: int, response: CoordinatorResponse, at_once: bool = False
    ) -> None:
        """Answer the request of this event."""
        self._completions.append(
            Completion(request_id=request_id, response=response, at_once=at_once)
        )

    def refuse(self, request_id: int, code: ErrorCode) -> None:
        """Refuse the request of this event in the form that its handler gives to errors."""
        self._completions.append(Completion(request_id=request_id, response=KafkaError(code)))

    def keep_waiting(self, request_id: int) -> None:
        """The request of this event waits for a later one."""
        self._waiting.add(request_id)

    def respond_to_waiting(self, waiting: WaitingRequest, response: Response) -> None:
        """Answer a request that waits, unless its client has gone."""
        if self._waiting.discard(waiting.request_id):
            self.respond(waiting.request_id, response)

    def decision(self) -> Decision:
        return Decision(
            records=tuple(self._records),
            completions=tuple(self._completions),
            divisible=self.divisible and bool(self._completions),
        )
