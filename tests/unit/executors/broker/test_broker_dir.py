"""A broker's identity on the disk, in Kafka's formats."""

from dataclasses import replace
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

import pytest

from sparklog.errors import DecodeError, LockedError, StorageError
from sparklog.executors.log_dirs.broker_dir import (
    BrokerDir,
    BrokerStartError,
    LogOffsets,
    MetaProperties,
)
from sparklog.executors.log_dirs.partition_dirs import (
    delete_partition_dir,
    is_stray_dir,
    parse_partition_dir,
    rename_stray_dir,
)
from sparklog.metadata import ClusterImage, PartitionImage, TopicCreated
from sparklog.storage_backends.local import TEMPORARY_PREFIX, LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.types import TopicPartition

DIRECTORY = UUID("01234567-89ab-cdef-0123-456789abcdef")
TOPIC_ID = UUID(int=3)


def take(half: MemoryBackend, new: bool = True, **changes: object) -> BrokerDir:
    values: dict[str, object] = {"cluster_id": "c", "node_id": 1, "new": new, "new_id": DIRECTORY}
    return BrokerDir.take(half, "broker-1", **{**values, **changes})  # type: ignore[arg-type]


def test_a_new_log_directory_gets_its_properties_and_keeps_them() -> None:
    half = MemoryBackend()
    log_dir = take(half)
    meta = MetaProperties(cluster_id="c", node_id=1, directory_id=DIRECTORY)
    assert half.read("broker-1/meta.properties") == (
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=ASNFZ4mrze8BI0VniavN7w\n"
    )
    assert (log_dir.meta, log_dir.clean, log_dir.recovery_points) == (meta, False, {})
    log_dir.release()
    assert take(half, new=False, new_id=UUID(int=9)).meta == meta


def test_properties_written_by_kafka_are_read() -> None:
    text = (
        b"#\n#Fri Nov 20 10:00:00 UTC 2026\ncluster.id=abc\ndirectory.id=ASNFZ4mrze8BI0VniavN7w\n"
        b"node.id=3\nversion=1\n"
    )
    assert MetaProperties.decode(text) == MetaProperties(
        cluster_id="abc", node_id=3, directory_id=DIRECTORY
    )


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"version=2\n",
        b"version=1\ncluster.id=c\nnode.id=x\ndirectory.id=ASNFZ4mrze8BI0VniavN7w\n",
        b"version=1\ncluster.id=c\nnode.id=1\ndirectory.id=AS\n",
    ],
)
def test_unreadable_properties_are_named(text: bytes) -> None:
    with pytest.raises(DecodeError):
        MetaProperties.decode(text)
    half = MemoryBackend()
    half.put("broker-1/meta.properties", text)
    with pytest.raises(BrokerStartError) as caught:
        take(half)
    assert caught.value.kind == "config"
    # The lock was given back.
    half.delete("broker-1/meta.properties")
    take(half)


@pytest.mark.parametrize(
    ("changes", "kind"), [({"cluster_id": "d"}, "foreign_cluster"), ({"node_id": 2}, "config")]
)
def test_anothers_log_directory_is_left_alone(changes: dict[str, object], kind: str) -> None:
    half = MemoryBackend()
    take(half).release()
    with pytest.raises(BrokerStartError) as caught:
        take(half, **changes)
    assert caught.value.kind == kind


def test_a_log_directory_is_made_only_when_it_may_be_new() -> None:
    half = MemoryBackend()
    for _ in range(2):
        with pytest.raises(BrokerStartError) as caught:
            take(half, new=False)
        assert caught.value.kind == "not_here"
        assert half.list("broker-1") in ([], [".lock"])
        half.make_folder("broker-1")


def test_a_log_directory_has_one_broker() -> None:
    half = MemoryBackend()
    log_dir = take(half)
    with pytest.raises(LockedError):
        take(half)
    log_dir.release()
    take(half)


def test_the_marker_is_read_once() -> None:
    half = MemoryBackend()
    log_dir = take(half)
    tp = TopicPartition("t-x", 1)
    log_dir.write_checkpoints(LogOffsets(recovery_points={tp: 5}, log_starts={tp: 2}))
    assert not half.exists("broker-1/local-log-start-offset-checkpoint")
    log_dir.write_clean_marker(7)
    assert half.read("broker-1/.kafka_cleanshutdown") == b'{"version": 0, "brokerEpoch": 7}'
    assert half.read("broker-1/recovery-point-offset-checkpoint") == b"0\n1\nt-x 1 5\n"
    log_dir.release()
    log_dir = take(half)
    assert (log_dir.clean, log_dir.clean_epoch) == (True, 7)
    assert log_dir.noted == LogOffsets(recovery_points={tp: 5}, log_starts={tp: 2})
    log_dir.release()
    assert not take(half).clean


def test_a_marker_stays_away_after_a_start_that_could_not_flush_its_deletion() -> None:
    """Seed 20042: a loss of power brought the marker back, and torn logs were taken for whole."""
    half = MemoryBackend()
    log_dir = take(half)
    log_dir.write_clean_marker(7)
    log_dir.release()
    half.faults.fail_next(operation="flush_folder")
    with pytest.raises(StorageError):
        take(half)
    log_dir = take(half)
    assert not log_dir.clean
    half.crash(lose_names=True)
    assert not take(half).clean


@pytest.mark.parametrize(
    "text", [b"", b"{}", b"[]", b'{"brokerEpoch": "7"}', b"\xff", b"[" * 100_000]
)
def test_a_marker_that_does_not_tell_its_epoch_is_a_marker_all_the_same(text: bytes) -> None:
    half = MemoryBackend()
    take(half).release()
    half.put("broker-1/.kafka_cleanshutdown", text)
    log_dir = take(half)
    assert (log_dir.clean, log_dir.clean_epoch) == (True, -1)


def test_a_recovery_point_is_never_found_without_the_log_start_that_moved_it() -> None:
    half = MemoryBackend()
    log_dir = take(half)
    tp = TopicPartition("t", 0)
    log_dir.write_checkpoints(LogOffsets(recovery_points={tp: 5}, log_starts={tp: 0}))
    # The last of the files fails, or the process ends before it.
    half.faults.fail_next(operation="put", under="recovery-point")
    offsets = LogOffsets(recovery_points={tp: 9}, log_starts={tp: 2}, local_log_starts={tp: 9})
    with pytest.raises(StorageError):
        log_dir.write_checkpoints(offsets)
    log_dir.release()
    log_dir = take(half)
    assert log_dir.noted == replace(offsets, recovery_points={tp: 5})
    log_dir.release()


def test_local_log_starts_are_forgotten_with_the_last_tiered_log() -> None:
    half = MemoryBackend()
    log_dir = take(half)
    tp = TopicPartition("t", 0)
    log_dir.write_checkpoints(LogOffsets(log_starts={tp: 0}, local_log_starts={tp: 7}))
    log_dir.write_checkpoints(LogOffsets(log_starts={tp: 7}))
    log_dir.release()
    log_dir = take(half)
    assert log_dir.noted == LogOffsets(log_starts={tp: 7})
    log_dir.release()


def test_a_damaged_checkpoint_means_a_longer_recovery_not_a_failure() -> None:
    half = MemoryBackend()
    take(half).release()
    half.put("broker-1/recovery-point-offset-checkpoint", b"0\n7\n")
    assert take(half).recovery_points == {}


def test_strays_are_what_the_image_does_not_place_here() -> None:
    half = MemoryBackend()
    image = ClusterImage()
    state = PartitionImage(replicas=(1,), isr=(1,), last_known=(1,), leader=1)
    elsewhere = PartitionImage(replicas=(2,), isr=(2,), last_known=(2,), leader=2)
    image.replay(TopicCreated(topic="t", topic_id=TOPIC_ID, partitions=(state, elsewhere, state)))
    from sparklog.executors.log.partition_metadata import encode_partition_metadata

    ids = {"t-0": TOPIC_ID, "t-1": TOPIC_ID, "t-2": UUID(int=4), "t-3": TOPIC_ID, "u-0": TOPIC_ID}
    for name, topic_id in ids.items():
        half.put(f"broker-1/{name}/partition.metadata", encode_partition_metadata(topic_id))
    half.make_folder("broker-1/00.1-delete")
    half.make_folder("broker-1/notes")
    half.put("broker-1/u-1", b"a file")
    strays = [n for n in half.list("broker-1") if is_stray_dir(half, "broker-1", n, image, 1)]
    assert strays == ["00.1-delete", "t-1", "t-2", "t-3", "u-0"]


def test_directory_names() -> None:
    assert parse_partition_dir("a-b-12") == TopicPartition("a-b", 12)
    for name in ("a", "a-", "a-b", "-1x", "00.1-delete"):
        assert parse_partition_dir(name) is None


def test_a_deleted_directory_leaves_its_name_free() -> None:
    half = MemoryBackend()
    half.put("broker-1/t-0/x", b"1")
    delete_partition_dir(half, "broker-1", "t-0", TOPIC_ID)
    delete_partition_dir(half, "broker-1", "t-0", TOPIC_ID)
    assert half.list("broker-1") == []


def test_a_stray_directory_is_kept_under_a_name_that_is_no_partitions() -> None:
    half = MemoryBackend()
    for content in (b"1", b"2"):
        half.put("broker-1/t-0/x", content)
        rename_stray_dir(half, "broker-1", "t-0")
    assert half.list("broker-1") == ["t-0.1-stray", "t-0.2-stray"]
    assert [half.read(f"broker-1/t-0.{n}-stray/x") for n in (1, 2)] == [b"1", b"2"]
    assert not any(
        is_stray_dir(half, "broker-1", name, ClusterImage(), 1) for name in half.list("broker-1")
    )
    assert parse_partition_dir("t-0.1-stray") is None


def test_a_stray_among_many_is_set_aside_without_a_look_at_the_others() -> None:
    half = MemoryBackend()
    half.make_folder("broker-1/t-0")
    with patch.object(half, "list", side_effect=AssertionError("listed")):
        assert rename_stray_dir(half, "broker-1", "t-0") == "t-0.1-stray"


def test_the_longest_topics_stray_directory_has_a_name_that_file_systems_take(
    tmp_path: Path,
) -> None:
    half = LocalBackend(tmp_path)
    name = f"{'t' * 249}-99999"
    half.make_folder(f"broker-1/{name}")
    target = rename_stray_dir(half, "broker-1", name)
    assert half.list("broker-1") == [target]
    assert len(target) == 255


def test_half_written_files_of_a_killed_predecessor_are_removed(tmp_path: Path) -> None:
    half = LocalBackend(tmp_path)
    log_dir = BrokerDir.take(
        half, "broker-1", cluster_id="c", node_id=1, new=True, new_id=DIRECTORY
    )
    log_dir.release()
    half.put("broker-1/t-0/partition.metadata", b"x")
    for place in ("broker-1", "broker-1/t-0"):
        (tmp_path / place / f"{TEMPORARY_PREFIX}abc").write_bytes(b"half a ")
    BrokerDir.take(
        half, "broker-1", cluster_id="c", node_id=1, new=False, new_id=DIRECTORY
    ).release()
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == [
        ".checkpoint-reserve",
        ".lock",
        "meta.properties",
        "partition.metadata",
    ]
