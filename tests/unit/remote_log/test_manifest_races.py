"""Leaders that race for a manifest, and writes whose answers are lost or come late."""

from collections.abc import Callable
from itertools import count

import pytest

from sparklog.errors import StorageError
from sparklog.remote_log.manifest import MisfitError
from sparklog.remote_log.manifest_log import DeposedLeaderError, ManifestLog
from sparklog.storage_backends.memory_faults import Operation
from tests.unit.remote_log.manifest_stores import (
    FOLDER,
    TOPIC,
    ScriptedStore,
    add,
    leader,
    next_segment,
)
from tests.unit.remote_log.segments import ids, segment

DAY_MS = 24 * 60 * 60 * 1000


def stored(store: ScriptedStore) -> list[str]:
    """The ids of the segments that a new reader finds."""
    manifest = ManifestLog(store, TOPIC, 0).load()
    manifest.check_invariants()
    return ids(manifest.segments())


# -- leaders


def test_the_commit_of_an_old_leader_collides() -> None:
    store = ScriptedStore()
    old = leader(store, 1)
    first = add(old)
    new = leader(store, 2)
    with pytest.raises(DeposedLeaderError) as refusal:
        add(old)
    assert str(refusal.value) == (
        f"another leader, of epoch 2, has taken over {old.url}; this one (epoch 1) was deposed and "
        "changes it no more"
    )
    second = add(new)
    with pytest.raises(DeposedLeaderError):
        add(old)
    assert stored(store) == [first, second]


def test_an_old_leader_that_comes_back_cannot_begin() -> None:
    store = ScriptedStore()
    old = leader(store, 1)
    new = leader(store, 2)
    for epoch, nonce in ((1, "leader-1"), (1, "other"), (2, "other")):
        with pytest.raises(DeposedLeaderError):
            leader(store, epoch, nonce)
    with pytest.raises(DeposedLeaderError):
        old.begin_leadership(1, "leader-1", 0)
    assert new.refresh().version == 2


def test_a_leader_that_comes_back_in_a_new_epoch_begins_again() -> None:
    store = ScriptedStore()
    old = leader(store, 1)
    first = add(old)
    second = add(leader(store, 2))
    with pytest.raises(DeposedLeaderError):
        add(old)
    old.begin_leadership(3, "again", 0)
    third = add(old)
    assert stored(store) == [first, second, third]


def test_a_leader_begins_behind_commits_of_older_leaders() -> None:
    """The old leader commits between the reading and the first commit of the new leader."""
    store = ScriptedStore()
    old = leader(store, 1)
    new = ManifestLog(store, TOPIC, 0)
    new.load()
    found: list[str] = []
    refresh = new.refresh

    def refresh_late() -> object:
        manifest = refresh()
        if len(found) < 3:
            found.append(add(old))
        return manifest

    new.refresh = refresh_late  # type: ignore[method-assign, assignment]
    new.begin_leadership(2, "n", 0)
    assert (new.manifest.leader_epoch, ids(new.manifest.segments())) == (2, found)
    with pytest.raises(DeposedLeaderError):
        add(old)


def test_a_leader_that_had_begun_begins_again_without_a_commit() -> None:
    store = ScriptedStore()
    add(leader(store, 1, "n"))
    again = leader(store, 1, "n")
    assert again.manifest.version == 2
    add(again)
    assert len(stored(store)) == 2


def test_a_leader_whose_commits_were_pruned_learns_that_it_was_replaced() -> None:
    """The number of its next commit is free again, but not because nobody had it."""
    store = ScriptedStore()
    old = leader(store, 1)
    first = add(old)
    new = leader(store, 2, checkpoint_every=3)
    for now_ms in (0, 0, 0, 1, DAY_MS, DAY_MS):
        add(new, now_ms=now_ms)
    assert store.list(FOLDER)[0] > f"{old.manifest.version + 1:020d}.json"
    with pytest.raises(DeposedLeaderError):
        add(old)
    assert len(stored(store)) == 7
    assert stored(store)[0] == first
    with pytest.raises(DeposedLeaderError):
        add(old)


def test_a_leader_of_an_empty_manifest_that_stood_still_learns_that_it_was_replaced() -> None:
    store = ScriptedStore()
    old = ManifestLog(store, TOPIC, 0)
    load = old.load

    def load_early() -> object:
        manifest = load()
        if manifest.version == 0:
            new = leader(store, 2, checkpoint_every=3)
            for now_ms in (0, 0, 0, 1, DAY_MS, DAY_MS):
                add(new, now_ms=now_ms)
        return manifest

    old.load = load_early  # type: ignore[method-assign, assignment]
    with pytest.raises(DeposedLeaderError):
        old.begin_leadership(1, "n", 0)
    assert len(stored(store)) == 6


# -- lost answers


def failing_read(number: int) -> Callable[[Operation, str], None]:
    """A fault of the read with this number."""
    reads = count(1)

    def fail(operation: Operation, path: str) -> None:
        if operation == "read" and next(reads) == number:
            raise StorageError(f"cannot read {path}")

    return fail


@pytest.mark.parametrize("failures", [["before"], ["after"]])
def test_a_write_that_fails_once_is_tried_again_at_once(failures: list[str]) -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    store.fail(*failures)  # type: ignore[arg-type]
    added = add(log)
    assert stored(store) == [added]


@pytest.mark.parametrize("written", [True, False])
def test_the_next_call_finds_out_whether_a_commit_was_written(written: bool) -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.fail("after" if written else "before", "before")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    assert log.manifest.version == 1
    puts = store.puts
    log.commit(records, 5)
    assert store.puts == puts + (not written)
    assert (log.manifest.version, stored(store)) == (2, ids([segment(0, 10)]))
    add(log)


def test_an_outcome_stays_unknown_while_the_store_does_not_tell_it() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.fail("after", "before")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    log.refresh()
    # Of the reads that follow, the first one is that of the next commit, the second one of the
    # header of the commit in question.
    for reads in (1, 2):
        store.faults.slow = failing_read(reads)
        with pytest.raises(StorageError):
            log.commit(records, 0)
        store.faults.clear()
    log.commit(records, 0)
    assert (log.manifest.version, stored(store)) == (2, ids([segment(0, 10)]))


def test_a_commit_of_unknown_outcome_is_replayed_before_other_records() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    store.fail("after", "before")
    with pytest.raises(StorageError):
        add(log, segment(0, 10))
    with pytest.raises(MisfitError, match="does not begin at 10"):
        log.commit(log.manifest.add_segment(segment(0, 12, copy=1)), 0)
    second = add(log)
    assert stored(store) == [*ids([segment(0, 10)]), second]


def test_a_refresh_replays_a_commit_of_unknown_outcome_which_is_recognised_afterwards() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.fail("after", "before")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    assert log.refresh().version == 2
    log.commit(records, 0)
    assert log.manifest.version == 2


def test_a_late_write_is_recognised_when_it_takes_the_number_of_its_repetition() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.fail("late", "late")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    store.fail("before", "before")
    with pytest.raises(StorageError):
        log.commit(records, 1)
    assert store.land() == [True, False]
    log.commit(records, 2)
    assert (log.manifest.version, stored(store)) == (2, ids([segment(0, 10)]))


def land_before_the_next_write(log: ManifestLog, store: ScriptedStore) -> None:
    """Late writes arrive after the leader has read on, and before it writes."""
    has_commit = log._log.has_commit

    def land_then_look(version: int) -> bool:
        store.land()
        return has_commit(version)

    log._log.has_commit = land_then_look  # type: ignore[method-assign]


def test_a_late_write_is_recognised_by_its_repetition() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.fail("late", "late")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    land_before_the_next_write(log, store)
    log.commit(records, 1)
    assert (log.manifest.version, stored(store)) == (2, ids([segment(0, 10)]))


def test_other_records_follow_a_late_write_that_takes_their_number() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    store.fail("late", "late")
    with pytest.raises(StorageError):
        log.commit(log.manifest.move_log_start(4, 0), 0)
    records = log.manifest.add_segment(segment(0, 10))
    land_before_the_next_write(log, store)
    log.commit(records, 0)
    manifest = log.manifest
    assert (manifest.version, manifest.log_start_offset, manifest.end_offset) == (3, 4, 10)


def test_a_late_write_comes_too_late_when_another_leader_has_begun() -> None:
    store = ScriptedStore()
    old = leader(store, 1)
    records = old.manifest.add_segment(segment(0, 10))
    store.fail("late", "late")
    with pytest.raises(StorageError):
        old.commit(records, 0)
    new = leader(store, 2)
    added = add(new, segment(0, 20, copy=1))
    assert store.land() == [False, False]
    with pytest.raises(DeposedLeaderError):
        old.commit(records, 0)
    assert not old.manifest.is_live(segment(0, 10).segment_id)
    assert stored(store) == [added]


def test_a_deposed_leader_learns_that_its_last_commit_was_written() -> None:
    store = ScriptedStore()
    old = leader(store, 1)
    records = old.manifest.add_segment(segment(0, 10))
    store.fail("after", "before")
    with pytest.raises(StorageError):
        old.commit(records, 0)
    add(leader(store, 2))
    old.commit(records, 0)
    with pytest.raises(DeposedLeaderError):
        old.commit(old.manifest.add_segment(next_segment(old)), 0)


@pytest.mark.parametrize("written", [True, False])
def test_a_leader_whose_first_commit_was_lost_begins_again(written: bool) -> None:
    store = ScriptedStore()
    log = ManifestLog(store, TOPIC, 0)
    store.fail("after" if written else "before", "before")
    with pytest.raises(StorageError):
        log.begin_leadership(1, "n", 0)
    log.begin_leadership(1, "n", 0)
    add(log)
    assert (log.manifest.version, len(stored(store))) == (2, 1)


def test_a_commit_is_unknown_while_it_cannot_be_checked_that_nothing_was_pruned() -> None:
    store = ScriptedStore()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    store.faults.fail_next(operation="exists")
    with pytest.raises(StorageError):
        log.commit(records, 0)
    log.commit(records, 0)
    assert (log.manifest.version, stored(store)) == (2, ids([segment(0, 10)]))
