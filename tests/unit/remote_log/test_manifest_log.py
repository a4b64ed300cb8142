"""The manifest in a store: commits, checkpoints, pruning, and damage."""

import json

import pytest

from sparklog.commit_log import checkpoint_name, commit_name
from sparklog.errors import DecodeError, StorageError
from sparklog.remote_log.manifest import MisfitError
from sparklog.remote_log.manifest_log import ManifestError, ManifestLog
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.remote_log.manifest_stores import FOLDER, TOPIC, add, leader, next_segment
from tests.unit.remote_log.segments import ids, segment

DAY_MS = 24 * 60 * 60 * 1000


def follower(store: MemoryBackend) -> ManifestLog:
    log = ManifestLog(store, TOPIC, 0)
    log.load()
    return log


def same(*logs: ManifestLog) -> bool:
    """Whether all have the same manifest, and that is what a new reader finds."""
    fresh = ManifestLog(logs[0]._log._backend, TOPIC, 0).load()
    fresh.check_invariants()
    states = {(log.manifest.version, log.manifest.encoded_snapshot()) for log in logs}
    return states == {(fresh.version, fresh.encoded_snapshot())}


def test_a_new_manifest_is_empty() -> None:
    store = MemoryBackend()
    log = follower(store)
    assert (log.manifest.version, log.manifest.leader_epoch) == (0, -1)
    assert log.url == f"{store.url}/{FOLDER}"
    assert log.refresh().version == 0


def test_a_leader_begins_and_commits() -> None:
    store = MemoryBackend()
    log = leader(store, 3, "n")
    added = add(log, segment(0, 10), now_ms=7)
    log.commit(log.manifest.move_log_start(2, 8), 8)
    log.commit((), 9)
    assert store.list(FOLDER) == [commit_name(number) for number in (1, 2, 3)]
    documents = [json.loads(store.read(f"{FOLDER}/{commit_name(n)}")) for n in (1, 2, 3)]
    assert [(each["leader_epoch"], each["time_ms"]) for each in documents] == [
        (3, 0),
        (3, 7),
        (3, 8),
    ]
    assert documents[0]["records"] == [{"type": "LeaderBegan", "leader_epoch": 3, "nonce": "n"}]
    nonces = {each["nonce"] for each in documents}
    assert len(nonces) == 3
    assert all(each.startswith("n-") for each in nonces)
    assert (log.manifest.version, ids(log.manifest.segments())) == (3, [added])
    assert same(log)


def test_a_follower_reads_on() -> None:
    store = MemoryBackend()
    log = leader(store, 1)
    reader = follower(store)
    for _ in range(3):
        add(log)
        assert reader.refresh().version == log.manifest.version
    assert same(log, reader)


def test_records_that_do_not_fit_are_not_written() -> None:
    store = MemoryBackend()
    log = leader(store, 1)
    records = log.manifest.add_segment(segment(0, 10))
    log.commit(records, 0)
    with pytest.raises(MisfitError, match="does not begin at 10"):
        log.commit(records, 0)
    assert store.list(FOLDER) == [commit_name(1), commit_name(2)]
    assert same(log)


def test_records_that_no_reader_accepts_are_not_written() -> None:
    store = MemoryBackend()
    log = leader(store, 1)
    with pytest.raises(DecodeError, match="-5 is not a number of at least 0"):
        log.commit(log.manifest.add_segment(segment(0, 10, size=-5)), 0)
    assert store.list(FOLDER) == [commit_name(1)]


def test_a_store_on_which_two_leaders_could_win_is_refused() -> None:
    store = MemoryBackend()
    store.atomic_put_if_absent = False
    with pytest.raises(StorageError, match="choose a store for remote segments that has"):
        ManifestLog(store, TOPIC, 0).check_backend()


# -- checkpoints


def test_a_checkpoint_is_written_every_so_many_commits_and_old_files_are_pruned() -> None:
    store = MemoryBackend()
    log = leader(store, 1, checkpoint_every=3)
    for now_ms in (0, 0, 1, 1, DAY_MS, DAY_MS):
        add(log, now_ms=now_ms)
    assert store.list(FOLDER) == [
        *(commit_name(number) for number in (4, 5, 6, 7)),
        *(checkpoint_name(number) for number in (3, 6)),
    ]
    assert same(log)


def test_a_checkpoint_is_written_after_so_many_bytes() -> None:
    store = MemoryBackend()
    log = leader(store, 1, tail_bytes_max=1000)
    for _ in range(12):
        add(log)
    checkpoints = [name for name in store.list(FOLDER) if name.startswith("checkpoint")]
    assert 1 < len(checkpoints) < 6, checkpoints
    assert same(log)


def test_a_commit_counts_whether_its_checkpoint_can_be_written_or_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    store = MemoryBackend()
    log = leader(store, 1, checkpoint_every=2)
    store.faults.fail_next(operation="put_if_absent", under="checkpoint")
    add(log)
    assert f"no checkpoint of {log.url} at commit 2" in caplog.text
    add(log)
    add(log)
    assert checkpoint_name(4) in store.list(FOLDER)
    assert same(log)


def test_a_reader_that_stood_still_while_commits_were_pruned_reads_everything_again() -> None:
    store = MemoryBackend()
    log = leader(store, 1, checkpoint_every=3)
    reader = follower(store)
    for now_ms in (0, 0, 1, 1, DAY_MS, DAY_MS):
        add(log, now_ms=now_ms)
    assert not store.exists(f"{FOLDER}/{commit_name(reader.manifest.version + 1)}")
    assert reader.refresh().version == 7
    assert same(log, reader)


@pytest.mark.parametrize("older", [True, False])
def test_a_damaged_checkpoint_is_done_without(older: bool) -> None:
    store = MemoryBackend()
    log = leader(store, 1, checkpoint_every=3)
    for _ in range(7):
        add(log)
    store.put(f"{FOLDER}/{checkpoint_name(6)}", b"damage")
    if not older:
        store.delete(f"{FOLDER}/{checkpoint_name(3)}")
    assert same(log)
    successor = leader(store, 2)
    assert successor.manifest.version == 9
    assert same(successor)


def test_a_damaged_checkpoint_without_the_commits_before_it_is_an_error_with_a_remedy() -> None:
    store = MemoryBackend()
    log = leader(store, 1, checkpoint_every=3)
    for _ in range(3):
        add(log)
    store.put(f"{FOLDER}/{checkpoint_name(3)}", b"damage")
    store.delete(f"{FOLDER}/{commit_name(2)}")
    with pytest.raises(ManifestError) as refusal:
        leader(store, 2)
    assert str(refusal.value) == (
        f"{log.url}/{checkpoint_name(3)} is damaged (it is not JSON); restore it from a copy of "
        f"{log.url}; without it the segments of the partition in this store cannot be read"
    )


# -- damaged commits


def test_a_commit_that_does_not_fit_is_named() -> None:
    store = MemoryBackend()
    log = leader(store, 1)
    add(log)
    data = store.read(f"{FOLDER}/{commit_name(2)}").replace(b'"version":2', b'"version":3')
    document = json.loads(data)
    del document["crc"]
    store.put(f"{FOLDER}/{commit_name(3)}", json.dumps(document).encode())
    with pytest.raises(ManifestError, match=f"{commit_name(3)} is damaged .*begin at 10"):
        log.refresh()
    assert log.manifest.version == 2


def test_a_commit_of_an_older_leader_after_a_newer_one_is_damage() -> None:
    store = MemoryBackend()
    leader(store, 4)
    log = leader(store, 5)
    data = store.read(f"{FOLDER}/{commit_name(1)}")
    document = json.loads(data) | {"version": 3, "records": []}
    del document["crc"]
    store.put(f"{FOLDER}/{commit_name(3)}", json.dumps(document).encode())
    reason = "it is of leader epoch 4, after commits of epoch 5"
    with pytest.raises(ManifestError, match=reason):
        log.refresh()
    with pytest.raises(ManifestError, match=reason):
        ManifestLog(store, TOPIC, 0).load()
    with pytest.raises(ManifestError, match=reason):
        log.commit(log.manifest.add_segment(next_segment(log)), 0)
