"""Spare supervisors that wait at the control plane, and the work that the launcher gives them."""

import asyncio
import threading

import pytest

from sparklog.driver.control_plane.spare_supervisors import (
    FORGET_MS,
    GAP_MS_MAX,
    SPARES_MAX,
    SpareSupervisors,
)
from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.supervisor.standby import Standby
from sparklog.types import Endpoint
from sparklog.wire.protocol.private import AwaitWorkRequest, GiveWorkRequest
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def ask(spares: SpareSupervisors, name: str, max_wait_ms: int = 0) -> bytes:
    answer = spares.await_work(AwaitWorkRequest(spare=name, max_wait_ms=max_wait_ms))
    assert not isinstance(answer, asyncio.Future)
    return answer.work


def give(spares: SpareSupervisors, name: str, work: bytes = b"{}") -> bool:
    return spares.give_work(GiveWorkRequest(spare=name, work=work)).asking


def test_only_one_that_asks_is_given_work() -> None:
    clock = Clock()
    spares = SpareSupervisors(clock)
    assert give(spares, "a") is False
    assert ask(spares, "a") == b""
    assert give(spares, "a", b"{1}") is True
    assert ask(spares, "a") == b"{1}"
    clock.now_ms += GAP_MS_MAX + 1
    assert give(spares, "a") is False


def test_who_waits_hears_at_once_and_who_asks_again_hears_the_same() -> None:
    async def story() -> None:
        spares = SpareSupervisors(Clock())
        waiting = spares.await_work(AwaitWorkRequest(spare="a", max_wait_ms=20_000))
        assert isinstance(waiting, asyncio.Future)
        assert give(spares, "a", b"{1}")
        assert (await waiting).work == b"{1}"
        assert ask(spares, "a", 20_000) == b"{1}"
        short = spares.await_work(AwaitWorkRequest(spare="b", max_wait_ms=1))
        assert isinstance(short, asyncio.Future)
        assert (await short).work == b""
        former = spares.await_work(AwaitWorkRequest(spare="b", max_wait_ms=20_000))
        later = spares.await_work(AwaitWorkRequest(spare="b", max_wait_ms=20_000))
        assert isinstance(former, asyncio.Future)
        assert isinstance(later, asyncio.Future)
        assert former.done()
        assert not later.done()
        spares.close()
        assert later.done()

    asyncio.run(story())


def test_the_desk_forgets_and_has_a_limit() -> None:
    clock = Clock()
    spares = SpareSupervisors(clock)
    for number in range(SPARES_MAX):
        ask(spares, f"spare-{number}")
    with pytest.raises(KafkaError) as refusal:
        ask(spares, "one-more")
    assert refusal.value.code == ErrorCode.INVALID_REQUEST
    clock.now_ms += FORGET_MS + 1
    assert ask(spares, "one-more") == b""
    assert give(spares, "spare-0") is False


def test_a_supervisor_stands_by_until_it_is_given_work_or_stopped(
    request: pytest.FixtureRequest,
) -> None:
    async def story(test: UnderTest) -> None:
        endpoint = Endpoint("127.0.0.1", test.control_plane.port)
        first, second = (Standby(endpoint, test.control_plane.secret, n) for n in "ab")
        results = [asyncio.create_task(asyncio.to_thread(each.wait)) for each in (first, second)]
        work = GiveWorkRequest(spare="a", work=b'{"broker": {"broker_id": 3}}')
        while not (await test.tell(work)).asking:
            await asyncio.sleep(0.005)
        assert await results[0] == {"broker": {"broker_id": 3}}
        threading.Thread(target=second.stop).start()
        assert await results[1] is None

    run(request, story)
