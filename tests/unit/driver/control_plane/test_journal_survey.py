"""The survey of a damaged journal."""

from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparklog.driver.control_plane.journal import (
    CommitHeader,
    Journal,
    checkpoint_name,
    commit_name,
)
from sparklog.driver.control_plane.journal_repair.survey import GAP_MAX, State, survey_journal
from sparklog.errors import StorageError
from sparklog.metadata import (
    TopicDeleted,
    encode_records,
)
from sparklog.storage_backends.local import LocalBackend
from sparklog.storage_backends.memory import MemoryBackend
from tests.unit.driver.control_plane.damaged_journals import (
    HISTORY,
    image_at,
    journal_of,
    registered,
    repair,
    setting,
)


def test_a_whole_journal_is_sound() -> None:
    survey = survey_journal(journal_of(checkpoints=(4,)))
    assert (survey.is_sound, survey.starts, survey.image) == (True, True, image_at(10))
    assert (survey.checkpoint, survey.checkpoints, survey.highest) == (4, (4,), 10)
    assert survey.header is not None
    assert survey.header.time_ms == 10


def test_an_empty_folder_holds_no_journal() -> None:
    assert survey_journal(MemoryBackend()).is_empty


def test_a_damaged_commit_loses_those_behind_it() -> None:
    backend = journal_of(checkpoints=(3,))
    backend.put(commit_name(6), b"\0" * 50)
    survey = survey_journal(backend)
    assert (survey.is_sound, survey.starts, survey.image) == (False, False, image_at(5))
    assert [(each.name, each.reason, each.needed) for each in survey.damaged] == [
        (commit_name(6), "it is not JSON", True)
    ]
    assert [(each.number, each.state, each.records) for each in survey.lost] == [
        (6, State.DAMAGED, ()),
        *((n, State.READABLE, HISTORY[n - 1][1]) for n in (7, 8, 9, 10)),
    ]


def test_missing_commits_are_told_by_their_numbers() -> None:
    backend = journal_of()
    for number in (4, 5, 9):
        backend.delete(commit_name(number))
    survey = survey_journal(backend)
    assert (survey.version, survey.damaged) == (3, ())
    assert [(each.number, each.state) for each in survey.lost] == [
        (4, State.MISSING),
        (5, State.MISSING),
        *((n, State.READABLE) for n in (6, 7, 8)),
        (9, State.MISSING),
        (10, State.READABLE),
    ]


def test_whole_records_of_a_torn_commit_are_read() -> None:
    backend = journal_of()
    whole = backend.read(commit_name(2))
    backend.put(commit_name(2), whole[: whole.rindex(b'{"type"') + 20])
    survey = survey_journal(backend)
    assert survey.lost[0].records == (registered(1), registered(2))
    assert survey.lost[0].controller_epoch == 1
    # Damage in the middle leaves what comes before and after it.
    begin = whole.index(b'"broker_id":2')
    backend.put(commit_name(2), whole[:begin] + b"\xff\0\xff" + whole[begin + 3 :])
    assert survey_journal(backend).lost[0].records == (registered(1), registered(3))


def test_a_commit_that_does_not_fit_is_damaged_and_changes_nothing() -> None:
    """Half of the commit was replayed before it failed."""
    backend = journal_of()
    misfit = (setting("retention.ms", "5"), TopicDeleted(topic="none", topic_id=UUID(int=9)))
    backend.delete(commit_name(6))
    head = CommitHeader(version=6, controller_epoch=2, nonce="n", time_ms=6)
    Journal(backend).commit(head, encode_records(misfit))
    survey = survey_journal(backend)
    assert survey.image == image_at(5)
    assert "it does not fit the commits before it" in survey.damaged[0].reason
    assert (survey.lost[0].state, survey.lost[0].records) == (State.DAMAGED, misfit)


def test_a_damaged_checkpoint_is_not_needed_while_the_commits_are_there() -> None:
    backend = journal_of(checkpoints=(3, 6))
    backend.put(checkpoint_name(6), b"{}")
    for number in (1, 2, 3):
        backend.delete(commit_name(number))
    survey = survey_journal(backend)
    assert (survey.is_sound, survey.starts, survey.checkpoint) == (False, True, 3)
    assert survey.image == image_at(10)
    assert [each.needed for each in survey.damaged] == [False]


def test_a_damaged_checkpoint_without_the_commits_before_it_loses_those_behind_it() -> None:
    backend = journal_of(checkpoints=(3, 6))
    backend.put(checkpoint_name(6), b"{}")
    backend.delete(commit_name(5))
    survey = survey_journal(backend)
    assert (survey.starts, survey.version) == (False, 4)
    assert [each.number for each in survey.lost] == [5, 6, 7, 8, 9, 10]


def test_without_any_base_there_is_no_image() -> None:
    backend = journal_of(checkpoints=(6,))
    backend.put(checkpoint_name(6), b"{}")
    backend.delete(commit_name(1))
    survey = survey_journal(backend)
    assert (survey.image, survey.starts, survey.is_empty) == (None, False, False)


def test_a_file_with_a_number_far_behind_is_no_commit() -> None:
    backend = journal_of()
    backend.put(f"{'9' * 20}.json", backend.read(commit_name(2)))
    survey = survey_journal(backend)
    assert (survey.highest, survey.lost, survey.starts) == (10, (), False)
    assert survey.damaged[0].reason == "its number is far behind all others"
    repair(backend)
    assert Journal(backend).load() == image_at(10)


@pytest.mark.parametrize("number", [GAP_MAX + 1_000, 10**20 - 1])
def test_a_damaged_checkpoint_far_behind_is_none_of_this_journal(number: int) -> None:
    backend = journal_of(checkpoints=(6,))
    backend.put(checkpoint_name(number), b"")
    survey = survey_journal(backend)
    assert (survey.highest, survey.lost, survey.starts) == (10, (), False)
    assert survey.checkpoints == (6,)
    assert survey.damaged[0].reason == "its number is far behind all others"
    repair(backend)
    assert Journal(backend).load() == image_at(10)
    assert survey_journal(backend).is_sound


def test_a_checkpoint_that_can_be_read_may_be_far_behind_old_commits() -> None:
    backend = journal_of()
    head = CommitHeader(version=5 * GAP_MAX, controller_epoch=2, nonce="n", time_ms=1)
    Journal(backend).write_checkpoint(head, image_at(10).snapshot_records())
    survey = survey_journal(backend)
    assert (survey.version, survey.is_sound, survey.lost) == (5 * GAP_MAX, True, ())


def test_a_damaged_secret_is_found_and_moved_away() -> None:
    backend = journal_of()
    backend.put("secret", b"no hex")
    survey, _, done = repair(backend)
    assert [each.name for each in survey.damaged] == ["secret"]
    assert done.moved == ("secret",)
    assert Journal(backend).secret(lambda: b"a" * 32) == b"a" * 32


def test_a_file_that_the_disk_cannot_read_is_damaged(tmp_path: Path) -> None:
    backend = journal_of(backend=LocalBackend(tmp_path))
    (tmp_path / commit_name(8)).unlink()
    (tmp_path / commit_name(8)).mkdir()  # reading it fails, whoever the user is
    survey = survey_journal(backend)
    assert (survey.version, survey.damaged[0].name) == (7, commit_name(8))


def test_an_object_store_that_does_not_answer_is_not_a_damaged_journal() -> None:
    from sparklog.storage_backends.registry import open_backend

    store = open_backend("fsspec+memory://repair-unanswered")
    try:
        for name in ("a",):
            store.put(name, b"")
        journal_backend = journal_of()
        for name in journal_backend.list(""):
            store.put(name, journal_backend.read(name))
        assert survey_journal(store).image == image_at(10)
        store.delete(commit_name(4))
        assert survey_journal(store).version == 3
        store.read_many = _refuse  # type: ignore[method-assign]
        with pytest.raises(StorageError, match="no answer"):
            survey_journal(store)
    finally:
        for name in store.list(""):
            store.delete(name)


def _refuse(_paths: Any) -> list[bytes]:
    raise StorageError("no answer")


@given(st.integers(1, 10), st.integers(0, 400), st.binary(max_size=20), st.booleans())
def test_any_bytes_anywhere_are_found_or_change_nothing(
    number: int, position: int, damage: bytes, cut: bool
) -> None:
    """A survey never fails, and the lost commits begin at the first changed file."""
    backend = journal_of(checkpoints=(5,))
    data = backend.read(commit_name(number))
    position = min(position, len(data))
    rest = b"" if cut else data[position + len(damage) :]
    backend.put(commit_name(number), data[:position] + damage + rest)
    survey = survey_journal(backend)
    assert survey.version >= (10 if number <= 5 else number - 1)
    if survey.lost:
        _, plan, done = repair(backend)
        assert plan is not None
        assert done.version == 11
        loaded = Journal(backend).load()
        loaded.check_invariants()
        assert survey_journal(backend).is_sound
