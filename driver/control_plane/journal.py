"""The journal: numbered commits of records, each written once, and checkpoints of the whole image.

Owns: the journal's files, put-if-absent with reading back, checkpoints, pruning, and the cluster
secret beside the files.  Must not know what records mean, nor clocks or event loops: every call
blocks, and times are arguments.

``<20 digits>.json`` holds one commit, ``checkpoint-<20 digits>.json`` the records that build the
image as of that commit number, and ``secret`` the secret that members of the cluster share.  Commit
numbers are contiguous.  The controller that creates the file of a number first owns that commit.  A
controller whose commit collides therefore knows that another controller has taken over.
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
#: How long commits are kept after a checkpoint has made them unnecessary.  A controller that was
#: stalled for less than this collides with one of them and learns that it was replaced.
KEEP_MS = 24 * 60 * 60 * 1000
CHECKPOINT_EVERY = 1_000
#: Bytes of commits after which a checkpoint is due: a starting controller replays all of them.
TAIL_BYTES_MAX = 16 * 1024 * 1024
#: Commits that are read with one call: single reads would take a round trip each.
COMMITS_PER_READ = 256

logger = logging.getLogger(__name__)


class JournalError(SparklogError):
    """The journal cannot be read; the message names the file, the damage, and the remedy."""


class JournalConflict(SparklogError):
    """Another controller owns the journal's head; this process must end."""


class Journal:
    """The journal of one cluster.  One process at a time should commit.

    Every call blocks and raises StorageError when the store fails.  Call ``check_backend`` first.

    Args:
        backend: the store that holds the journal's files.
        keep_ms: how long commits are kept after a checkpoint has replaced them, in milliseconds.
    """

    def __init__(self, backend: StorageBackend, *, keep_ms: int = KEEP_MS) -> None:
        self._backend = backend
        self.keep_ms = keep_ms
        #: Bytes of the commits that this object has read or written since ``reset_tail``, or since
        #: the loaded checkpoint.
        self.tail_bytes = 0

    @property
    def url(self) -> str:
        return self._backend.url

    def check_backend(self) -> None:
        """Check that the store lets exactly one of several racing controllers win a commit.

        Raises:
            StorageError: two controllers could both win.
        """
        if not self._backend.proves_put_if_absent():
            raise StorageError(
                f"{self.url} cannot create a file only if it is absent; choose a journal_dir on a "
                "local disk or on an object store that has conditional writes"
            )

    # -- reading

    def load(self) -> ClusterImage:
        """Build the image as of the last commit.

        A damaged checkpoint is skipped if an older checkpoint and all commits since are there.

        Returns:
            The image; an empty image of version 0 for a new journal.

        Raises:
            JournalError: a file that is needed is damaged or missing.
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
        """The image of the newest readable checkpoint, and the damage of the newest one of all.

        The image is empty without a readable checkpoint.  The damage is None if the newest
        checkpoint is readable.
        """
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
        """Replay later commits on ``image``, one by one: another controller may be writing.

        Raises:
            JournalError: a commit is damaged.
        """
        while (data := self._backend.read_if_there(commit_name(image.version + 1))) is not None:
            self._replay(image, commit_name(image.version + 1), image.version + 1, data)

    def has_commit(self, version: int) -> bool:
        """Whether a commit with this number was written."""
        return self._backend.exists(commit_name(version))

    def head_moved(self, version: int) -> bool:
        """Whether there is a commit after ``version``, or a checkpoint that replaced such one."""
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
        """Make a commit durable.

        Args:
            header: the header of the commit.
            encoded_records: the records, from ``encode_records``.

        Raises:
            JournalConflict: another controller owns this number; the commit was not written.
            StorageError: the commit was not written if ``has_commit`` says so.  Otherwise it is
                unknown whether it is durable.
        """
        name = commit_name(header.version)
        document = encode_file(header, encoded_records)
        try:
            created = self._backend.put_if_absent(name, document)
        except StorageError:
            # The outcome is unknown.  The second call also makes an existing file durable.
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
        """Count ``tail_bytes`` from now on: a checkpoint covers all commits so far."""
        self.tail_bytes = 0

    def write_checkpoint(self, header: CommitHeader, records: Iterable[Record]) -> None:
        """Write a checkpoint, unless there is one for ``header.version`` already.

        Args:
            header: the header of the last commit that the checkpoint covers.
            records: the records that build the image as of that commit.
        """
        document = encode_file(header, encode_records(records))
        self._backend.put_if_absent(checkpoint_name(header.version), document)

    def remove_leftovers(self) -> None:
        """Remove half-written files of killed controllers.

        A live controller, if there is one, sees this as a failed write and tries again.
        """
        self._backend.remove_leftovers("")

    def prune(self, now_ms: int) -> int:
        """Delete the files that a checkpoint made unnecessary at least ``keep_ms`` ago.

        That checkpoint itself stays until the next checkpoint is as old: it can replace, together
        with the commits since, a newer checkpoint that is damaged.

        Args:
            now_ms: the time of day, in milliseconds since the epoch.

        Returns:
            The number of deleted files.
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
        """The newest readable checkpoint that is at least ``keep_ms`` old; 0 without any."""
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
        """The cluster secret.

        Args:
            new_secret: makes a secret, which is stored if the journal has none yet.

        Raises:
            JournalError: the secret's file is damaged.
        """
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
    """Whether the sorted ``commits``, all above ``base``, reach from there to ``number`` without a
    gap."""
    needed = number - base
    return len(commits) >= needed and list(commits[:needed]) == list(range(base + 1, number + 1))
