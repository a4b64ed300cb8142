"""A commit log with a state, a header and words of its own, in a folder of a store.

The journal's tests show the rest: they run the same code.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pytest

from sparklog.commit_log import (
    CommitLog,
    CommitLogError,
    CommitLogKind,
    checkpoint_name,
    commit_name,
)
from sparklog.errors import DecodeError, StorageError
from sparklog.storage_backends.memory import MemoryBackend

FOLDER = "a/b"


@dataclass(frozen=True, slots=True, kw_only=True)
class WordHeader:
    version: int
    writer_epoch: int
    nonce: str
    time_ms: int


@dataclass(slots=True)
class Words:
    version: int = 0
    words: list[str] = field(default_factory=list)

    def replay_commit(self, number: int, records: Iterable[str]) -> None:
        for record in records:
            if record in self.words:
                raise LookupError(f"{record} is there already")
            self.words.append(record)
        self.version = number


class WordsError(CommitLogError):
    pass


def word(value: Any) -> str:
    if not isinstance(value, str):
        raise DecodeError(f"{value!r} is no word")
    return value


KIND: CommitLogKind[Words, str, WordHeader] = CommitLogKind(
    name="dictionary",
    state_name="list",
    header_type=WordHeader,
    new_state=Words,
    encode_records=lambda records: json.dumps(list(records)).encode(),
    record_from_json=word,
    error=WordsError,
    damage_remedy=lambda url: f"ask the author of {url}",
    store_remedy="choose a shelf",
)


def header(version: int, nonce: str = "mine", time_ms: int = 0) -> WordHeader:
    return WordHeader(version=version, writer_epoch=7, nonce=nonce, time_ms=time_ms)


def log_of(*commits: bytes) -> tuple[MemoryBackend, CommitLog[Words, str, WordHeader]]:
    backend = MemoryBackend()
    log = CommitLog(backend, KIND, folder=FOLDER)
    for version, records in enumerate(commits, start=1):
        assert log.write_commit(header(version), records) == header(version)
    return backend, log


def test_the_files_lie_in_the_folder_with_the_header_of_the_user() -> None:
    backend, log = log_of(b'["x"]')
    assert log.url == f"{backend.url}/a/b"
    assert backend.list("") == ["a"]
    assert backend.list(FOLDER) == [commit_name(1)]
    data = backend.read(f"{FOLDER}/{commit_name(1)}")
    assert data.partition(b",")[2].partition(b",")[2] == (
        b'"version":1,"writer_epoch":7,"nonce":"mine","time_ms":0,"records":["x"]}\n'
    )


def test_a_state_is_loaded_and_catches_up() -> None:
    _, log = log_of(b'["x"]', b'["y","z"]')
    state = log.load()
    assert state == Words(2, ["x", "y", "z"])
    tail = log.tail_bytes
    log.write_commit(header(3), b"[]")
    log.write_commit(header(4), b'["w"]')
    log.catch_up(state)
    assert state == Words(4, ["x", "y", "z", "w"])
    assert log.tail_bytes > tail
    assert (log.has_commit(4), log.has_commit(5)) == (True, False)
    assert (log.head_moved(3), log.head_moved(4)) == (True, False)


def test_a_commit_whose_number_is_taken_tells_its_owner() -> None:
    backend, log = log_of(b'["x"]')
    size = log.tail_bytes
    assert log.write_commit(header(1, "another's"), b'["y"]') == header(1)
    assert log.tail_bytes == size
    backend.faults.fail_next(operation="put_if_absent", after=True)
    assert log.write_commit(header(2, "another's"), b'["y"]') == header(2, "another's")
    assert log.load() == Words(2, ["x", "y"])


def test_a_damaged_file_is_named_with_the_words_of_the_user() -> None:
    backend, log = log_of(b'["x"]', b'["x"]')
    with pytest.raises(WordsError) as refusal:
        log.load()
    assert str(refusal.value) == (
        f"{backend.url}/a/b/{commit_name(2)} is damaged (x is there already); ask the author of "
        f"{backend.url}/a/b"
    )


def test_a_log_that_is_too_large_and_a_store_that_does_not_fit_have_the_words_of_the_user(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    backend, log = log_of()
    monkeypatch.setattr("sparklog.commit_log.documents.FILE_BYTES_MAX", 10)
    with pytest.raises(StorageError, match="exceeds the dictionary's limit of 10"):
        log.write_commit(header(1), b"[]")
    backend.atomic_put_if_absent = False
    with pytest.raises(StorageError, match="only if it is absent; choose a shelf"):
        log.check_backend()


def test_checkpoints_replace_commits_and_are_done_without_when_they_are_damaged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    backend, log = log_of(b'["x"]', b'["y"]', b'["z"]', b'["w"]')
    log.write_checkpoint(header(2), ["x", "y"])
    log.write_checkpoint(header(4), ["x", "y", "z", "w"])
    assert log.prune(log.keep_ms - 1) == 0
    assert log.prune(log.keep_ms) == 2
    assert backend.list(FOLDER) == [
        *(commit_name(number) for number in (3, 4)),
        *(checkpoint_name(number) for number in (2, 4)),
    ]
    backend.put(f"{FOLDER}/{checkpoint_name(4)}", b"damage")
    assert log.load() == Words(4, ["x", "y", "z", "w"])
    assert "the list was built from commits instead, up to 4" in caplog.text
