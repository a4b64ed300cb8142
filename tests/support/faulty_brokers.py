"""Brokers that misbehave at a chosen Produce request: proxies in front of real ones.

Owns: their sockets and threads, and the faults.  Must not know who produces, nor what it expects.
"""

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from itertools import cycle
from typing import Final

from sparklog.client.blocking import BlockingClient
from sparklog.errors import ErrorCode
from sparklog.wire.protocol.codec import (
    RequestHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataResponse
from sparklog.wire.protocol.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)

#: Only what never comes takes so long.
SECONDS_MAX: Final = 60.0
#: How late slow brokers answer.
LATE_S: Final = 0.05

#: Is given the connection and a request's frame.
Fault = Callable[["Connection", bytes], None]


class FaultyBrokers:
    """A proxy for each broker of a cluster.

    The nth Produce request to them meets ``faults[n]``, and others ``usual``.
    """

    def __init__(
        self, client: BlockingClient, faults: dict[int, Fault], usual: "Fault | None" = None
    ) -> None:
        self._faults = faults
        self._usual = usual or forward
        self._lock = threading.Lock()
        self.produced = 0
        #: Keys and versions of requests.
        self.seen: set[tuple[int, int]] = set()
        self.connections: list[Connection] = []
        self._listeners: dict[int, socket.socket] = {}
        self._threads: list[threading.Thread] = []
        nodes = client.metadata([]).nodes
        for node_id in nodes:
            self._listeners[node_id] = socket.create_server(("127.0.0.1", 0))
        for node_id, node in nodes.items():
            self._start(self._accept, self._listeners[node_id], (node.host, node.port))

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(f"127.0.0.1:{self.port_of(node_id)}" for node_id in self._listeners)

    def port_of(self, node_id: int) -> int:
        return int(self._listeners[node_id].getsockname()[1])

    def __enter__(self) -> "FaultyBrokers":
        return self

    def __exit__(self, *_: object) -> None:
        for listener in self._listeners.values():
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        accepting = len(self._listeners)
        _join(self._threads[:accepting])
        for connection in self.connections:
            connection.close()
        _join(self._threads[accepting:])

    def take(self, connection: "Connection", frame: bytes) -> None:
        header, _ = decode_request_header(frame)
        self.seen.add((header.api_key, header.api_version))
        if header.api_key != ProduceRequest.API_KEY:
            connection.forward(frame)
            return
        with self._lock:
            self.produced += 1
            fault = self._faults.get(self.produced, self._usual)
        connection.client_id = header.client_id
        fault(connection, frame)

    def _accept(self, listener: socket.socket, broker: tuple[str, int]) -> None:
        while True:
            try:
                accepted, _ = listener.accept()
            except OSError:
                return
            try:
                through = socket.create_connection(broker)
            except OSError:  # it was killed
                accepted.close()
                continue
            connection = Connection(self, accepted, through)
            self.connections.append(connection)
            self._start(connection.relay_requests)
            self._start(connection.relay_answers)

    def _start(self, run: Callable[..., None], *args: object) -> None:
        thread = threading.Thread(target=run, args=args)
        self._threads.append(thread)
        thread.start()


class Connection:
    """One of a client, through to its broker."""

    def __init__(
        self, brokers: FaultyBrokers, accepted: socket.socket, broker: socket.socket
    ) -> None:
        self._brokers = brokers
        self._client = accepted
        self._broker = broker
        self._unanswered: list[RequestHeader] = []
        self._saying = False
        self._changed = threading.Condition()
        #: The client hears nothing any more.
        self.muted = False
        #: Of those who produce.
        self.client_id: str | None = None
        self.closed = False

    @property
    def broker_port(self) -> int:
        return int(self._broker.getpeername()[1])

    @property
    def unanswered(self) -> int:
        """Requests to which the client has not begun to hear an answer."""
        with self._changed:
            return len(self._unanswered)

    def relay_requests(self) -> None:
        try:
            with suppress(OSError):
                while (frame := _frame(self._client)) is not None:
                    self._brokers.take(self, frame)
        finally:
            self.close()

    def relay_answers(self) -> None:
        with suppress(OSError):
            while (frame := _frame(self._broker)) is not None:
                with self._changed:
                    header = self._unanswered.pop(0)
                    self._saying = True
                if not self.muted:
                    self.say(_framed(self._through_proxies(header, frame)))
                with self._changed:
                    self._saying = False
                    self._changed.notify_all()
        self.close()

    def forward(self, frame: bytes) -> None:
        with self._changed:
            self._unanswered.append(decode_request_header(frame)[0])
        self._broker.sendall(_framed(frame))

    def say(self, data: bytes) -> None:
        self._client.sendall(data)

    def wait_for_answers(self) -> None:
        """To all that was forwarded."""
        with self._changed:
            assert self._changed.wait_for(self._has_said_all, SECONDS_MAX)

    def _has_said_all(self) -> bool:
        return self.closed or not (self._unanswered or self._saying)

    def close(self) -> None:
        with self._changed:
            self.closed = True
            self._changed.notify_all()
        for end in (self._client, self._broker):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()

    def _through_proxies(self, header: RequestHeader, frame: bytes) -> bytes:
        if header.api_key != MetadataRequest.API_KEY:
            return frame
        version = header.api_version
        correlation_id, found = decode_response(MetadataResponse, version, frame)
        brokers = tuple(
            replace(node, host="127.0.0.1", port=self._brokers.port_of(node.node_id))
            for node in found.brokers
        )
        proxied = replace(found, brokers=brokers)
        return encode_response(MetadataResponse, version, proxied, correlation_id)


def forward(connection: Connection, frame: bytes) -> None:
    """No fault."""
    connection.forward(frame)


def lost_request(connection: Connection, frame: bytes) -> None:
    """The connection ends before the broker has read it."""
    connection.close()


def lost_answer(connection: Connection, frame: bytes) -> None:
    """The broker has it, and the connection ends before the client hears so."""
    connection.muted = True
    connection.forward(frame)
    connection.wait_for_answers()
    connection.close()


def answered_and_lost(connection: Connection, frame: bytes) -> None:
    """The connection ends when the client could have heard all answers."""
    connection.forward(frame)
    connection.wait_for_answers()
    connection.close()


def silence(connection: Connection, frame: bytes) -> None:
    """Brokers get everything, and the client hears nothing any more."""
    connection.muted = True
    connection.forward(frame)


def hole(connection: Connection, frame: bytes) -> None:
    """Nobody hears anything any more."""
    connection.muted = True


def half_an_answer(connection: Connection, frame: bytes) -> None:
    connection.wait_for_answers()
    answer = _answer(frame, ErrorCode.NONE)
    connection.say(answer[: len(answer) // 2])
    connection.close()


def words(data: bytes) -> Fault:
    """The client gets that instead of an answer."""

    def fault(connection: Connection, frame: bytes) -> None:
        connection.wait_for_answers()
        connection.say(data)

    return fault


def answer_of(change: Callable[[bytearray], None]) -> Fault:
    """The client hears of success, in an answer that was changed; the broker has nothing."""

    def fault(connection: Connection, frame: bytes) -> None:
        connection.wait_for_answers()
        answer = bytearray(_answer(frame, ErrorCode.NONE))
        change(answer)
        connection.say(bytes(answer))

    return fault


def put(at: int, value: bytes) -> Callable[[bytearray], None]:
    """Counted from the frame's size on."""

    def change(answer: bytearray) -> None:
        answer[at : at + len(value)] = value

    return change


def only_for(client_id: str, fault: Fault) -> Fault:
    """Others have none."""

    def chosen(connection: Connection, frame: bytes) -> None:
        (fault if connection.client_id == client_id else forward)(connection, frame)

    return chosen


def first_of_each_partition(fault: Fault) -> Fault:
    met: set[int] = set()

    def chosen(connection: Connection, frame: bytes) -> None:
        partitions = set(partitions_of(frame))
        (forward if partitions <= met else fault)(connection, frame)
        met.update(partitions)

    return chosen


def partitions_of(frame: bytes) -> list[int]:
    """Those that a Produce request is for."""
    _, request = _produce(frame)
    return [part.index for topic in request.topic_data for part in topic.partition_data]


class Slow:
    """All brokers answer late, so that batches of many partitions wait for their next request.

    The first request with several of them meets ``fault``.
    """

    def __init__(self, fault: Fault = forward) -> None:
        self._fault = fault
        self._lock = threading.Lock()
        #: Of each request, and its bytes.
        self.partitions: list[int] = []
        self.sizes: list[int] = []

    def __call__(self, connection: Connection, frame: bytes) -> None:
        count = len(partitions_of(frame))
        with self._lock:
            is_first = count > 1 and max(self.partitions, default=0) < 2
            self.partitions.append(count)
            self.sizes.append(len(frame))
        time.sleep(LATE_S)
        (self._fault if is_first else forward)(connection, frame)


def refusal_of(*codes: ErrorCode) -> Fault:
    """So many of the partitions are refused, and the broker gets the rest.

    The answer has them in another order, and details with each.
    """

    def fault(connection: Connection, frame: bytes) -> None:
        connection.wait_for_answers()
        header, request = _produce(frame)
        (topic,) = request.topic_data
        taken = topic.partition_data[len(codes) :]
        if taken:
            rest = replace(request, topic_data=(replace(topic, partition_data=taken),))
            version, number = header.api_version, header.correlation_id
            connection.muted = True
            connection.forward(encode_request(rest, version, number, header.client_id))
            connection.wait_for_answers()
            connection.muted = False
        connection.say(_answer(frame, *codes, *[ErrorCode.NONE] * len(taken), change=_elaborate))

    return fault


def _elaborate(
    answers: tuple[PartitionProduceResponse, ...],
) -> tuple[PartitionProduceResponse, ...]:
    records = (
        BatchIndexAndErrorMessage(batch_index=3, batch_index_error_message="a record"),
        BatchIndexAndErrorMessage(batch_index=7),
    )
    leader = LeaderIdAndEpoch(leader_id=2, leader_epoch=5)
    return tuple(
        replace(each, record_errors=records, error_message="a partition", current_leader=leader)
        for each in reversed(answers)
    )


def refusal(code: ErrorCode) -> Fault:
    def fault(connection: Connection, frame: bytes) -> None:
        connection.wait_for_answers()
        connection.say(_answer(frame, code))

    return fault


def when(happen: Callable[[], None], then: Fault = forward) -> Fault:
    """Something happens before the request goes on."""

    def fault(connection: Connection, frame: bytes) -> None:
        connection.wait_for_answers()
        happen()
        then(connection, frame)

    return fault


def _produce(frame: bytes) -> tuple[RequestHeader, ProduceRequest]:
    header, start = decode_request_header(frame)
    request = decode_request(header, frame[start:])
    assert isinstance(request, ProduceRequest)
    return header, request


def _answer(
    frame: bytes,
    *codes: ErrorCode,
    change: Callable[
        [tuple[PartitionProduceResponse, ...]], tuple[PartitionProduceResponse, ...]
    ] = tuple,
) -> bytes:
    """One code for all partitions, or one for each."""
    header, request = _produce(frame)
    each = cycle(codes)
    answers = tuple(
        TopicProduceResponse(
            name=topic.name,
            topic_id=topic.topic_id,
            partition_responses=change(
                tuple(
                    PartitionProduceResponse(index=part.index, error_code=next(each))
                    for part in topic.partition_data
                )
            ),
        )
        for topic in request.topic_data
    )
    response = ProduceResponse(responses=answers)
    version = header.api_version
    return _framed(encode_response(ProduceResponse, version, response, header.correlation_id))


def _join(threads: list[threading.Thread]) -> None:
    for thread in threads:
        thread.join(SECONDS_MAX)
        assert not thread.is_alive()


def _framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4, "big") + frame


def _frame(source: socket.socket) -> bytes | None:
    size = _exactly(source, 4)
    return None if size is None else _exactly(source, int.from_bytes(size, "big"))


def _exactly(source: socket.socket, size: int) -> bytes | None:
    found = bytearray()
    while len(found) < size:
        part = source.recv(min(size - len(found), 1 << 20))
        if not part:
            return None
        found += part
    return bytes(found)
