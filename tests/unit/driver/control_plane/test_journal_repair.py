"""The promises of a repaired journal, and the steps of the repair."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from sparklog.cli.journal_report import record_text
from sparklog.driver.control_plane.journal import (
    Journal,
    JournalError,
    checkpoint_name,
    commit_name,
)
from sparklog.driver.control_plane.journal_files import decode_file
from sparklog.driver.control_plane.journal_repair.journal_in_use import locked_journal
from sparklog.driver.control_plane.journal_repair.repair import RepairError, repair_journal
from sparklog.driver.control_plane.journal_repair.repair_plan import plan_repair
from sparklog.driver.control_plane.journal_repair.survey import survey_journal
from sparklog.driver.control_plane.skipped_numbers import (
    CONTROLLER_EPOCHS_SKIPPED,
    EPOCHS_SKIPPED,
    PRODUCER_IDS_SKIPPED,
)
from sparklog.errors import StorageError
from sparklog.metadata import (
    PartitionChanged,
    PartitionImage,
    ProducerIdsAllocated,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
)
from sparklog.storage_backends.local import LocalBackend
from sparklog.types import NO_NODE, ResourceType, TopicPartition
from tests.unit.driver.control_plane.damaged_journals import (
    FOLDER,
    HISTORY,
    NOW_MS,
    image_at,
    journal_of,
    registered,
    repair,
    setting,
    state,
    topic,
)
from tests.unit.driver.control_plane.driver_fakes import directory


def test_a_repaired_journal_starts_behind_everything_that_was_ever_committed() -> None:
    backend = journal_of(checkpoints=(3,))
    backend.put(commit_name(6), b"damage")
    _, plan, done = repair(backend)
    assert plan is not None
    image = Journal(backend).load()
    assert (image, image.version, done.version) == (plan.image, 11, 11)
    # Commit 6 cannot be read; 7 to 10 are of epoch 2.
    assert image.controller_epoch == 2 + 1 + CONTROLLER_EPOCHS_SKIPPED
    assert image.next_producer_id == 2000 + PRODUCER_IDS_SKIPPED
    first, second = (image.partition(TopicPartition("t", n)) for n in (0, 1))
    assert first == PartitionImage(
        replicas=(1, 2),
        isr=(),
        last_known=(1, 2),
        leader=NO_NODE,
        leader_epoch=3 + EPOCHS_SKIPPED,
        partition_epoch=3 + EPOCHS_SKIPPED,
    )
    assert second is not None
    assert (second.replicas, second.leader_epoch) == ((2, 1), 7 + EPOCHS_SKIPPED)
    assert {n: (b.broker_epoch, b.fenced) for n, b in image.brokers.items()} == {
        1: (5 + EPOCHS_SKIPPED, True),
        2: (EPOCHS_SKIPPED, True),
        3: (EPOCHS_SKIPPED, True),
    }
    assert list(image.topics) == ["t"]
    image.check_invariants()


def test_no_replica_counts_as_complete_after_a_repair() -> None:
    """Lost commits may have changed the ISR, so neither its members nor eligible replicas count."""
    complete = state(1, 2, epoch=4, isr=(1,), eligible=(2,))
    history = [*HISTORY[:5], (1, (PartitionChanged(topic="t", partition=0, state=complete),))]
    backend = journal_of([*history, *HISTORY[5:]])
    backend.put(commit_name(7), b"damage")
    repair(backend)
    found = Journal(backend).load().partition(TopicPartition("t", 0))
    assert found is not None
    assert (found.isr, found.eligible, found.last_known) == ((), (), (1, 2))


def test_no_file_is_deleted() -> None:
    backend = journal_of(checkpoints=(3, 5))
    before = {name: backend.read(name) for name in backend.list("")}
    backend.put(commit_name(6), b"damage")
    backend.delete(commit_name(8))
    _, _, done = repair(backend)
    assert (done.folder, done.moved) == (FOLDER, tuple(commit_name(n) for n in (6, 7, 9, 10)))
    kept = {name: backend.read(f"{FOLDER}/{name}") for name in backend.list(FOLDER)}
    assert kept.pop("report.json") == b'{\n "a": 1\n}'
    assert kept == {n: before[n] for n in done.moved} | {commit_name(6): b"damage"}
    for name in (*(commit_name(n) for n in range(1, 6)), *map(checkpoint_name, (3, 5))):
        assert backend.read(name) == before[name]


def test_a_controller_from_before_the_damage_meets_the_repair() -> None:
    """A stalled controller commits the number after its last one; all such numbers are taken."""
    backend = journal_of()
    backend.delete(commit_name(7))
    backend.put(commit_name(9), b"damage")
    _, plan, _ = repair(backend)
    assert plan is not None
    for number in range(7, 12):
        header, records = decode_file(backend.read(commit_name(number)))
        assert (header.nonce, header.controller_epoch) == ("repair", plan.controller_epoch)
        assert records == (() if number < 11 else plan.records)


def test_the_repairs_commit_stands_in_for_its_checkpoint() -> None:
    backend = journal_of(checkpoints=(3,))
    backend.put(commit_name(6), b"damage")
    _, plan, _ = repair(backend)
    assert plan is not None
    backend.put(checkpoint_name(11), b"damage")
    assert Journal(backend).load() == plan.image


def test_what_can_be_read_is_kept_when_that_is_asked_for() -> None:
    backend = journal_of()
    backend.put(commit_name(6), b"damage")
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    image = Journal(backend).load()
    assert plan.left_out == ()
    assert image.topics["late"].topic_id == UUID(int=2)
    assert len(image.topics["late"].partitions) == 2
    assert image.topic_overrides("late") == {"retention.ms": "-1"}
    moved = image.partition(TopicPartition("t", 1))
    assert moved is not None
    # The records may be on the new replicas, or still on the former ones.
    assert (moved.replicas, moved.last_known, moved.isr) == ((2, 1, 3), (1, 2, 3), ())
    assert sorted(image.brokers) == [1, 2, 3, 4]


def test_what_stands_on_a_lost_commit_is_left_out_and_told() -> None:
    backend = journal_of()
    backend.put(commit_name(6), b"damage")
    backend.delete(commit_name(7))  # the topic's creation
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    assert list(plan.image.topics) == ["t"]
    assert plan.left_out == (HISTORY[9][1][0],)


def test_partitions_are_not_added_behind_a_commit_that_may_have_added_some() -> None:
    backend = journal_of()
    backend.put(commit_name(6), b"damage")
    backend.delete(commit_name(8))
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    assert len(plan.image.topics["late"].partitions) == 1
    assert plan.left_out == (HISTORY[9][1][0],)


@pytest.mark.parametrize(
    ("number", "sound", "changed"),
    [
        (7, b'"topic":"late"', b'"topic":"l/te"'),
        (7, b'"replicas":[3,1]', b'"replicas":[3,3]'),
        (7, b'"replicas":[3,1]', b'"replicas":[3,7]'),
        (7, b'"value":"-1"', b'"value":"m1"'),
        (7, b'"name":"retention.ms"', b'"name":"retention.mc"'),
        (7, b'"resource_name":"late"', b'"resource_name":"lat\\u0065r"'),
        (9, b'"replicas":[3,1]', b'"replicas":[3,3]'),
        (9, b'"broker_id":4', b'"broker_id":0'),
        (10, b'"broker_id":1,', b'"broker_id":5,'),
    ],
)
def test_damage_that_can_be_read_is_not_kept(number: int, sound: bytes, changed: bytes) -> None:
    """Each of these records is JSON with the right types, but no cluster could continue with it."""
    backend = journal_of()
    data = backend.read(commit_name(number))
    assert data.count(sound) >= 1
    backend.put(commit_name(number), data.replace(sound, changed))
    if number > 7:
        backend.delete(commit_name(8))
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    image = Journal(backend).load()
    image.check_invariants()
    for (kind, name), overrides in image.configs.items():
        assert (kind, overrides) == (ResourceType.TOPIC, {"retention.ms": "-1"})
        assert name in image.topics
    assert set(image.topics) <= {"t", "late"}
    assert set(image.brokers) <= {1, 2, 3, 4}
    assert {b.directory_id for b in image.brokers.values() if b.registered} == {
        directory(n) for n in (1, 2, 3)
    }
    assert all(set(state.replicas) <= image.brokers.keys() for _, state in image.partitions())


@pytest.mark.parametrize("keep_readable", [False, True])
def test_a_changed_digit_gives_no_broker_another_directory(keep_readable: bool) -> None:
    backend = journal_of()
    data = backend.read(commit_name(10))
    known = str(directory(1)).encode()
    backend.put(commit_name(10), data.replace(known, b"7" + known[1:]))
    repair(backend, keep_readable=keep_readable)
    broker = Journal(backend).load().brokers[1]
    assert broker.directory_id == directory(1)
    assert broker.broker_epoch >= 5 + EPOCHS_SKIPPED


def test_settings_of_a_topic_that_is_lost_are_not_those_of_the_next_one_of_its_name() -> None:
    backend = journal_of(
        [*HISTORY[:6], (2, (topic("x", 3, state(1)),)), (2, (setting("retention.ms", "1", "x"),))]
    )
    backend.put(commit_name(7), b"damage")
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    assert Journal(backend).load().configs == {}
    assert plan.left_out == (setting("retention.ms", "1", "x"),)


def test_a_deferred_replication_factor_is_kept_with_its_topic_only() -> None:
    of_t = ReplicationFactorDeferred(topic="t", deferred=True)
    of_x = ReplicationFactorDeferred(topic="x", deferred=True)
    backend = journal_of([*HISTORY[:6], (2, (topic("x", 3, state(1)),)), (2, (of_t, of_x))])
    backend.put(commit_name(7), b"damage")
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    assert Journal(backend).load().deferred_factors == {"t"}
    assert [record_text(record) for record in plan.left_out] == [
        "topic x waits for brokers to reach its replication factor"
    ]


def test_a_topic_that_a_repair_keeps_is_not_to_leave_the_remote_dir() -> None:
    """The record of its deletion is lost, and the one that its objects are to go is not."""
    kept, gone = (RemoteDeleteMarked(topic_id=UUID(int=number), time_ms=5) for number in (1, 9))
    created = next(r for _, rs in HISTORY for r in rs if isinstance(r, TopicCreated))
    kept = replace(kept, topic_id=created.topic_id)
    backend = journal_of([*HISTORY[:6], (2, (setting("a", "b"),)), (2, (kept, gone))])
    backend.put(commit_name(7), b"damage")
    _, plan, _ = repair(backend, keep_readable=True)
    assert plan is not None
    assert Journal(backend).load().remote_deletes == {gone.topic_id: 5}
    assert plan.left_out == (kept,)


def test_numbers_that_are_damage_themselves_raise_no_epoch() -> None:
    history = list(HISTORY)
    history[7] = (
        2,
        (
            ProducerIdsAllocated(broker_id=2, first_producer_id=2**62, count=1000),
            PartitionChanged(topic="t", partition=0, state=state(1, 2, epoch=2**31 - 5)),
            registered(2, 2**60),
        ),
    )
    backend = journal_of(history)
    backend.put(commit_name(6), b'{"format":1,"controller_epoch":2147483640,')
    _, plan, _ = repair(backend)
    assert plan is not None
    image = plan.image
    first = image.partition(TopicPartition("t", 0))
    assert first is not None
    assert first.leader_epoch == 3 + EPOCHS_SKIPPED
    assert image.next_producer_id == 1000 + PRODUCER_IDS_SKIPPED
    assert image.controller_epoch < 10_000


def test_a_damaged_checkpoint_alone_costs_nothing() -> None:
    backend = journal_of(checkpoints=(6,))
    backend.put(checkpoint_name(6), b"{}")
    _, plan, done = repair(backend)
    assert (plan, done.moved, done.version) == (None, (checkpoint_name(6),), 10)
    assert Journal(backend).load() == image_at(10)
    assert survey_journal(backend).is_sound


@pytest.mark.parametrize("operation", ["put", "put_if_absent", "rename", "make_folder"])
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("skipped", [0, 1, 3])
def test_a_repair_that_is_interrupted_can_be_begun_again(
    operation: str, after: bool, skipped: int
) -> None:
    """Wherever a repair stops, no byte is lost, and a second repair keeps the same promises."""
    backend = journal_of(checkpoints=(3,))
    backend.put(commit_name(6), b"damage")
    backend.delete(commit_name(7))
    wanted = {commit_name(n): backend.read(commit_name(n)) for n in (6, 8, 9, 10)}
    calls = 0
    real = getattr(backend, operation)

    def failing(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls != skipped + 1:
            return real(*arguments)
        if after:
            real(*arguments)
        raise StorageError("power failed")

    setattr(backend, operation, failing)
    interrupted = False
    try:
        repair(backend)
    except StorageError:
        interrupted = True
    setattr(backend, operation, real)
    assert interrupted == (calls > skipped)
    folders = [name for name in backend.list("") if name.startswith("damaged")]
    for name, data in wanted.items():
        places = [name, *(f"{folder}/{name}" for folder in folders)]
        assert data in [found for p in places if (found := backend.read_if_there(p)) is not None]
    if not survey_journal(backend).is_sound:
        with pytest.raises(JournalError) if not survey_journal(backend).starts else _nothing():
            Journal(backend).load()
        repair(backend, nonce="again")
    image = Journal(backend).load()
    assert survey_journal(backend).is_sound
    assert image.controller_epoch > 2 + CONTROLLER_EPOCHS_SKIPPED
    assert image.next_producer_id >= 2000 + PRODUCER_IDS_SKIPPED
    assert image.topics["t"].partitions[1].leader_epoch >= 7 + EPOCHS_SKIPPED


class _nothing:  # noqa: N801
    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


def test_a_journal_that_another_writes_to_is_not_repaired_over_it() -> None:
    backend = journal_of()
    backend.put(commit_name(6), b"damage")
    survey = survey_journal(backend)
    plan = plan_repair(survey, keep_readable=False)
    backend.put(commit_name(11), b"theirs")
    with pytest.raises(RepairError, match="was written by another process"):
        repair_journal(backend, survey, plan, now_ms=NOW_MS, nonce="r", report={})
    assert backend.read(commit_name(11)) == b"theirs"
    # It would hide their commit.
    assert not backend.exists(checkpoint_name(11))


def test_a_cluster_that_holds_the_lock_keeps_repairs_out(tmp_path: Path) -> None:
    (tmp_path / "journal").mkdir()
    (tmp_path / "cluster.lock").touch()
    backend = LocalBackend(tmp_path / "journal")
    with locked_journal(backend):
        pass
    with (
        LocalBackend(tmp_path).lock("cluster.lock"),
        pytest.raises(RepairError, match="a cluster uses"),
        locked_journal(backend),
    ):
        pass
    with (
        backend.lock("cluster.lock"),
        pytest.raises(RepairError, match="a cluster uses"),
        locked_journal(backend),
    ):
        pass


def test_a_second_repair_within_a_second_has_a_folder_of_its_own() -> None:
    backend = journal_of()
    backend.put(commit_name(6), b"damage")
    repair(backend)
    backend.put(commit_name(11), b"damage")
    backend.put(checkpoint_name(11), b"damage")
    _, _, done = repair(backend)
    assert done.folder == f"{FOLDER}-2"
    assert json.loads(backend.read(f"{FOLDER}-2/report.json")) == {"a": 1}
    assert Journal(backend).load().version == 12


def test_a_journal_in_an_object_store_is_repaired_alike() -> None:
    from sparklog.storage_backends.registry import open_backend

    store, twin = open_backend("fsspec+memory://repair-store"), journal_of(checkpoints=(3,))
    twin.put(commit_name(6), b"damage")
    twin.delete(commit_name(8))
    try:
        for name in twin.list(""):
            store.put(name, twin.read(name))
        _, plan, done = repair(store)
        assert repair(twin)[1:] == (plan, done)
        assert Journal(store).load() == Journal(twin).load()
        for folder in ("", FOLDER):
            files = {n for n in twin.list(folder) if n != FOLDER}
            assert {n for n in store.list(folder) if n != FOLDER} == files
    finally:
        for folder in (f"{FOLDER}/", ""):
            for name in store.list(folder.rstrip("/")):
                if name != FOLDER:
                    store.delete(f"{folder}{name}")
