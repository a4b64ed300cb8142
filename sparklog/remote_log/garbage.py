"""The deletion of garbage: the objects of segments that have left their manifest.

Owns: which garbage a call tries to delete, and when it tries again what the store has refused.
Must not know who leads a partition, or why a segment became garbage.

A store may refuse single objects, for instance under a lock or a retention rule.  Their segments
stay garbage in the manifest and rest for a while, so that they do not take the turn of others.
"""

from collections.abc import Collection
from typing import Final, NamedTuple

from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest, Records
from sparklog.remote_log.open_manifests import ClockMs, OpenManifests, RemotePartition, commit
from sparklog.storage_backends.base import RefusedDeletesError, StorageBackend

#: Most segments whose objects one call deletes.
GARBAGE_SEGMENTS_MAX: Final = 1000
#: Milliseconds until the objects of a segment are tried again that the store refused to delete.
REFUSED_REST_MS: Final = 3_600_000


class CollectedGarbage(NamedTuple):
    """The number of segments whose objects were deleted.

    ``error`` names the first object that the store refused to delete in this call; "" without any.
    """

    segments: int
    error: str = ""


class GarbageCollector:
    """The garbage of the partitions in one store.  The calls for one partition follow one another.

    Args:
        store: the store.
        manifests: the manifests that this process leads.
    """

    def __init__(self, store: StorageBackend, manifests: OpenManifests) -> None:
        self._store = store
        self._manifests = manifests
        #: When the store refused to delete the objects of a segment, by segment id.
        self._refused_ms: dict[RemotePartition, dict[str, int]] = {}

    def collect(
        self, partition: RemotePartition, delay_ms: int, now_ms: int, clock_ms: ClockMs
    ) -> CollectedGarbage:
        """See ``RemoteLogService.collect_garbage``."""
        with self._manifests.leading(partition) as manifest_log:
            due = self._due(partition, manifest_log.manifest, delay_ms, now_ms)
        if not due or self._store.exists(names.lost_file(*partition)):
            return CollectedGarbage(0)
        # Garbage stays garbage, so readers need not wait for this.
        folder = names.segments_folder(*partition)
        paths = {path: each for each in due for path in names.objects(folder, each)}
        refused: Collection[str] = ()
        error = ""
        try:
            self._store.delete_many(paths)
        except RefusedDeletesError as refusal:
            refused = {paths[path] for path in refusal.paths}
            self._refused_ms.setdefault(partition, {}).update(dict.fromkeys(refused, now_ms))
            error = str(refusal)
        deleted = [each for each in due if each not in refused]

        def decide(manifest: Manifest, _: int) -> Records:
            garbage = set(manifest.garbage_ids)
            left = [each for each in deleted if each in garbage]
            return manifest.delete_objects(left) if left else ()

        with self._manifests.leading(partition) as manifest_log:
            commit(manifest_log, decide, clock_ms)
        return CollectedGarbage(len(deleted), error)

    def _due(
        self, partition: RemotePartition, manifest: Manifest, delay_ms: int, now_ms: int
    ) -> list[str]:
        """The garbage that this call tries to delete, the oldest first."""
        due = manifest.garbage_due(now_ms, delay_ms)
        resting = {
            each: at_ms
            for each, at_ms in self._refused_ms.pop(partition, {}).items()
            if 0 <= now_ms - at_ms < REFUSED_REST_MS
        }
        if resting:
            self._refused_ms[partition] = resting
        return [each for each in due if each not in resting][:GARBAGE_SEGMENTS_MAX]

    def forget(self, partition: RemotePartition) -> None:
        """Forget what the store has refused: this process does not lead the partition any more."""
        self._refused_ms.pop(partition, None)
