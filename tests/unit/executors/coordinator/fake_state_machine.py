"""A small state machine for the runtime: keys and values, and requests that wait for a key.

It understands these requests, which stand in for those of groups:

* OffsetDelete: write the value ``v`` under each topic's name; ``DeleteGroups`` shows the values.
* JoinGroup: wait until the key ``group_id`` is written, or for ``session_timeout_ms``.
* Heartbeat: respond at once, whatever is not replicated yet.

With ``are_topics`` each key is the name of a topic, whose id is the value if it has 16 bytes.
"""

from collections.abc import Collection
from dataclasses import dataclass, field
from uuid import UUID

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import (
    Completion,
    CoordinatorRecord,
    CoordinatorRequest,
    Decision,
    DeletedTopic,
    Now,
    StoredTopic,
)
from sparklog.wire.protocol.messages.delete_groups import (
    DeletableGroupResult,
    DeleteGroupsRequest,
    DeleteGroupsResponse,
)
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from sparklog.wire.protocol.schema import Request, Response


@dataclass
class KeyValueStore:
    """The fake; tests look into it."""

    are_topics: bool = False
    values: dict[bytes, bytes] = field(default_factory=dict)
    replayed: list[CoordinatorRecord] = field(default_factory=list)
    waiting: dict[int, tuple[bytes, int]] = field(default_factory=dict)
    withdrawn: list[int] = field(default_factory=list)
    requests: list[CoordinatorRequest] = field(default_factory=list)
    loaded_at: Now | None = None
    passed: list[Now] = field(default_factory=list)
    deleted: list[set[DeletedTopic]] = field(default_factory=list)
    due: list[bytes] = field(default_factory=list)
    pending: dict[int, list[CoordinatorRecord]] = field(default_factory=dict)
    unloaded: KafkaError | None = None

    def replay(self, record: CoordinatorRecord) -> None:
        if record.key == b"poison":
            raise RuntimeError("a record that breaks the state machine")
        self.replayed.append(record)
        if record.value is None:
            self.values.pop(record.key, None)
        else:
            self.values[record.key] = record.value

    def replay_in_transaction(self, record: CoordinatorRecord, producer_id: int) -> None:
        self.pending.setdefault(producer_id, []).append(record)

    def replay_transaction_end(self, producer_id: int, *, committed: bool) -> None:
        for record in self.pending.pop(producer_id, ()):
            if committed:
                self.replay(record)

    def loaded(self, now: Now) -> None:
        self.loaded_at = now

    def stored_topics(self) -> list[StoredTopic]:
        values = self.values if self.are_topics else {}
        return [StoredTopic(key.decode(), _id_in(value)) for key, value in values.items()]

    def may_write(self, request: CoordinatorRequest) -> bool:
        return isinstance(request.body, OffsetDeleteRequest)

    def answer(self, body: Request, now: Now) -> Response | None:
        return None

    def handle(self, request: CoordinatorRequest, now: Now) -> Decision:
        self.requests.append(request)
        body, number = request.body, request.request_id
        match body:
            case OffsetDeleteRequest():
                return self._write([topic.name.encode() for topic in body.topics], number)
            case DeleteGroupsRequest():
                results = tuple(DeletableGroupResult(group_id=key.decode()) for key in self.values)
                return _answer(number, DeleteGroupsResponse(results=results))
            case HeartbeatRequest():
                if body.group_id == "bug":
                    raise RuntimeError("a request that breaks the state machine")
                done = Completion(request_id=number, response=HeartbeatResponse(), at_once=True)
                return Decision(completions=(done,))
            case JoinGroupRequest():
                deadline_ms = now.monotonic_ms + body.session_timeout_ms
                self.waiting[number] = body.group_id.encode(), deadline_ms
                return Decision()
        raise AssertionError(body)

    def _write(self, keys: list[bytes], number: int) -> Decision:
        records = tuple(CoordinatorRecord(key=key, value=b"v") for key in keys)
        done = [Completion(request_id=number, response=OffsetDeleteResponse())]
        for other, (key, _) in list(self.waiting.items()):
            if key in keys:
                del self.waiting[other]
                done.append(Completion(request_id=other, response=joined(key)))
        return Decision(records=records, completions=tuple(done))

    def pass_time(self, now: Now) -> Decision:
        self.passed.append(now)
        late = [each for each, (_, at_ms) in self.waiting.items() if at_ms <= now.monotonic_ms]
        done = []
        for number in late:
            del self.waiting[number]
            error = KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, "nobody wrote the key")
            done.append(Completion(request_id=number, response=error))
        gone, self.due = self.due, []
        records = tuple(CoordinatorRecord(key=key, value=None) for key in gone)
        return Decision(records=records, completions=tuple(done))

    def topics_deleted(self, topics: Collection[DeletedTopic], now: Now) -> None:
        if topics:
            self.deleted.append(set(topics))
        for name, topic_id in topics:
            value = self.values.get(name.encode())
            if value is not None and _id_in(value) in (None, topic_id):
                self.due.append(name.encode())

    def next_deadline_ms(self) -> int | None:
        if self.due:
            return 0
        return min((at_ms for _, at_ms in self.waiting.values()), default=None)

    def withdraw(self, request_id: int) -> None:
        del self.waiting[request_id]
        self.withdrawn.append(request_id)

    def unload(self, error: KafkaError) -> tuple[Completion, ...]:
        self.unloaded = error
        waiting, self.waiting = self.waiting, {}
        return tuple(Completion(request_id=number, response=error) for number in waiting)


def write(*keys: str) -> OffsetDeleteRequest:
    """Write these keys."""
    return OffsetDeleteRequest(topics=tuple(OffsetDeleteRequestTopic(name=key) for key in keys))


def wait_for(key: str, timeout_ms: int = 60_000) -> JoinGroupRequest:
    """Wait until somebody writes this key."""
    return JoinGroupRequest(group_id=key, session_timeout_ms=timeout_ms)


def read() -> Request:
    """Read all keys."""
    return DeleteGroupsRequest()


def joined(key: bytes) -> Response:
    """The response to ``wait_for``."""
    return JoinGroupResponse(member_id=key.decode())


def keys_of(response: Response) -> list[str]:
    """The keys that a response to ``read`` shows."""
    assert isinstance(response, DeleteGroupsResponse)
    return [result.group_id for result in response.results]


def _id_in(value: bytes) -> UUID | None:
    return UUID(bytes=value) if len(value) == 16 else None


def _answer(number: int, response: Response) -> Decision:
    return Decision(completions=(Completion(request_id=number, response=response),))
