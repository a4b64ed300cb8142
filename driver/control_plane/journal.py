"""The journal: numbered commits of records, each written once, and checkpoints of the whole image.

Owns: the names and formats of its files, put-if-absent with reading back, checkpoints, pruning, and
the cluster secret beside them.  Must not know what records mean, nor clocks or loops: every call
blocks, and times come in as arguments.

``<20 digits>.json`` holds one commit, ``checkpoint-<20 digits>.json`` the records that build the
image as of that number, ``secret`` the secret that members of the cluster share.  Numbers are
contiguous.  Whoever creates a number's file first owns that commit, so a controller whose commit
collides knows that another one has taken over.
"""

import logging
import shlex
from collections.abc import Callable, Iterable, Sequence

from sparklog.driver.control_plane.journal_files import (
    FILE_BYTES_MAX,
    CommitHeader,
    checkpoint_name,
    checkpoint_numbers,
    commit_name,
    commit_numbers,
    decode_file,
    encode_file,
)
from sparklog.errors import DecodeError, SparklogError, StorageError
from sparklog.metadata import ClusterImage, Record, encode_records
from sparklog.storage_backends.base import StorageBackend

__all__ = [
    "CHECKPOINT_EVERY",
    "FILE_BYTES_MAX",
    "KEEP_MS",
    "SECRET_BYTES",
    "TAIL_BYTES_MAX",
    "CommitHeader",
    "Journal",
    "JournalConflict",
    "JournalError",
    "checkpoint_name",
    "commit_name",
]

SECRET_NAME = "secret"
SECRET_BYTES = 32
#: How long numbers stay after a checkpoint has made them unnecessary: a controller that was
#: stalled for less than this meets them and learns that it was replaced.
KEEP_MS = 24 * 60 * 60 * 1000
CHECKPOINT_EVERY = 1_000
#: Commits are not left to grow beyond this without a checkpoint: who starts replays them all.
TAIL_BYTES_MAX = 16 * 1024 * 1024
#: Commits that are asked for together: one at a time takes a round trip each.
COMMITS_PER_READ = 256

logger = logging.getLogger(__name__)


class JournalError(SparklogError):
    """A journal that cannot be read: which file, what is wrong, and what to do."""


class JournalConflict(SparklogError):
    """Another controller owns the journal's head; this one must end."""


class Journal:
    """The files.  ``check_backend`` first; one process at a time should commit."""

    def __init__(self, backend: StorageBackend, *, keep_ms: int = KEEP_MS) -> None:
        self._backend = backend
        self.keep_ms = keep_ms
        #: Bytes of the commits that were read or written here since ``reset_tail``, or since the
        #: checkpoint that was loaded.
        self.tail_bytes = 0

    @property
    def url(self) -> str:
        return self._backend.url

    def check_backend(self) -> None:
        """Raises StorageError for a store on which two controllers could both win."""
        if not self._backend.proves_put_if_absent():
            raise StorageError(
                f"{self.url} cannot create a file only if it is absent; choose a journal_dir on a "
                "local disk or on an object store that has conditional writes"
            )

    # -- reading

    def load(self) -> ClusterImage:
        """The image as of the last commit; an empty one of version 0 for a new journal.

        A checkpoint that is damaged is done without, if an older one and all commits since are
        there.  Raises JournalError.
        """
        names = self._backend.list("")
        checkpoints = checkpoint_numbers(names)
        commits = commit_numbers(names)
        image, damage = self._newest_image(checkpoints)
        since = [number for number in commits if number > image.version]
        if damage is not None and not _reaches(image.version, since, checkpoints[-1]):
            raise damage
        self.reset_tail()
        for start in range(0, len(since), COMMITS_PER_READ):
            self._replay_commits(image, since[start : start + COMMITS_PER_READ])
        if damage is not None:
            logger.warning(
                "%s; the image was built from commits instead, up to %d", damage, image.version
            )
        return image

    def _newest_image(self, checkpoints: Sequence[int]) -> tuple[ClusterImage, JournalError | None]:
        """The image of the newest checkpoint that can be read, an empty one for none; and what was
        wrong with the newest of all, if it is another one."""
        damage: JournalError | None = None
        for number in reversed(checkpoints):
            image, name = ClusterImage(), checkpoint_name(number)
            try:
                self._replay(image, name, number, self._backend.read(name))
            except JournalError as error:
                damage = damage or error
            else:
                return image, damage
        return ClusterImage(), damage

    def catch_up(self, image: ClusterImage) -> None:
        """Replay what was committed since, one by one: another controller may be writing."""
        while (data := self._backend.read_if_there(commit_name(image.version + 1))) is not None:
            self._replay(image, commit_name(image.version + 1), image.version + 1, data)

    def has_commit(self, version: int) -> bool:
        """Whether a commit of this number was written."""
        return self._backend.exists(commit_name(version))

    def head_moved(self, version: int) -> bool:
        """Whether anybody has written after ``version`` (pruned numbers leave a checkpoint)."""
        names = self._backend.list("")
        numbers = (*commit_numbers(names), *checkpoint_numbers(names))
        return max(numbers, default=0) > version

    def _replay_commits(self, image: ClusterImage, numbers: list[int]) -> None:
        expected = range(image.version + 1, image.version + 1 + len(numbers))
        for number, wanted in zip(numbers, expected, strict=True):
            if number != wanted:
                raise JournalError(
                    f"{self.url}/{commit_name(wanted)} is missing although {commit_name(number)} "
                    f"exists; {self._remedy}"
                )
        names = [commit_name(number) for number in numbers]
        for name, number, data in zip(names, numbers, self._backend.read_many(names), strict=True):
            self._replay(image, name, number, data)

    def _replay(self, image: ClusterImage, name: str, number: int, data: bytes) -> None:
        self.tail_bytes += len(data)
        try:
            header, records = decode_file(data)
            if header.version != number:
                raise DecodeError(f"it says that it is commit {header.version}")
            image.replay_commit(number, records)
        except (DecodeError, KeyError) as error:
            raise JournalError(f"{self.url}/{name} is damaged ({error}); {self._remedy}") from None

    @property
    def _remedy(self) -> str:
        return (
            "restore it from a copy; without it the cluster's metadata cannot be known. "
            f"`sparklog journal check {shlex.quote(self.url)}` shows what is left and what a "
            "repair would lose"
        )

    def _header(self, name: str) -> CommitHeader:
        try:
            return decode_file(self._backend.read(name))[0]
        except DecodeError as error:
            raise JournalError(f"{self.url}/{name} is damaged ({error})") from None

    # -- writing

    def commit(self, header: CommitHeader, encoded_records: bytes) -> None:
        """Make a commit durable, or raise: JournalConflict (not written), StorageError (not written
        if the journal does not hold it, else unknown whether it is durable).

        ``encoded_records`` come from ``encode_records``.
        """
        name = commit_name(header.version)
        document = encode_file(header, encoded_records)
        try:
            created = self._backend.put_if_absent(name, document)
        except StorageError:
            # The outcome is unknown; asking again also makes a file that exists durable.
            created = self._backend.put_if_absent(name, document)
        owner = header if created else self._header(name)
        if owner.nonce != header.nonce:
            raise JournalConflict(
                f"commit {header.version} of {self.url} was written by a controller of epoch "
                f"{owner.controller_epoch}; this one (epoch {header.controller_epoch}) was "
                "replaced and ends"
            )
        self.tail_bytes += len(document)

    def reset_tail(self) -> None:
        """A checkpoint holds everything so far."""
        self.tail_bytes = 0

    def write_checkpoint(self, header: CommitHeader, records: Iterable[Record]) -> None:
        """Save the image as of ``header.version``; an existing checkpoint is as good."""
        document = encode_file(header, encode_records(records))
        self._backend.put_if_absent(checkpoint_name(header.version), document)

    def remove_leftovers(self) -> None:
        """Remove half-written files of controllers that were killed.  To one that lives this is a
        write that failed; it tries again."""
        self._backend.remove_leftovers("")

    def prune(self, now_ms: int) -> int:
        """Delete what a checkpoint made unnecessary at least ``keep_ms`` ago.

        The checkpoint itself stays until the next one is as old: should a newer one be damaged, it
        and the commits since stand in for that.  Returns the number of deleted files.
        """
        names = self._backend.list("")
        checkpoints = checkpoint_numbers(names)
        limit = self._newest_old(checkpoints[:-1], now_ms)
        dead = [commit_name(n) for n in commit_numbers(names) if n <= limit]
        dead += [checkpoint_name(n) for n in checkpoints if n < limit]
        for name in dead:
            self._backend.delete(name)
        return len(dead)

    def _newest_old(self, checkpoints: list[int], now_ms: int) -> int:
        """The newest of the checkpoints that is old enough, and whole; 0 for none."""
        for number in reversed(checkpoints):
            try:
                header = self._header(checkpoint_name(number))
            except JournalError as error:
                logger.warning("%s; it is left as it is", error)
                continue
            if header.time_ms <= now_ms - self.keep_ms:
                return number
        return 0

    # -- the secret

    def secret(self, new_secret: Callable[[], bytes]) -> bytes:
        """The cluster's secret; made by the first who asks."""
        candidate = new_secret().hex().encode()
        text = self._backend.read_if_there(SECRET_NAME)
        if text is None:
            won = self._backend.put_if_absent(SECRET_NAME, candidate)
            text = candidate if won else self._backend.read(SECRET_NAME)
        try:
            secret = bytes.fromhex(text.decode())
        except ValueError:
            secret = b""
        if len(secret) != SECRET_BYTES:
            raise JournalError(
                f"{self.url}/{SECRET_NAME} is damaged; delete it while the cluster is stopped, and "
                "a new one is made"
            )
        return secret


def _reaches(base: int, commits: Sequence[int], number: int) -> bool:
    """Whether the commits (sorted, all above ``base``) begin right after it and go on without a
    gap to ``number`` at least."""
    needed = number - base
    return len(commits) >= needed and list(commits[:needed]) == list(range(base + 1, number + 1))
