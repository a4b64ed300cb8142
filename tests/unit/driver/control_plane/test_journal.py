"""The journal's files: written once, read back, checkpointed, pruned, and never half understood."""

import json
import os
import stat
from contextlib import suppress
from pathlib import Path
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.control_plane.journal import (
    SECRET_BYTES,
    CommitHeader,
    Journal,
    JournalConflict,
    JournalError,
    checkpoint_name,
    commit_name,
)
from sparklog.errors import StorageError
from sparklog.metadata import (
    BrokerIdAssigned,
    ClusterCreated,
    ClusterImage,
    ConfigChanged,
    Record,
    TopicDeleted,
    decode_records,
    encode_records,
)
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest, incarnation

HOUR_MS = 60 * 60 * 1000


def header(version: int, *, nonce: str = "mine", epoch: int = 1, time_ms: int = 0) -> CommitHeader:
    return CommitHeader(version=version, controller_epoch=epoch, nonce=nonce, time_ms=time_ms)


def ids(*numbers: int) -> bytes:
    return encode_records(BrokerIdAssigned(broker_id=number) for number in numbers)


def journal_of(*commits: bytes) -> tuple[MemoryBackend, Journal]:
    backend = MemoryBackend()
    journal = Journal(backend)
    for version, records in enumerate(commits, start=1):
        journal.commit(header(version), records)
    return backend, journal


# -- reading


def test_a_new_journal_is_an_empty_image() -> None:
    assert Journal(MemoryBackend()).load() == ClusterImage()


def test_commits_are_replayed_in_order() -> None:
    backend, journal = journal_of(ids(1, 2), ids(3))
    image = journal.load()
    assert (image.version, sorted(image.brokers)) == (2, [1, 2, 3])
    assert backend.list("") == [commit_name(1), commit_name(2)]


def test_a_commit_is_readable_json() -> None:
    backend, _ = journal_of(ids(7))
    document = json.loads(backend.read("00000000000000000001.json"))
    assert document == {
        "format": 1,
        "crc": document["crc"],
        "version": 1,
        "controller_epoch": 1,
        "nonce": "mine",
        "time_ms": 0,
        "records": [{"type": "BrokerIdAssigned", "broker_id": 7}],
    }


def test_a_changed_byte_is_found_even_where_the_json_is_whole() -> None:
    """A broker id that changed from 7 to 6 would silently describe another cluster."""
    backend, journal = journal_of(ids(7))
    data = backend.read(commit_name(1))
    backend.put(commit_name(1), data.replace(b'"broker_id":7', b'"broker_id":6'))
    with pytest.raises(JournalError, match="do not have the checksum that it says"):
        journal.load()
    # Files of versions that wrote no checksum are read as they are.
    document = json.loads(data)
    del document["crc"]
    backend.put(commit_name(1), json.dumps(document).encode())
    assert sorted(journal.load().brokers) == [7]


@given(st.integers(0, 10_000), st.integers(0, 7))
def test_no_flipped_bit_changes_what_a_journal_says(position: int, bit: int) -> None:
    backend, journal = journal_of(ids(7, 8))
    expected = journal.load()
    data = bytearray(backend.read(commit_name(1)))
    data[position % len(data)] ^= 1 << bit
    backend.put(commit_name(1), bytes(data))
    with suppress(JournalError):
        assert journal.load() == expected  # a bit of the checksum's own name


def test_names_of_others_are_ignored() -> None:
    backend, journal = journal_of(ids(1))
    for name in ("secret", "1.json", "00000000000000000002.json.tmp", "checkpoint-1.json"):
        backend.put(name, b"x")
    assert journal.load().version == 1


def test_a_checkpoint_stands_for_the_commits_before_it() -> None:
    backend, journal = journal_of(ids(1), ids(2))
    image = journal.load()
    journal.write_checkpoint(header(2), tuple(image.snapshot_records()))
    backend.delete(commit_name(1))
    backend.delete(commit_name(2))
    journal.commit(header(3), ids(3))
    assert (journal.load().version, sorted(journal.load().brokers)) == (3, [1, 2, 3])


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"", "it is not JSON"),
        (b'{"format":1,"vers', "it is not JSON"),
        (b"\0" * 300, "it is not JSON"),
        (b"\xff\xfe", "it is not JSON"),
        (b"[]", "it is not a JSON object"),
        (b"{}", "its format is None, known is 1"),
        (b'{"format":2}', "its format is 2, known is 1"),
        (b'{"format":1,"version":"2"}', "its version is '2'"),
        (
            b'{"format":1,"version":3,"controller_epoch":1,"nonce":"","time_ms":0,"records":[]}',
            "it says that it is commit 3",
        ),
        (
            b'{"format":1,"version":2,"controller_epoch":1,"nonce":"","time_ms":0,"records":[1]}',
            "a record must be a JSON object, not int",
        ),
        (
            b'{"format":1,"version":2,"controller_epoch":1,"nonce":"","time_ms":0,"records":'
            b'[{"type":"BrokerFenced","broker_id":77}]}',
            "77",
        ),
    ],
)
def test_a_damaged_commit_is_named(content: bytes, reason: str) -> None:
    backend, journal = journal_of(ids(1))
    backend.put(commit_name(2), content)
    with pytest.raises(JournalError) as refusal:
        journal.load()
    assert str(refusal.value) == (
        f"{backend.url}/00000000000000000002.json is damaged ({reason}); restore it from a copy; "
        "without it the cluster's metadata cannot be known. `sparklog journal check "
        f"{backend.url}` shows what is left and what a repair would lose"
    )


@given(st.binary(max_size=120))
def test_random_commits_are_an_error_and_never_a_crash(content: bytes) -> None:
    backend, journal = journal_of(ids(1))
    backend.put(commit_name(2), content)
    with pytest.raises(JournalError):
        journal.load()


def test_a_missing_commit_is_named() -> None:
    backend, journal = journal_of(ids(1), ids(2), ids(3))
    backend.delete(commit_name(2))
    with pytest.raises(JournalError, match=r"00000000000000000002\.json is missing although"):
        journal.load()


# -- racing


def test_of_two_controllers_one_wins_each_number() -> None:
    _, journal = journal_of(ids(1))
    journal.commit(header(2, nonce="other", epoch=2), ids(5))
    with pytest.raises(JournalConflict) as refusal:
        journal.commit(header(2), ids(6))
    assert str(refusal.value) == (
        f"commit 2 of {journal.url} was written by a controller of epoch 2; this one (epoch 1) "
        "was replaced and ends"
    )
    assert sorted(journal.load().brokers) == [1, 5]


def test_a_commit_whose_answer_was_lost_is_recognised_as_ours() -> None:
    backend, journal = journal_of(ids(1))
    backend.faults.fail_next(operation="put_if_absent", after=True)
    journal.commit(header(2), ids(2))
    assert journal.load().version == 2


def test_a_commit_that_failed_before_it_was_written_is_tried_once_more() -> None:
    backend, journal = journal_of(ids(1))
    backend.faults.fail_next(operation="put_if_absent")
    journal.commit(header(2), ids(2))
    assert journal.load().version == 2


def test_a_full_disk_is_an_error() -> None:
    backend, journal = journal_of(ids(1))
    backend.faults.capacity_bytes = 0
    with pytest.raises(StorageError, match="disk is full"):
        journal.commit(header(2), ids(2))
    backend.faults.clear()
    assert journal.load().version == 1


def test_the_head_moves_when_somebody_else_writes() -> None:
    backend, journal = journal_of(ids(1))
    assert not journal.head_moved(1)
    journal.commit(header(2, nonce="other"), ids(2))
    assert journal.head_moved(1)
    journal.write_checkpoint(header(9), ())
    backend.delete(commit_name(2))
    assert journal.head_moved(8)


def test_a_store_on_which_two_could_win_is_refused() -> None:
    backend = MemoryBackend()
    backend.atomic_put_if_absent = False
    with pytest.raises(StorageError, match="choose a journal_dir on a local disk"):
        Journal(backend).check_backend()


# -- pruning


def test_numbers_stay_for_a_day_after_their_checkpoint() -> None:
    backend, journal = journal_of(*(ids(n) for n in range(1, 7)))
    for version, time_ms in ((2, 0), (4, HOUR_MS), (6, 2 * HOUR_MS)):
        journal.write_checkpoint(header(version, time_ms=time_ms), ())
    everything = backend.list("")
    assert journal.prune(24 * HOUR_MS - 1) == 0
    assert backend.list("") == everything
    assert journal.prune(24 * HOUR_MS) == 2
    assert backend.list("") == [
        *(commit_name(n) for n in (3, 4, 5, 6)),
        *(checkpoint_name(n) for n in (2, 4, 6)),
    ]
    assert journal.prune(99 * HOUR_MS) == 3
    assert backend.list("") == [
        *(commit_name(n) for n in (5, 6)),
        *(checkpoint_name(n) for n in (4, 6)),
    ]
    assert journal.load().version == 6


# -- damaged checkpoints


def checkpointed(*commits: bytes, checkpoints: tuple[int, ...]) -> tuple[MemoryBackend, Journal]:
    """A journal with a correct checkpoint after each of some commits."""
    backend, journal = journal_of(*commits)
    for version in checkpoints:
        image = ClusterImage()
        for number, records in enumerate(commits[:version], start=1):
            image.replay_commit(number, decode_records(records))
        journal.write_checkpoint(header(version), image.snapshot_records())
    return backend, journal


@pytest.mark.parametrize("pruned", [0, 2])
def test_a_damaged_checkpoint_is_done_without_while_all_commits_since_another_are_there(
    pruned: int, caplog: pytest.LogCaptureFixture
) -> None:
    backend, journal = checkpointed(*(ids(n) for n in range(1, 7)), checkpoints=(2, 4))
    expected = journal.load()
    if pruned:
        for number in range(1, pruned + 1):
            backend.delete(commit_name(number))
    else:
        backend.delete(checkpoint_name(2))
    backend.put(checkpoint_name(4), b"damage")
    assert journal.load() == expected
    assert f"{checkpoint_name(4)} is damaged (it is not JSON)" in caplog.text
    # Pruning skips damaged files, and continues.
    assert journal.prune(0) == 0


def test_commits_behind_the_last_whole_checkpoint_stay_when_a_later_one_is_damaged() -> None:
    backend, journal = checkpointed(*(ids(n) for n in range(1, 7)), checkpoints=(2, 4, 6))
    expected = journal.load()
    backend.put(checkpoint_name(4), b"damage")
    journal.prune(99 * HOUR_MS)
    backend.put(checkpoint_name(6), b"damage")
    assert journal.load() == expected


@pytest.mark.parametrize("gone", [[commit_name(1)], [commit_name(4)], [commit_name(3)]])
def test_a_damaged_checkpoint_is_an_error_when_a_commit_before_it_is_missing(
    gone: list[str],
) -> None:
    backend, journal = checkpointed(*(ids(n) for n in range(1, 5)), checkpoints=(4,))
    for name in gone:
        backend.delete(name)
    backend.put(checkpoint_name(4), b"damage")
    with pytest.raises(JournalError, match=f"{checkpoint_name(4)} is damaged"):
        journal.load()


def test_a_damaged_checkpoint_never_hides_commits_that_are_gone_at_the_end() -> None:
    """The commits after the older checkpoint are good, but end before the damaged checkpoint."""
    backend, journal = checkpointed(*(ids(n) for n in range(1, 5)), checkpoints=(2, 4))
    for number in (1, 2, 4):
        backend.delete(commit_name(number))
    backend.put(checkpoint_name(4), b"damage")
    with pytest.raises(JournalError, match=f"{checkpoint_name(4)} is damaged"):
        journal.load()


# -- whole histories


def decided_history(choices: list[int]) -> list[tuple[Record, ...]]:
    """Records that a real controller decides on, one commit per event."""
    under_test = ControllerUnderTest()
    history: list[tuple[Record, ...]] = []
    for number, choice in enumerate(choices):
        broker_id = 1 + choice % 3
        name = f"t{choice % 5}"
        match choice % 7:
            case 0 | 1:
                fresh = incarnation(100 + number)
                decision = under_test.register(broker_id, incarnation=fresh)
            case 2 if under_test.image.broker(broker_id):
                decision = under_test.heartbeat(broker_id, has_stopped=bool(choice % 2))
            case 3 | 4:
                decision = under_test.create(name, partitions=1 + choice % 4)
            case 5:
                wanted = CreatePartitionsTopic(name=name, count=6)
                decision = under_test.handle(CreatePartitionsRequest(topics=(wanted,)))
            case _:
                gone = DeleteTopicsRequest(topics=(DeleteTopicState(name=name),))
                decision = under_test.handle(gone)
        if decision.records:
            history.append(decision.records)
    return history


@given(
    st.lists(st.integers(0, 1000), max_size=25),
    st.sets(st.integers(1, 25), max_size=4),
    st.booleans(),
)
def test_checkpoint_and_commits_give_the_same_image_as_all_commits(
    choices: list[int], checkpoints: set[int], pruned: bool
) -> None:
    backend = MemoryBackend()
    journal = Journal(backend)
    expected = ClusterImage()
    first: tuple[Record, ...] = (ClusterCreated(cluster_id="c", created_ms=1),)
    for version, records in enumerate([first, *decided_history(choices)], start=1):
        journal.commit(header(version), encode_records(records))
        expected.replay_commit(version, records)
        if version in checkpoints:
            journal.write_checkpoint(header(version), tuple(expected.snapshot_records()))
    if pruned:
        journal.prune(24 * HOUR_MS)
    loaded = journal.load()
    assert loaded == expected
    loaded.check_invariants()
    assert loaded.copy() == expected


def test_an_image_refuses_records_that_do_not_fit() -> None:
    record = TopicDeleted(topic="none", topic_id=UUID(int=1))
    _, journal = journal_of(encode_records([record]))
    with pytest.raises(JournalError, match="is damaged"):
        journal.load()


def test_overrides_of_a_deleted_topic_are_gone_after_loading() -> None:
    set_one = ConfigChanged(resource_type=2, resource_name="a", name="retention.ms", value="1")
    unset = ConfigChanged(resource_type=2, resource_name="a", name="retention.ms", value=None)
    _, journal = journal_of(encode_records([set_one]), encode_records([unset]))
    assert journal.load().configs == {}


# -- the secret


def test_the_secret_is_made_once(tmp_path: Path) -> None:
    backend = LocalBackend(str(tmp_path))
    first = Journal(backend).secret(lambda: b"a" * SECRET_BYTES)
    second = Journal(backend).secret(lambda: b"b" * SECRET_BYTES)
    assert first == second == b"a" * SECRET_BYTES
    assert stat.S_IMODE(os.stat(tmp_path / "secret").st_mode) == 0o600


@pytest.mark.parametrize("content", [b"", b"abc", b"zz" * SECRET_BYTES, b"\xff", b"00" * 31])
def test_a_damaged_secret_is_an_error_with_a_remedy(content: bytes) -> None:
    backend = MemoryBackend()
    backend.put("secret", content)
    with pytest.raises(JournalError, match="secret is damaged; delete it"):
        Journal(backend).secret(lambda: b"a" * SECRET_BYTES)
