"""A process that has led before another leader, and is asked in a later leader epoch.

Its broker leads again, and has not taken the manifest over yet.
"""

from typing import Any

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.remote_log import names, takeover
from sparklog.remote_log.service import RemoteLogService
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.memory_faults import Operation
from tests.unit.executors.log.log_fixtures import Desk
from tests.unit.remote_log.service_fixtures import (
    PARTITION,
    TieredLog,
    service_of,
    tiered_log,
)

FIRST_EPOCH, HEIR_EPOCH, EPOCH = 9, 10, 11


class SigningStore(MemoryBackend):
    """Signs as a bucket does."""

    def presign(self, path: str, seconds: int) -> str:
        return f"https://bucket/{path}?seconds={seconds}"


@pytest.fixture
def tiered() -> TieredLog:
    """The log as the heir has left it; ``service`` is the heir's."""
    return tiered_log(SigningStore(), Desk())


@pytest.fixture
def former(tiered: TieredLog) -> RemoteLogService:
    """The process that has led first; another one leads from now on."""
    former, tiered.service = tiered.service, service_of(tiered.store, tiered.desk.half)
    return former


def signed_ids(service: RemoteLogService, end: int) -> list[str]:
    found = service.signed_segments(PARTITION, 0, end, seconds=60, count_max=99, leader_epoch=EPOCH)
    return [each.segment.segment_id for each in found.segments]


def test_a_time_is_found_in_what_the_heir_has_copied(
    tiered: TieredLog, former: RemoteLogService
) -> None:
    old_end = tiered.end
    tiered.rich.put(*range(900, 910))
    tiered.copy_all(HEIR_EPOCH)
    found = former.find_timestamp(PARTITION, 905, 0, leader_epoch=EPOCH)
    assert found is not None
    assert (found.offset, found.timestamp) == (tiered.end - 5, 905)
    assert found.offset >= old_end


def test_nothing_has_a_url_before_the_takeover(tiered: TieredLog, former: RemoteLogService) -> None:
    *kept, last = tiered.segments
    epochs = tuple(each for each in tiered.leader_epochs if each.start_offset < last.base_offset)
    log = tiered.leader_log(log_end_offset=last.base_offset, leader_epochs=epochs)
    assert signed_ids(former, tiered.end) == []
    tiered.service.begin_leadership(PARTITION, HEIR_EPOCH, "n", log, 0)
    former.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=HEIR_EPOCH)
    assert signed_ids(former, tiered.end) == []
    former.begin_leadership(PARTITION, EPOCH, "m", log, 0)
    assert signed_ids(former, tiered.end) == [each.segment_id for each in kept]


def test_a_time_is_found_in_what_the_present_leader_has_copied(
    tiered: TieredLog, former: RemoteLogService
) -> None:
    """The former leader follows, knows the manifest of this epoch, and does not lead in it."""
    former.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=HEIR_EPOCH)
    tiered.copy_all(HEIR_EPOCH)
    former.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=HEIR_EPOCH)
    tiered.rich.put(*range(900, 910))
    tiered.copy_all(HEIR_EPOCH)
    found = former.find_timestamp(PARTITION, 905, 0, leader_epoch=HEIR_EPOCH)
    assert found is not None
    assert (found.offset, found.timestamp) == (tiered.end - 5, 905)


def test_a_follower_finds_no_manifest_of_a_leader_with_what_the_leader_has_removed(
    tiered: TieredLog, former: RemoteLogService, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its consumers read while the leader takes over."""
    *_, last = tiered.segments
    epochs = tuple(each for each in tiered.leader_epochs if each.start_offset < last.base_offset)
    log = tiered.leader_log(log_end_offset=last.base_offset, leader_epochs=epochs)
    diverges_at = takeover.diverges_at

    def meanwhile(*args: Any) -> int | None:
        former.read(PARTITION, 0, 1, with_aborted=False, leader_epoch=HEIR_EPOCH)
        return diverges_at(*args)

    monkeypatch.setattr(takeover, "diverges_at", meanwhile)
    tiered.service.begin_leadership(PARTITION, HEIR_EPOCH, "n", log, 0)
    with pytest.raises(KafkaError) as refused:
        former.read(PARTITION, last.base_offset, 1, with_aborted=False, leader_epoch=HEIR_EPOCH)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_leader_that_has_taken_over_looks_without_a_request(tiered: TieredLog) -> None:
    looked: list[str] = []

    def look(operation: Operation, path: str) -> None:
        del operation
        if names.manifest_folder(*PARTITION) in path:
            looked.append(path)

    assert isinstance(tiered.store, MemoryBackend)
    tiered.store.faults.slow = look
    for epoch in (FIRST_EPOCH - 1, FIRST_EPOCH):
        how = {"seconds": 60, "count_max": 99, "leader_epoch": epoch}
        tiered.service.signed_segments(PARTITION, 0, 1, **how)
        tiered.service.find_timestamp(PARTITION, 100, 0, leader_epoch=epoch)
    assert looked == []
    tiered.service.find_timestamp(PARTITION, 100, 0, leader_epoch=EPOCH)
    assert looked != []
