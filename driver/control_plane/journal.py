"""The journal: the commit log of the cluster's metadata, and the cluster secret beside its files.

Owns: what makes a commit log a journal, the end of a replaced controller, and the secret.  Must not
know what records mean, nor clocks or event loops: every call blocks, and times are arguments.

``sparklog.commit_log`` describes the files of commits and checkpoints; ``secret`` holds the secret
that members of the cluster share.  A controller whose commit collides knows that another controller
has taken over.
"""

import shlex
from collections.abc import Callable

from sparklog.commit_log import (
    FILE_BYTES_MAX,
    KEEP_MS,
    CommitLog,
    CommitLogError,
    CommitLogKind,
    checkpoint_name,
    commit_name,
)
from sparklog.driver.control_plane.journal_files import LOG_NAME, CommitHeader
from sparklog.errors import SparklogError
from sparklog.metadata import ClusterImage, Record, encode_records, from_json
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
CHECKPOINT_EVERY = 1_000
#: Bytes of commits after which a checkpoint is due: a starting controller replays all of them.
TAIL_BYTES_MAX = 16 * 1024 * 1024


class JournalError(CommitLogError):
    """The journal cannot be read; the message names the file, the damage, and the remedy."""


class JournalConflict(SparklogError):
    """Another controller owns the journal's head; this process must end."""


def _damage_remedy(url: str) -> str:
    return (
        "restore it from a copy; without it the cluster's metadata cannot be known. "
        f"`sparklog journal check {shlex.quote(url)}` shows what is left and what a "
        "repair would lose"
    )


# Nodes receive a commit or a checkpoint in one frame, whose limit is twice FILE_BYTES_MAX.
JOURNAL: CommitLogKind[ClusterImage, Record, CommitHeader] = CommitLogKind(
    name=LOG_NAME,
    state_name="image",
    header_type=CommitHeader,
    new_state=ClusterImage,
    encode_records=encode_records,
    record_from_json=from_json,
    error=JournalError,
    damage_remedy=_damage_remedy,
    store_remedy=(
        "choose a journal_dir on a local disk or on an object store that has conditional writes"
    ),
)


class Journal(CommitLog[ClusterImage, Record, CommitHeader]):
    """The journal of one cluster.  One process at a time should commit.

    Every call blocks and raises StorageError when the store fails, and JournalError when a file is
    damaged.  Call ``check_backend`` first.

    Args:
        backend: the store that holds the journal's files.
        keep_ms: how long commits are kept after a checkpoint has replaced them, in milliseconds.
    """

    def __init__(self, backend: StorageBackend, *, keep_ms: int = KEEP_MS) -> None:
        super().__init__(backend, JOURNAL, keep_ms=keep_ms)

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
        owner = self.write_commit(header, encoded_records)
        if owner.nonce != header.nonce:
            raise JournalConflict(
                f"commit {header.version} of {self.url} was written by a controller of epoch "
                f"{owner.controller_epoch}; this one (epoch {header.controller_epoch}) was "
                "replaced and ends"
            )

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
