"""What was parked for a client ends with its connection."""

import asyncio
import socket
from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.framing.frame_length import frame_length
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.produce import encode_produce_request
from tests.support.batches import batch
from tests.support.waiting import until
from tests.unit.executors.broker.broker_rig import Rig, produce_request, run

LONG_MS = 200_000


async def send(rig: Rig, frame: bytes) -> socket.socket:
    sock = socket.socket()
    sock.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(sock, ("127.0.0.1", rig.brokers[1].port))
    await loop.sock_sendall(sock, frame_length(len(frame)) + frame)
    return sock


def waiting_fetch() -> bytes:
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchTopic(topic="t", partitions=(part,))
    request = FetchRequest(topics=(topic,), min_bytes=1, max_wait_ms=LONG_MS)
    return bytes(encode_request(request, 11, 3, "gone"))


@pytest.mark.parametrize("reset", [True, False])
def test_a_fetch_does_not_outlive_its_connection(reset: bool) -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        replica_manager = rig.brokers[1].replica_manager
        sock = await send(rig, waiting_fetch())
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        assert replica_manager.delayed_operations.timers.armed
        if reset:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 0)
        replica_manager.delayed_operations.consumer_fetches.check_invariants()
        server = rig.brokers[1]._server
        assert server is not None
        await until(lambda: len(server.connections) == 1)
        assert rig.brokers[1].status()["request_errors"] == 0

    run(test)


def test_a_client_that_closed_its_half_is_answered_at_once() -> None:
    async def test(rig: Rig) -> None:
        await rig.with_topic()
        replica_manager = rig.brokers[1].replica_manager
        sock = await send(rig, waiting_fetch())
        await until(lambda: len(replica_manager.delayed_operations.consumer_fetches) == 1)
        sock.shutdown(socket.SHUT_WR)
        loop = asyncio.get_running_loop()
        answer = b""
        while more := await loop.sock_recv(sock, 1 << 16):
            answer += more
        sock.close()
        _, response = decode_response(FetchResponse, 11, answer[4:])
        assert [p.error_code for t in response.responses for p in t.partitions] == [0]

    run(test)


def test_an_acknowledgement_does_not_outlive_its_connection_but_the_records_do() -> None:
    async def test(rig: Rig) -> None:
        client, _ = await rig.with_topic()
        replica_manager = rig.brokers[1].replica_manager
        (partition,) = replica_manager
        # An in-sync replica that never fetches: the high watermark stands still.
        state = partition.state
        assert state is not None
        partition_epoch = state.partition_epoch + 1000  # the image's does not replace it
        lonely = replace(state, replicas=(1, 2), isr=(1, 2), partition_epoch=partition_epoch)
        partition.make_leader_or_follower(lonely, 0)
        request = produce_request("t", batch(b"a"), 0, -1, LONG_MS)
        frame = b"".join(bytes(p) for p in encode_produce_request(11, 3, "gone", request))
        sock = await send(rig, frame)
        await until(lambda: len(replica_manager.delayed_operations.produces) == 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\0\0\0\0\0\0\0")
        sock.close()
        await until(lambda: len(replica_manager.delayed_operations.produces) == 0)
        assert not replica_manager.delayed_operations.timers.armed
        assert partition.log.log_end_offset == 1
        late = await client.produce("t", batch(b"b"), timeout_ms=20)
        assert late.error_code == ErrorCode.REQUEST_TIMED_OUT

    run(test)
