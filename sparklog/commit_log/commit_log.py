"""Numbered commits of records, each written once, and checkpoints of the whole state.

Owns: the log's files, put-if-absent with reading back, checkpoints and pruning.  Must not know what
records mean, nor clocks or event loops: every call blocks, and times are arguments.

``<20 digits>.json`` holds one commit, ``checkpoint-<20 digits>.json`` the records that build the
state as of that commit number.  Commit numbers are contiguous.  The writer that creates the file of
a number first owns that commit.  A writer whose commit collides therefore knows that another writer
has taken over.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Generic

from sparklog.commit_log.documents import HeaderT, RecordT, decode_document, encode_document
from sparklog.commit_log.file_names import (
    checkpoint_name,
    checkpoint_numbers,
    commit_name,
    commit_numbers,
)
from sparklog.commit_log.kind import CommitLogError, CommitLogKind, StateT
from sparklog.errors import DecodeError, StorageError
from sparklog.storage_backends.base import StorageBackend

#: How long commits are kept after a checkpoint has made them unnecessary.  A writer that was
#: stalled for less than this collides with one of them and learns that it was replaced.
KEEP_MS = 24 * 60 * 60 * 1000
#: Commits that are read with one call: single reads would take a round trip each.
COMMITS_PER_READ = 256

logger = logging.getLogger(__name__)


class CommitLog(Generic[StateT, RecordT, HeaderT]):
    """A commit log in one folder of a store.

    Every call blocks and raises StorageError when the store fails.  Call ``check_backend`` first.

    Args:
        backend: the store that holds the log's files.
        kind: what the log's user brings.
        folder: the folder of the files below the root of the store; ``""`` is the root.
        keep_ms: how long commits are kept after a checkpoint has replaced them, in milliseconds.
    """

    def __init__(
        self,
        backend: StorageBackend,
        kind: CommitLogKind[StateT, RecordT, HeaderT],
        *,
        folder: str = "",
        keep_ms: int = KEEP_MS,
    ) -> None:
        self._backend = backend
        self._kind = kind
        self._folder = folder
        self.keep_ms = keep_ms
        #: Bytes of the commits that this object has read or written since ``reset_tail``, or since
        #: the loaded checkpoint.
        self.tail_bytes = 0

    @property
    def url(self) -> str:
        return f"{self._backend.url}/{self._folder}" if self._folder else self._backend.url

    def _path(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    def check_backend(self) -> None:
        """Check that the store lets exactly one of several racing writers win a commit.

        Raises:
            StorageError: two writers could both win.
        """
        if not self._backend.proves_put_if_absent():
            raise StorageError(
                f"{self.url} cannot create a file only if it is absent; {self._kind.store_remedy}"
            )

    # -- reading

    def load(self) -> StateT:
        """Build the state as of the last commit.

        A damaged checkpoint is skipped if an older checkpoint and all commits since are there.

        Returns:
            The state; an empty state of version 0 for a new log.

        Raises:
            CommitLogError: a file that is needed is damaged or missing.
        """
        names = self._backend.list(self._folder)
        checkpoints = checkpoint_numbers(names)
        commits = commit_numbers(names)
        state, damage = self._newest_state(checkpoints)
        since = [number for number in commits if number > state.version]
        if damage is not None and not _reaches(state.version, since, checkpoints[-1]):
            raise damage
        self.reset_tail()
        for start in range(0, len(since), COMMITS_PER_READ):
            self._replay_commits(state, since[start : start + COMMITS_PER_READ])
        if damage is not None:
            name = self._kind.state_name
            logger.warning(
                "%s; the %s was built from commits instead, up to %d", damage, name, state.version
            )
        return state

    def _newest_state(self, checkpoints: Sequence[int]) -> tuple[StateT, CommitLogError | None]:
        """The state of the newest readable checkpoint, and the damage of the newest one of all.

        The state is empty without a readable checkpoint.  The damage is None if the newest
        checkpoint is readable.
        """
        damage: CommitLogError | None = None
        for number in reversed(checkpoints):
            state, name = self._kind.new_state(), checkpoint_name(number)
            try:
                self._replay(state, name, number, self._backend.read(self._path(name)))
            except CommitLogError as error:
                damage = damage or error
            else:
                return state, damage
        return self._kind.new_state(), damage

    def catch_up(self, state: StateT) -> None:
        """Replay later commits on ``state``, one by one: another writer may be writing.

        Raises:
            CommitLogError: a commit is damaged.
        """
        while (data := self._read_commit(state.version + 1)) is not None:
            self._replay(state, commit_name(state.version + 1), state.version + 1, data)

    def _read_commit(self, number: int) -> bytes | None:
        return self._backend.read_if_there(self._path(commit_name(number)))

    def has_commit(self, version: int) -> bool:
        """Whether a commit with this number was written."""
        return self._backend.exists(self._path(commit_name(version)))

    def commit_header(self, version: int) -> HeaderT | None:
        """The header of the commit with this number; None if there is no such commit.

        Raises:
            CommitLogError: the commit is damaged.
        """
        data = self._read_commit(version)
        return None if data is None else self._decoded_header(commit_name(version), data)

    def head_moved(self, version: int) -> bool:
        """Whether there is a commit after ``version``, or a checkpoint that replaced such one."""
        names = self._backend.list(self._folder)
        numbers = (*commit_numbers(names), *checkpoint_numbers(names))
        return max(numbers, default=0) > version

    def _replay_commits(self, state: StateT, numbers: list[int]) -> None:
        expected = range(state.version + 1, state.version + 1 + len(numbers))
        for number, wanted in zip(numbers, expected, strict=True):
            if number != wanted:
                raise self._kind.error(
                    f"{self.url}/{commit_name(wanted)} is missing although {commit_name(number)} "
                    f"exists; {self._kind.damage_remedy(self.url)}"
                )
        names = [commit_name(number) for number in numbers]
        found = self._backend.read_many([self._path(name) for name in names])
        for name, number, data in zip(names, numbers, found, strict=True):
            self._replay(state, name, number, data)

    def _replay(self, state: StateT, name: str, number: int, data: bytes) -> None:
        self.tail_bytes += len(data)
        try:
            header, records = self._decode(data)
            if header.version != number:
                raise DecodeError(f"it says that it is commit {header.version}")
            self._kind.check_header(header, state)
            state.replay_commit(number, records)
        except (DecodeError, LookupError) as error:
            remedy = self._kind.damage_remedy(self.url)
            raise self._kind.error(f"{self.url}/{name} is damaged ({error}); {remedy}") from None

    def _decode(self, data: bytes) -> tuple[HeaderT, tuple[RecordT, ...]]:
        return decode_document(data, self._kind.header_type, self._kind.record_from_json)

    def _header(self, name: str) -> HeaderT:
        return self._decoded_header(name, self._backend.read(self._path(name)))

    def _decoded_header(self, name: str, data: bytes) -> HeaderT:
        try:
            return self._decode(data)[0]
        except DecodeError as error:
            raise self._kind.error(f"{self.url}/{name} is damaged ({error})") from None

    # -- writing

    def write_commit(self, header: HeaderT, encoded_records: bytes) -> HeaderT:
        """Make a commit durable, unless its number is taken.

        Args:
            header: the header of the commit.
            encoded_records: the records, from the kind's ``encode_records``.

        Returns:
            The header of the commit that has the number now.  With another nonce than that of
            ``header`` it is the commit of another writer, and this commit was not written.

        Raises:
            StorageError: the commit was not written if ``has_commit`` says so.  Otherwise it is
                unknown whether it is durable.
        """
        name = commit_name(header.version)
        document = encode_document(header, encoded_records, log_name=self._kind.name)
        try:
            created = self._backend.put_if_absent(self._path(name), document)
        except StorageError:
            # The outcome is unknown.  The second call also makes an existing file durable.
            created = self._backend.put_if_absent(self._path(name), document)
        owner = header if created else self._header(name)
        if owner.nonce == header.nonce:
            self.tail_bytes += len(document)
        return owner

    def reset_tail(self) -> None:
        """Count ``tail_bytes`` from now on: a checkpoint covers all commits so far."""
        self.tail_bytes = 0

    def write_checkpoint(self, header: HeaderT, records: Iterable[RecordT]) -> None:
        """Write a checkpoint, unless there is one for ``header.version`` already.

        Args:
            header: the header of the last commit that the checkpoint covers.
            records: the records that build the state as of that commit.
        """
        self.write_encoded_checkpoint(header, self._kind.encode_records(records))

    def write_encoded_checkpoint(self, header: HeaderT, encoded_records: bytes) -> None:
        """``write_checkpoint`` for records that are encoded as a JSON array already."""
        document = encode_document(header, encoded_records, log_name=self._kind.name)
        self._backend.put_if_absent(self._path(checkpoint_name(header.version)), document)

    def remove_leftovers(self) -> None:
        """Remove half-written files of killed writers.

        A live writer, if there is one, sees this as a failed write and tries again.
        """
        self._backend.remove_leftovers(self._folder)

    def prune(self, now_ms: int) -> int:
        """Delete the files that a checkpoint made unnecessary at least ``keep_ms`` ago.

        That checkpoint itself stays until the next checkpoint is as old: it can replace, together
        with the commits since, a newer checkpoint that is damaged.

        Args:
            now_ms: the time of day, in milliseconds since the epoch.

        Returns:
            The number of deleted files.
        """
        names = self._backend.list(self._folder)
        checkpoints = checkpoint_numbers(names)
        limit = self._newest_old(checkpoints[:-1], now_ms)
        dead = [commit_name(n) for n in commit_numbers(names) if n <= limit]
        dead += [checkpoint_name(n) for n in checkpoints if n < limit]
        for name in dead:
            self._backend.delete(self._path(name))
        return len(dead)

    def _newest_old(self, checkpoints: list[int], now_ms: int) -> int:
        """The newest readable checkpoint that is at least ``keep_ms`` old; 0 without any."""
        for number in reversed(checkpoints):
            try:
                header = self._header(checkpoint_name(number))
            except CommitLogError as error:
                logger.warning("%s; it is left as it is", error)
                continue
            if header.time_ms <= now_ms - self.keep_ms:
                return number
        return 0


def _reaches(base: int, commits: Sequence[int], number: int) -> bool:
    """Whether the sorted ``commits``, all above ``base``, reach from there to ``number`` without a
    gap."""
    needed = number - base
    return len(commits) >= needed and list(commits[:needed]) == list(range(base + 1, number + 1))
