"""The manifest of one partition in the store: a commit log that only its newest leader extends.

Owns: taking the manifest over, commits with their conflicts and lost answers, and checkpoints.
Must not know what the records mean, nor clocks or event loops: every call blocks, and times are
arguments.

A leader first commits that it has begun, together with what leaves the manifest therefore.  A
leader that was deposed collides with that commit, reads it, and learns that its epoch is over.  The
nonce of a commit begins with the nonce of its leader, and differs for each attempt: a commit of
which the answer was lost is recognised by it.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from uuid import UUID

from crc32c import crc32c

from sparklog.commit_log import KEEP_MS, CommitLog, CommitLogError, CommitLogKind
from sparklog.errors import DecodeError, SparklogError, StorageError
from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest, Records
from sparklog.remote_log.manifest_records import (
    ManifestRecord,
    check_readable,
    encode_records,
    record_from_json,
)
from sparklog.storage_backends.base import StorageBackend

#: Commits between two checkpoints.  A new leader reads as many commits at most, with few requests.
CHECKPOINT_EVERY = 200
#: Bytes of commits after which a checkpoint is written in any case.
TAIL_BYTES_MAX = 4 * 1024 * 1024
#: How often one call writes its commit again because another commit has taken the number.
ATTEMPTS_MAX = 100

logger = logging.getLogger(__name__)


class ManifestError(CommitLogError):
    """The manifest cannot be read; the message names the file, the damage, and the remedy."""


class DeposedLeaderError(SparklogError):
    """Another leader has taken the manifest over; this one must not change it any more."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestHeader:
    """The header of a commit: its number, and the leader and the time (ms) of its writing."""

    version: int
    leader_epoch: int
    nonce: str
    time_ms: int


def _check_epoch(header: ManifestHeader, manifest: Manifest) -> None:
    if header.leader_epoch < manifest.leader_epoch:
        raise DecodeError(
            f"it is of leader epoch {header.leader_epoch}, after commits of epoch "
            f"{manifest.leader_epoch}"
        )


MANIFEST: CommitLogKind[Manifest, ManifestRecord, ManifestHeader] = CommitLogKind(
    name="manifest",
    state_name="manifest",
    header_type=ManifestHeader,
    new_state=Manifest,
    encode_records=encode_records,
    record_from_json=record_from_json,
    error=ManifestError,
    damage_remedy=lambda url: (
        f"restore it from a copy of {url}; without it the segments of the partition in this store "
        "cannot be read"
    ),
    store_remedy=(
        "choose a store for remote segments that has conditional writes, or a local or shared disk"
    ),
    check_header=_check_epoch,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Attempt:
    """A commit of this leader whose outcome is not known."""

    number: int
    nonce: str
    records: Records


class ManifestLog:
    """The manifest of one partition.  Calls must not overlap.

    Every call blocks and raises StorageError when the store fails, and ManifestError when a file of
    the manifest is damaged.

    Args:
        backend: the store of the remote log.
        topic_id: the topic of the partition.
        partition: its number.
        keep_ms: how long commits are kept after a checkpoint has replaced them, in milliseconds.
        checkpoint_every: commits between two checkpoints.
        tail_bytes_max: bytes of commits after which a checkpoint is written in any case.
        check_store: called when the store has no manifest, or one with missing or damaged files,
            before that is believed.  Raises StorageError: the store is not the one that was used
            before.
    """

    def __init__(
        self,
        backend: StorageBackend,
        topic_id: UUID,
        partition: int,
        *,
        keep_ms: int = KEEP_MS,
        checkpoint_every: int = CHECKPOINT_EVERY,
        tail_bytes_max: int = TAIL_BYTES_MAX,
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        folder = names.manifest_folder(topic_id, partition)
        self._log = CommitLog(backend, MANIFEST, folder=folder, keep_ms=keep_ms)
        self._checkpoint_every = checkpoint_every
        self._tail_bytes_max = tail_bytes_max
        self._check_store = check_store
        self._manifest: Manifest | None = None
        #: Epoch and nonce of the leader that commits through this object.
        self._leader: tuple[int, str] | None = None
        self._attempts: list[_Attempt] = []
        self._nonces = 0

    @property
    def url(self) -> str:
        return self._log.url

    @property
    def is_loaded(self) -> bool:
        """Whether ``manifest`` may be used."""
        return self._manifest is not None

    @property
    def is_led(self) -> bool:
        """Whether the leader that has begun leads, as far as was read."""
        found = self._manifest
        return found is not None and (found.leader_epoch, found.leader_nonce) == self._leader

    @property
    def manifest(self) -> Manifest:
        """The manifest as of the last call.  Call ``load``, ``refresh`` or ``begin_leadership``
        first.  A later call changes or replaces it."""
        assert self._manifest is not None, "the manifest was not loaded"
        return self._manifest

    def check_backend(self) -> None:
        """Check once per store that exactly one of several leaders can win a commit.

        Raises:
            StorageError: two leaders could both win.
        """
        self._log.check_backend()

    # -- reading

    def load(self) -> Manifest:
        """Read the whole manifest.  After an error the last one stays."""
        try:
            manifest = self._log.load()
        except ManifestError:
            self._check_store()
            raise
        if manifest.version == 0:
            self._check_store()
        self._manifest = manifest
        return manifest

    def refresh(self) -> Manifest:
        """Read the commits since the last call; the whole manifest if there was none.

        An error leaves nothing behind of what was read before it.
        """
        manifest = self._manifest
        if manifest is None:
            return self.load()
        version = manifest.version
        try:
            self._log.catch_up(manifest)
            # Pruning deletes the oldest commits first.  While the last known commit is there, no
            # later commit was pruned.
            if version == 0 or not self._log.has_commit(version):
                return self.load()
        except SparklogError:
            # The commits that were replayed may not follow on from those that were known.
            if manifest.version != version:
                self._manifest = None
            raise
        return manifest

    # -- leading

    def begin_leadership(
        self,
        leader_epoch: int,
        nonce: str,
        now_ms: int,
        check_new: Callable[[], None] = lambda: None,
        agree: Callable[[Manifest], Records] = lambda manifest: (),
    ) -> Manifest:
        """Take the manifest over, for the commits that follow.

        A leader that has begun already, of which the answer may have been lost, begins again.

        Args:
            leader_epoch: the leader epoch of the partition.
            nonce: a text that no other leader of this epoch has.
            now_ms: the time of day, in milliseconds since the epoch.
            check_new: called before the first commit of a manifest.
            agree: decides what else this commit changes, so that no reader finds a manifest of this
                epoch without it.

        What ``check_new`` and ``agree`` raise ends the call, and nothing is written.

        Raises:
            DeposedLeaderError: a leader of a higher epoch has taken the manifest over, or another
                leader of the same epoch.
            StorageError: the outcome is unknown; call this again.
        """
        if self._leader != (leader_epoch, nonce):
            self._leader, self._attempts = (leader_epoch, nonce), []
        self._log.remove_leftovers()
        self.refresh()
        for _ in range(ATTEMPTS_MAX):
            if self.is_led:
                return self.manifest
            if self.manifest.leader_epoch >= leader_epoch:
                raise self._deposed()
            if self.manifest.version == 0:
                check_new()
            begin = self.manifest.begin_leadership(leader_epoch, nonce)
            if self._write((*begin, *agree(self.manifest)), now_ms):
                self._write_checkpoint_if_due(now_ms)
            else:
                self.refresh()
        raise self._crowded()

    def confirm_leadership(self) -> Manifest:
        """Read the commits since the last call, as the leader that has begun.

        Raises:
            DeposedLeaderError: another leader has taken the manifest over.
            StorageError: also if the manifest is of an older leader.
        """
        self.refresh()
        self.check_leadership()
        return self.manifest

    def commit(self, records: Sequence[ManifestRecord], now_ms: int) -> None:
        """Make records durable, and replay them on the manifest.

        If the outcome of an earlier call is unknown, this call finds it out first.  Records that
        were written by such a call are not written again.

        Args:
            records: a decision of the manifest; with none, nothing is written.
            now_ms: the time of day, in milliseconds since the epoch.

        Raises:
            DeposedLeaderError: another leader has taken the manifest over; nothing was written.
            MisfitError: the records do not fit the manifest (any more); nothing was written.  If
                calls with other records came after one of unknown outcome, look at the manifest.
            DecodeError: the records have values that no reader accepts; nothing was written.
            StorageError: the outcome is unknown.
        """
        assert self._leader is not None, "this leader has not begun"
        records = tuple(records)
        if not records:
            return
        if self._attempts and self._find_out(records):
            return
        for _ in range(ATTEMPTS_MAX):
            self.check_leadership()
            self.manifest.check(records)
            check_readable(records)
            if self._write(records, now_ms):
                self._write_checkpoint_if_due(now_ms)
                return
            self.refresh()
        raise self._crowded()

    def check_leadership(self) -> None:
        """Raises DeposedLeaderError if another leader has taken over, as far as was read.

        Raises StorageError if the manifest is of an older leader.
        """
        if not self.is_led:
            raise self._deposed()

    def _deposed(self) -> DeposedLeaderError | StorageError:
        """The error for a manifest that this leader must not change.

        No leader of a lower epoch takes over: the store is not the one that this leader has used.
        """
        assert self._leader is not None, "this leader has not begun"
        epoch = self._leader[0]
        if self.manifest.leader_epoch < epoch:
            return StorageError(
                f"{self.url} is of leader epoch {self.manifest.leader_epoch}, and lacks the "
                f"commits of the leader of epoch {epoch}; is an old copy of the store mounted?"
            )
        return DeposedLeaderError(
            f"another leader, of epoch {self.manifest.leader_epoch}, has taken over {self.url}; "
            f"this one (epoch {epoch}) was deposed and changes it no more"
        )

    def _crowded(self) -> StorageError:
        return StorageError(
            f"{self.url} was changed {ATTEMPTS_MAX} times by other leaders meanwhile; try again"
        )

    def _find_out(self, records: Records) -> bool:
        """Read on.  Return whether these records are among the commits whose outcome was unknown
        and that have been written."""
        self.refresh()
        version = self.manifest.version
        found = any(
            each.number <= version and each.records == records and self._has(each)
            for each in self._attempts
        )
        self._attempts = [each for each in self._attempts if each.number > version]
        return found

    def _has(self, attempt: _Attempt) -> bool:
        header = self._log.commit_header(attempt.number)
        if header is None or header.nonce != attempt.nonce:
            return False
        self._check_not_pruned(attempt.number)
        return True

    def _write(self, records: Records, now_ms: int) -> bool:
        """Write and replay a commit; False if another commit has taken its number."""
        assert self._leader is not None
        encoded = encode_records(records)
        attempt = self._attempt(records, encoded)
        header = ManifestHeader(
            version=attempt.number,
            leader_epoch=self._leader[0],
            nonce=attempt.nonce,
            time_ms=now_ms,
        )
        owner = self._log.write_commit(header, encoded)
        if owner.nonce != attempt.nonce:
            return False
        self._check_not_pruned(attempt.number)
        self._attempts = []
        self.manifest.replay_commit(attempt.number, records)
        return True

    def _attempt(self, records: Records, encoded: bytes) -> _Attempt:
        """The attempt at these records, the earlier one if its outcome is unknown."""
        number = self.manifest.version + 1
        for each in self._attempts:
            if each.number == number and each.records == records:
                return each
        assert self._leader is not None
        self._nonces += 1
        nonce = f"{self._leader[1]}-{self._nonces}-{crc32c(encoded):08x}"
        attempt = _Attempt(number=number, nonce=nonce, records=records)
        self._attempts.append(attempt)
        return attempt

    def _check_not_pruned(self, number: int) -> None:
        """Refuse a commit whose number was free only because later commits were pruned.

        That happens to a leader that stood still for ``keep_ms``.  Pruning deletes the oldest
        commits first, so the commit before it is gone then, too.

        Raises:
            DeposedLeaderError: this leader was replaced.
        """
        pruned = not self._log.has_commit(number - 1) if number > 1 else self._log.head_moved(1)
        if pruned:
            self._attempts = []
            self.load()
            raise self._deposed()

    def _write_checkpoint_if_due(self, now_ms: int) -> None:
        version, log = self.manifest.version, self._log
        if version % self._checkpoint_every and log.tail_bytes <= self._tail_bytes_max:
            return
        log.reset_tail()
        header = ManifestHeader(
            version=version,
            leader_epoch=self.manifest.leader_epoch,
            nonce=self.manifest.leader_nonce,
            time_ms=now_ms,
        )
        try:
            log.write_encoded_checkpoint(header, self.manifest.encoded_snapshot())
            log.prune(now_ms)
        except (StorageError, CommitLogError) as error:
            logger.warning("no checkpoint of %s at commit %d: %s", self.url, version, error)
