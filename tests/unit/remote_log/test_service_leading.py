"""Leaders that take a manifest over through the service."""

from pathlib import Path

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log import names
from sparklog.remote_log.manifest_log import DeposedLeaderError
from sparklog.remote_log.service import (
    LeaderLog,
    MissingManifestError,
    NotLeadingError,
    RemoteLogState,
    ShortLineageError,
)
from sparklog.storage_backends.base import StorageBackend
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import NO_OFFSET
from tests.unit.executors.log.log_fixtures import Desk
from tests.unit.remote_log.manifest_stores import Failure, ScriptedStore
from tests.unit.remote_log.remote_fixtures import local_read
from tests.unit.remote_log.segments import ids
from tests.unit.remote_log.service_fixtures import (
    PARTITION,
    TieredLog,
    copied,
    leader_log,
    leading,
    service_of,
    stored,
    tiered_log,
)

A, B, C = copied(0, 10), copied(10, 20), copied(20, 30)


def led(*, log_start: int = 0) -> ScriptedStore:
    """A store in which the leader of epoch 1 has added A, B and C."""
    store = ScriptedStore()
    service = leading(store, [A, B, C])
    service.move_log_start(PARTITION, 1, log_start, 0)
    return store


def take_over(store: StorageBackend, log: LeaderLog, epoch: int = 2) -> RemoteLogState:
    return service_of(store).begin_leadership(PARTITION, epoch, "n", log, 7)


def contents(store: StorageBackend) -> tuple[list[str], int | None, tuple[str, ...]]:
    """The live segments, the log start and the garbage."""
    manifest = stored(store)
    return ids(manifest.segments()), manifest.log_start_offset, manifest.garbage_ids


# -- agreement


def test_a_new_leader_with_all_records_changes_nothing_but_the_epoch() -> None:
    store = led()
    before = contents(store)
    state = take_over(store, leader_log(45, (1, 0), (2, 42), local=30))
    assert state == RemoteLogState(0, 30, 3, A.log_size * 3, A.size * 3)
    assert contents(store) == before == (ids([A, B, C]), 0, ())
    assert (stored(store).leader_epoch, stored(store).version) == (2, 6)


def test_the_first_leader_of_all_gives_the_log_its_start() -> None:
    store = MemoryBackend()
    state = take_over(store, leader_log(45, (1, 5), start=5))
    assert state == RemoteLogState(5, NO_OFFSET, 0, 0, 0)
    assert contents(store) == ([], 5, ())


def test_segments_beyond_the_divergence_leave_the_manifest() -> None:
    store = led()
    state = take_over(store, leader_log(40, (1, 0), (2, 20), local=3))
    assert (state.log_start_offset, state.end_offset) == (0, 20)
    assert contents(store) == (ids([A, B]), 0, (C.segment_id,))
    store = led()
    assert take_over(store, leader_log(40, (1, 0), (2, 15), local=10)).end_offset == 10
    assert contents(store) == (ids([A]), 0, tuple(ids([B, C])))


@pytest.mark.parametrize(
    "log",
    [
        leader_log(40, (1, 0), local=31),
        # It is a gap whatever the older epochs are.
        leader_log(40, (2, 31), local=31),
        leader_log(40, local=31),
        # The files begin above the divergence, so the beginning of B would not help.
        leader_log(40, (1, 0), (2, 15), local=31),
        leader_log(31, (1, 0), (2, 15), local=31),
    ],
)
def test_all_segments_go_when_the_files_begin_above_their_end(
    log: LeaderLog, caplog: pytest.LogCaptureFixture
) -> None:
    store = led()
    assert take_over(store, log) == RemoteLogState(31, NO_OFFSET, 0, 0, 0)
    assert contents(store) == ([], 31, tuple(ids([A, B, C])))
    [told] = [record.getMessage() for record in caplog.records if record.levelname == "ERROR"]
    assert "at the offsets [0, 31) are in neither tier" in told


def test_all_segments_go_when_the_files_begin_above_the_divergence() -> None:
    store = led()
    state = take_over(store, leader_log(40, (1, 0), (2, 15), local=18))
    assert state == RemoteLogState(18, NO_OFFSET, 0, 0, 0)
    live, start, garbage = contents(store)
    assert (live, start, sorted(garbage)) == ([], 18, ids([A, B, C]))


def test_the_log_start_of_the_leader_is_above_that_of_the_manifest() -> None:
    store = led()
    state = take_over(store, leader_log(40, (1, 12), start=12, local=30))
    assert (state.log_start_offset, state.end_offset) == (12, 30)
    assert contents(store) == (ids([B, C]), 12, (A.segment_id,))
    assert take_over(store, leader_log(40, (1, 30), start=30), 3).log_start_offset == 30
    assert contents(store) == ([], 30, tuple(ids([A, B, C])))


def test_the_log_start_of_the_leader_is_below_that_of_the_manifest() -> None:
    store = led(log_start=12)
    state = take_over(store, leader_log(40, (1, 0), local=5))
    assert (state.log_start_offset, state.end_offset) == (12, 30)
    assert contents(store) == (ids([B, C]), 12, (A.segment_id,))


def test_the_log_begins_anew_with_a_leader_whose_log_ends_below_the_log_start() -> None:
    """The old log start would hide what this leader acknowledges from now on."""
    store = led(log_start=12)
    assert take_over(store, leader_log(8, (1, 0))) == RemoteLogState(0, NO_OFFSET, 0, 0, 0)
    assert contents(store) == ([], 0, tuple(ids([A, B, C])))


# -- lineage


def test_a_leader_with_a_short_lineage_drops_nothing_and_does_not_lead() -> None:
    store = led()
    before = contents(store)
    service = service_of(store)
    short = leader_log(45, (2, 30), local=30)
    for _ in range(2):
        with pytest.raises(ShortLineageError, match="begin at offset 30, but the segments of "):
            service.begin_leadership(PARTITION, 2, "n", short, 7)
        with pytest.raises(NotLeadingError):
            service.move_log_start(PARTITION, 2, 25, 7)
    assert contents(store) == before
    assert stored(store).leader_epoch == 1
    full = leader_log(45, (1, 0), (2, 30), local=30)
    assert service.begin_leadership(PARTITION, 2, "n", full, 7).end_offset == 30
    assert contents(store) == before


@pytest.fixture(params=["memory", "folder"])
def tiered(request: pytest.FixtureRequest, tmp_path: Path) -> TieredLog:
    """A real log that was copied, in memory or in folders."""
    if request.param == "memory":
        return tiered_log(MemoryBackend(), Desk())
    return tiered_log(LocalBackend(tmp_path / "bucket"), Desk(half=LocalBackend(tmp_path / "log")))


def test_a_leader_restores_its_lineage_from_the_state_of_a_follower(tiered: TieredLog) -> None:
    before = ids(stored(tiered.store).segments())
    service = service_of(tiered.store)
    local = tiered.segments[-3].base_offset
    own = tuple(each for each in tiered.leader_epochs if each.start_offset >= local)
    log = tiered.leader_log(local_log_start_offset=local, leader_epochs=own)
    with pytest.raises(ShortLineageError):
        service.begin_leadership(PARTITION, 10, "n", log, 0)
    restored = service.follower_state(PARTITION, local).leader_epochs
    epochs = tuple(each for each in restored if each.start_offset < local) + own
    assert epochs == tiered.leader_epochs
    log = tiered.leader_log(local_log_start_offset=local, leader_epochs=epochs)
    assert service.begin_leadership(PARTITION, 10, "n", log, 0).end_offset == tiered.end
    assert ids(stored(tiered.store).segments()) == before


def test_a_log_that_was_lost_goes_on_at_the_end_of_its_segments(tiered: TieredLog) -> None:
    service = service_of(tiered.store)
    with pytest.raises(ShortLineageError, match="are unknown"):
        service.begin_leadership(PARTITION, 10, "n", leader_log(0, (10, 0)), 0)
    found = service.follower_state(PARTITION, service.state(PARTITION).end_offset)
    assert found.offset == tiered.end
    log = LeaderLog(
        log_start_offset=0,
        local_log_start_offset=found.offset,
        log_end_offset=found.offset,
        leader_epochs=found.leader_epochs,
    )
    assert service.begin_leadership(PARTITION, 10, "n", log, 0).segments == len(tiered.segments)


# -- a beginning that stays


def test_the_log_stays_readable_when_the_files_begin_inside_the_diverging_segment(
    tiered: TieredLog,
) -> None:
    """The new leader has the end of a segment up to a batch in its middle, and nothing below."""
    *older, whole, _ = tiered.segments
    boundaries = [whole.base_offset]
    while boundaries[-1] < whole.next_offset:
        read = tiered.service.read(PARTITION, boundaries[-1], 1, with_aborted=False)
        boundaries.append(read.next_offset)
    local, end = boundaries[1], boundaries[2]
    lineage = tuple(each for each in tiered.leader_epochs if each.start_offset < end)
    log = tiered.leader_log(local_log_start_offset=local, log_end_offset=end, leader_epochs=lineage)
    service = service_of(tiered.store)
    state = service.begin_leadership(PARTITION, 10, "n", log, 0)
    assert (state.log_start_offset, state.end_offset) == (0, end)
    assert ids(stored(tiered.store).segments()) == ids([*older, whole])
    assert stored(tiered.store).garbage_ids == (tiered.segments[-1].segment_id,)
    for offset in range(end):
        segment = stored(tiered.store).segment_at(offset)
        assert segment is not None
        expected = local_read(
            tiered.rich.log, offset, 10**6, end_offset=segment.next_offset, min_one=True
        )
        assert service.read(PARTITION, offset, 10**6, with_aborted=True) == expected
    found = service.follower_state(PARTITION, local)
    assert (found.offset, found.leader_epochs, found.producer_snapshot) == (end, lineage, None)
    # A reader that knew the whole segment does not serve what is behind its beginning.
    with pytest.raises(Exception, match=f"holds offset {end}"):
        tiered.service.read(PARTITION, end, 1, with_aborted=False, leader_epoch=10)


def test_a_beginning_does_not_stay_if_the_files_have_it(tiered: TieredLog) -> None:
    *_, before, whole, _ = tiered.segments
    log = tiered.leader_log(
        local_log_start_offset=whole.base_offset,
        log_end_offset=whole.next_offset - 1,
        leader_epochs=tuple(
            each for each in tiered.leader_epochs if each.start_offset < whole.next_offset - 1
        ),
    )
    state = service_of(tiered.store).begin_leadership(PARTITION, 10, "n", log, 0)
    assert (state.log_start_offset, state.end_offset) == (0, before.next_offset)


# -- repetition


def test_a_process_that_restarts_in_the_same_epoch_goes_on() -> None:
    store = led()
    again = service_of(store)
    log = leader_log(45, (1, 0), local=10)
    state = again.begin_leadership(PARTITION, 1, "leader-1", log, 7)
    assert (state.end_offset, stored(store).version) == (30, 5)
    assert again.add_segment(PARTITION, copied(30, 40), 7).end_offset == 40
    with pytest.raises(DeposedLeaderError):
        service_of(store).begin_leadership(PARTITION, 1, "another", log, 7)


def test_an_old_leader_that_comes_back_is_deposed_and_does_not_lead() -> None:
    store = led()
    service = service_of(store)
    take_over(store, leader_log(45, (1, 0), (2, 40)), 3)
    for _ in range(2):
        with pytest.raises(DeposedLeaderError):
            service.begin_leadership(PARTITION, 2, "n", leader_log(45, (1, 0)), 7)
        with pytest.raises(NotLeadingError, match=r"no leader of .* has begun"):
            service.add_segment(PARTITION, copied(30, 40, by=2), 7)


@pytest.mark.parametrize(
    "failures",
    [
        ("before", "before"),
        ("after", "before"),
        ("late", "late"),
    ],
)
@pytest.mark.parametrize("commits_before", [0, 1])
def test_a_takeover_whose_answers_were_lost_is_repeated(
    failures: tuple[Failure, ...], commits_before: int
) -> None:
    """The commits are: the leader began and segments left, the log start moved."""
    store = led()
    service = service_of(store)
    log = leader_log(40, (1, 12), (2, 25), start=12, local=12)
    fail_after(store, commits_before, failures)
    with pytest.raises(StorageError):
        service.begin_leadership(PARTITION, 2, "n", log, 7)
    with pytest.raises(NotLeadingError):
        service.retained_from(
            PARTITION, retention_ms=-1, retention_bytes=-1, local_bytes_above=0, now_ms=7
        )
    store.land()
    state = service.begin_leadership(PARTITION, 2, "n", log, 8)
    assert (state.log_start_offset, state.end_offset, state.segments) == (12, 20, 1)
    assert contents(store) == (ids([B]), 12, (C.segment_id, A.segment_id))
    assert stored(store).version == 5 + 2


def fail_after(store: ScriptedStore, count: int, failures: tuple[Failure, ...]) -> None:
    """Let the puts after the next ``count`` fail."""
    working = store.put_if_absent
    calls = 0

    def put_if_absent(path: str, data: bytes) -> bool:
        nonlocal calls
        calls += 1
        if calls == count + 1:
            store.fail(*failures)
        return working(path, data)

    store.put_if_absent = put_if_absent  # type: ignore[method-assign,assignment]


# -- a store that is not the one that has the records


def test_a_first_manifest_does_not_hide_records_that_were_in_a_store() -> None:
    store = MemoryBackend()
    service = service_of(store)
    with pytest.raises(MissingManifestError) as refusal:
        service.begin_leadership(PARTITION, 3, "n", leader_log(45, (1, 5), start=5, local=30), 7)
    assert str(refusal.value) == (
        f"{store.url} never had a segment of partition {PARTITION.topic_id}-0, but the log of the "
        "leader starts at offset 5, and its files only at 30; mount or restore the remote_dir that "
        "has [5, 30), or accept the loss of these records with DeleteRecords up to offset 30"
    )
    assert store.list("") == []
    with pytest.raises(NotLeadingError):
        service.move_log_start(PARTITION, 3, 30, 7)
    accepted = leader_log(45, (1, 30), start=30)
    assert service.begin_leadership(PARTITION, 3, "n", accepted, 7).log_start_offset == 30


def test_a_manifest_that_has_begun_is_taken_over_above_a_gap() -> None:
    store = MemoryBackend()
    leading(store)
    state = service_of(store).begin_leadership(PARTITION, 3, "n", leader_log(45, local=30), 7)
    assert state.log_start_offset == 30
    assert store.exists(names.lost_file(*PARTITION))


def test_a_folder_that_is_not_mounted_any_more_gets_no_first_manifest(tmp_path: Path) -> None:
    store = LocalBackend(tmp_path / "bucket")
    service = service_of(store)
    service.owner.claim("ours")
    service.owner.check("ours")
    store.delete(names.CLUSTER_FILE)
    with pytest.raises(StorageError, match="belongs to no cluster"):
        service.begin_leadership(PARTITION, 1, "n", leader_log(10), 7)
    with pytest.raises(StorageError, match="belongs to no cluster"):
        service.state(PARTITION)
    assert store.list("") == []
