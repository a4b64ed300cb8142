"""The manifests that one process uses, each with its lock.

Owns: which manifests are open, which of them this process leads, and when a manifest is read again.
Must not know what is decided with them, or objects of segments.
"""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias, TypeVar
from uuid import UUID

from sparklog.errors import SparklogError
from sparklog.remote_log.manifest import Manifest, MisfitError, Records
from sparklog.remote_log.manifest_log import DeposedLeaderError, ManifestLog
from sparklog.storage_backends.base import StorageBackend
from sparklog.types import NO_LEADER_EPOCH

T = TypeVar("T")

#: Makes a lock, where calls overlap.
NewLock: TypeAlias = Callable[[], AbstractContextManager[Any]]
#: Tells the time of day, in milliseconds since the epoch.
ClockMs: TypeAlias = Callable[[], int]


class NotLeadingError(SparklogError):
    """This process has not taken the manifest over; call ``begin_leadership`` first."""


class RemotePartition(NamedTuple):
    """A partition of the topic with this id."""

    topic_id: UUID
    partition: int


@dataclass(slots=True)
class _OpenManifest:
    """A manifest in use.  ``lock`` is held by every call that changes or looks at it."""

    log: ManifestLog
    lock: AbstractContextManager[Any]
    #: The epoch in which this process has taken the manifest over last, so that it agrees with the
    #: log of that leader; None before, and while it is taken over again.
    led_epoch: int | None = None
    #: Whether a call has failed, so that a commit of it may have been written nevertheless.
    in_doubt: bool = False


class OpenManifests:
    """The manifests in one store that are in use.  Calls may overlap.

    Args:
        store: the store.
        new_lock: makes a lock, where calls overlap.
        check_store: see ``ManifestLog``.
    """

    def __init__(
        self,
        store: StorageBackend,
        new_lock: NewLock,
        check_store: Callable[[], None] = lambda: None,
    ) -> None:
        self._store = store
        self._check_store = check_store
        self._new_lock = new_lock
        self._guard = new_lock()
        self._opened: dict[RemotePartition, _OpenManifest] = {}

    def look(
        self,
        partition: RemotePartition,
        look: Callable[[Manifest], T],
        *,
        refreshes: bool = False,
        settles: bool = False,
        leader_epoch: int = NO_LEADER_EPOCH,
    ) -> T:
        """The result of ``look``, which must not keep the manifest.

        Args:
            refreshes: whether commits that were written meanwhile are read first.
            settles: whether they are read first after a call that has failed, whose commit may
                have been written.
            leader_epoch: they are read, too, if the manifest is not of this epoch or a later one.
        """
        opened = self._open(partition)
        with opened.lock:
            log = opened.log
            refreshes = refreshes or (settles and opened.in_doubt)
            if refreshes or not log.is_loaded or log.manifest.leader_epoch < leader_epoch:
                log.refresh()
            return look(log.manifest)

    def leads(self, partition: RemotePartition, leader_epoch: int) -> bool:
        """Whether this process has taken the manifest over, in this leader epoch or a later one.

        A leadership that has ended is not told to this process: the caller's epoch tells it.
        """
        opened = self._open(partition)
        with opened.lock:
            return opened.led_epoch is not None and opened.led_epoch >= leader_epoch

    @contextmanager
    def taking_over(self, partition: RemotePartition) -> Iterator[ManifestLog]:
        """Lead from the end of the ``with`` block on, unless an error ends it."""
        opened = self._open(partition)
        with opened.lock:
            opened.led_epoch, opened.in_doubt = None, True
            yield opened.log
            opened.led_epoch, opened.in_doubt = opened.log.manifest.leader_epoch, False

    @contextmanager
    def leading(
        self, partition: RemotePartition, leader_epoch: int | None = None
    ) -> Iterator[ManifestLog]:
        """The manifest, for a change by its leader.

        Args:
            partition: the partition.
            leader_epoch: that of the leader whose change it is, if the change is wrong for others.
                A call may be late, when this process leads in a later epoch.

        Raises:
            NotLeadingError: no leader has begun here.
            DeposedLeaderError: another leader has taken over.  The manifest is read again first,
                as it is after a call that has failed.
            StorageError: also if the manifest is of an older leader.
        """
        opened = self._open(partition)
        with opened.lock:
            if opened.led_epoch is None:
                raise NotLeadingError(
                    f"no leader of {opened.log.url} has begun in this process; call "
                    "begin_leadership for it"
                )
            if opened.in_doubt or not opened.log.is_led:
                opened.log.confirm_leadership()
            begun = opened.log.manifest.leader_epoch
            if leader_epoch is not None and leader_epoch != begun:
                raise DeposedLeaderError(
                    f"{opened.log.url} was to be changed by the leader of epoch {leader_epoch}, "
                    f"and that of epoch {begun} has begun"
                )
            opened.in_doubt = True
            yield opened.log
            opened.in_doubt = False

    def _open(self, partition: RemotePartition) -> _OpenManifest:
        with self._guard:
            opened = self._opened.get(partition)
            if opened is None:
                log = ManifestLog(self._store, *partition, check_store=self._check_store)
                opened = self._opened[partition] = _OpenManifest(log, self._new_lock())
            return opened

    def forget(self, partition: RemotePartition) -> None:
        """Close a manifest."""
        with self._guard:
            self._opened.pop(partition, None)


def commit(log: ManifestLog, decide: Callable[[Manifest, int], Records], clock_ms: ClockMs) -> None:
    """Commit what ``decide`` says of the manifest at a time of day (ms).

    The time is that of the decision.  The call may have waited before, while others still read the
    segments that it removes.

    An earlier commit of this leader may arrive after all, when it has been decided already.  Then
    it is decided again.

    Raises DeposedLeaderError, MisfitError, StorageError.
    """

    def attempt() -> None:
        now_ms = clock_ms()
        log.commit(decide(log.manifest, now_ms), now_ms)

    try:
        attempt()
    except MisfitError:
        log.confirm_leadership()
        attempt()
