"""Answers of the process for the remote_dir: what seems damaged is read from the bucket again."""

from typing import Any, cast

from sparklog.executors.tiering.__main__ import answer_call
from sparklog.executors.tiering.messages import Answer, Call, MessageDecoder, encode_message
from sparklog.remote_log.chunk_cache import ChunkCache, ChunkCacheCounters
from sparklog.remote_log.damaged_object import DamagedObjectError, GoneObjectError
from sparklog.remote_log.service import RemoteLogService

ERROR = DamagedObjectError("a.log", 5, "CRC is wrong", 10, 20)


class Cache:
    """Notes what it forgets."""

    def __init__(self) -> None:
        self.forgotten: list[str] = []

    def forget(self, path: str) -> None:
        self.forgotten.append(path)

    def counters(self) -> ChunkCacheCounters:
        return ChunkCacheCounters(hits=3)


class Service:
    """A service with one method, which fails a few times."""

    def __init__(self, failures: int) -> None:
        self.failures = failures
        self.calls = 0

    def read(self) -> str:
        self.calls += 1
        if self.calls <= self.failures:
            raise ERROR
        return "sound"


def answer(service: Service, cache: Cache | None) -> Answer:
    return answer_call(
        cast(RemoteLogService, service), cast(ChunkCache, cache), Call(7, "read", (), {})
    )


def test_what_is_damaged_in_the_cache_only_is_no_error() -> None:
    service, cache = Service(failures=1), Cache()
    assert answer(service, cache) == Answer(7, "sound", cache=ChunkCacheCounters(hits=3))
    assert (service.calls, cache.forgotten) == (2, ["a.log"])


def test_what_is_damaged_in_the_bucket_is_not_kept() -> None:
    service, cache = Service(failures=99), Cache()
    assert answer(service, cache).error is ERROR
    assert (service.calls, cache.forgotten) == (2, ["a.log", "a.log"])


def test_without_a_cache_an_error_is_told_at_once() -> None:
    service = Service(failures=1)
    assert answer(service, None) == Answer(7, None, ERROR)
    assert service.calls == 1


def test_the_errors_of_damage_go_through_the_pipes() -> None:
    for kind in (DamagedObjectError, GoneObjectError):
        error = kind("a.log", 5, "because", 10, 20)
        received: Any = None
        decoder = MessageDecoder()
        data = encode_message(Answer(7, None, error))
        while received is None:
            room = decoder.room()
            room[:] = data[: len(room)]
            data = data[len(room) :]
            received = decoder.received(len(room))
        assert type(received.error) is kind
        assert str(received.error) == str(error)
        assert vars(received.error) == vars(error)
        assert "a.log" in str(error)
        assert "10 to 19" in str(error)
