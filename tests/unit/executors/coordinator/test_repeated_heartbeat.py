"""Heartbeats that repeat the last one of their connection."""

from dataclasses import replace

import pytest

from sparklog.errors import ErrorCode
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from sparklog.wire.protocol.schema import Request, Response
from tests.unit.executors.coordinator.group_rig import ELSEWHERE, HERE, GroupRig, run
from tests.unit.executors.coordinator.replica_rig import NODE, OTHER, led

BEAT = HeartbeatRequest(group_id=HERE, generation_id=3, member_id="m")


def answer_all(rig: GroupRig) -> list[Request]:
    """Let the state machine answer each repetition; the list of these follows."""
    answered: list[Request] = []

    def answer(body: Request) -> Response:
        answered.append(body)
        return HeartbeatResponse()

    rig.answer = answer
    return answered


@pytest.mark.parametrize(
    "version", range(HeartbeatRequest.MIN_VERSION, HeartbeatRequest.MAX_VERSION + 1)
)
def test_a_repetition_is_answered_without_a_decision(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        answered = answer_all(rig)
        client = await rig.connect()
        for _ in range(3):
            assert await rig.ask(BEAT, version, client) == HeartbeatResponse()
        assert [request.body for request in rig.seen] == [BEAT]
        assert answered == [BEAT, BEAT]

    run(test)


def test_any_difference_makes_it_an_ordinary_request() -> None:
    async def test(rig: GroupRig) -> None:
        answered = answer_all(rig)
        client = await rig.connect()
        others = [
            replace(BEAT, generation_id=4),
            replace(BEAT, member_id="n"),
            replace(BEAT, group_instance_id="m"),
            replace(BEAT, group_id=ELSEWHERE),
        ]
        await rig.ask(BEAT, client=client)
        for other in others:
            await rig.ask(other, client=client)
            await rig.ask(BEAT, client=client)
        await rig.ask(BEAT, 3, client)
        await rig.ask(BEAT, client=await rig.connect())
        assert not answered

    run(test)


def test_a_member_that_has_something_to_learn_is_decided_on() -> None:
    async def test(rig: GroupRig) -> None:
        client = await rig.connect()
        await rig.ask(BEAT, client=client)
        rig.answer = lambda _: None
        rig.script = lambda _: HeartbeatResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
        response = await rig.ask(BEAT, client=client)
        assert response.error_code == ErrorCode.REBALANCE_IN_PROGRESS

    run(test)


def test_a_coordinator_that_moved_refuses_a_repetition() -> None:
    async def test(rig: GroupRig) -> None:
        answered = answer_all(rig)
        client = await rig.connect()
        await rig.ask(BEAT, client=client)
        moved = led(2, leader=OTHER, isr=(NODE, OTHER))
        await rig.replicas.set_state("__consumer_offsets", 0, moved)
        response = await rig.ask(BEAT, client=client)
        assert response.error_code == ErrorCode.NOT_COORDINATOR
        assert not answered

    run(test)
