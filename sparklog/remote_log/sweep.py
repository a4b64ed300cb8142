"""What nothing refers to in a store, and its deletion.

Owns: which objects of a partition are orphans, and the end of the folders of deleted topics.  Must
not know who leads a partition, or which topics were deleted.

A copy that fails, or is made twice, leaves objects that no manifest names.  A topic that is deleted
leaves its whole folder.  The folder goes because the journal says that the topic was deleted, and
never because the topic is not known: the journal may be an old copy.

Unfinished uploads of live partitions are left alone in a bucket, which has a rule for them.  In a
folder they are temporary files with an age, and go as orphans do.
"""

from collections.abc import Collection, Iterable, Sequence
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.commit_log import is_commit_log_file
from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest
from sparklog.storage_backends.base import FileHalf, RefusedDeletesError, StorageBackend

#: What listing the folders of a partition counts for, in deleted objects.
_LISTING: Final = 10


class SweptOrphans(NamedTuple):
    """The objects that were deleted, and the names that are not ours and were left alone.

    ``error`` names the first object that the store refused to delete; "" without any.
    """

    deleted: int
    unknown: int
    error: str = ""


class SweptTopic(NamedTuple):
    """The objects that a call of ``sweep_topic`` has deleted, and whether none of ours is left."""

    objects: int
    is_finished: bool


def find_orphans(
    object_names: Iterable[str], manifest: Manifest, copied_until_ms: int
) -> tuple[list[str], int]:
    """The orphans in a partition's folder of segments whose copy began at ``copied_until_ms`` or
    earlier, and how many names are not ours."""
    garbage = set(manifest.garbage_ids)
    orphans: list[str] = []
    unknown = 0
    for name in object_names:
        segment = names.segment_of(name)
        if segment is None:
            unknown += 1
            continue
        copied_ms = names.copied_at_ms(segment)
        assert copied_ms is not None, "the name is that of a segment"
        if copied_ms > copied_until_ms or segment in garbage or manifest.is_live(segment):
            continue
        orphans.append(name)
    return orphans, unknown


def delete_orphans(store: StorageBackend, folder: str, orphans: Iterable[str]) -> tuple[int, str]:
    """Delete orphans; return how many are gone, and ``SweptOrphans.error``."""
    deleted, refusal = _delete(store, [f"{folder}/{name}" for name in orphans])
    return deleted, "" if refusal is None else str(refusal)


def sweep_topic(store: StorageBackend, topic_id: UUID, objects_max: int) -> SweptTopic:
    """Delete about ``objects_max`` objects of a deleted topic.

    The caller knows that the topic was deleted, and repeats the call until it is finished.

    Raises:
        RefusedDeletesError: the store refused to delete some objects; most of the others are gone.
        StorageError: also; a later call goes on.
    """
    partitions = [names.partition_of(name) for name in store.list(str(topic_id))]
    objects = refused = spent = 0
    first_refusal: RefusedDeletesError | None = None
    for partition in partitions:
        if partition is None:
            continue
        if objects and spent >= objects_max:
            return SweptTopic(objects, is_finished=False)
        paths = _paths(store, topic_id, partition)
        now = paths[: objects_max - spent if objects else objects_max]
        deleted, refusal = _delete(store, now)
        objects += deleted
        refused += len(now) - deleted
        spent += deleted + _LISTING
        # A repeated call tries the refused objects again, so it is to delete as many others.
        if len(now) < len(paths) and 2 * deleted >= len(now):
            return SweptTopic(objects, is_finished=False)
        if refusal is None:
            _remove_folders(store, topic_id, partition)
            continue
        first_refusal = first_refusal or refusal
        if refused >= objects_max:
            break
    if first_refusal is not None:
        raise first_refusal
    if isinstance(store, FileHalf):
        _remove_empty(store, str(topic_id))
    return SweptTopic(objects, is_finished=True)


def _delete(store: StorageBackend, paths: Sequence[str]) -> tuple[int, RefusedDeletesError | None]:
    """Delete files; return how many are gone, and the error for those that the store keeps."""
    try:
        store.delete_many(paths)
    except RefusedDeletesError as refusal:
        return len(paths) - len(refusal.paths), refusal
    return len(paths), None


def _paths(store: StorageBackend, topic_id: UUID, partition: int) -> list[str]:
    """The objects of a partition that are ours."""
    manifest = names.manifest_folder(topic_id, partition)
    segments = names.segments_folder(topic_id, partition)
    commits = store.list(manifest)
    found = [f"{manifest}/{name}" for name in commits if is_commit_log_file(name)]
    found += [f"{segments}/{name}" for name in store.list(segments) if names.segment_of(name)]
    lost = names.lost_file(topic_id, partition)
    return [*found, lost] if store.exists(lost) else found


def _remove_folders(store: StorageBackend, topic_id: UUID, partition: int) -> None:
    """Those of an object store are gone with their objects."""
    for folder in (names.segments_folder, names.manifest_folder):
        store.remove_leftovers(folder(topic_id, partition))  # nobody copies to a deleted topic
    if isinstance(store, FileHalf):
        _remove_empty(store, names.partition_folder(topic_id, partition))


def unknown_topics(store: StorageBackend, known_topic_ids: Collection[UUID]) -> list[UUID]:
    """The topics that have a folder and are not known.  They are never deleted: see the module."""
    found = (names.topic_of(name) for name in store.list(""))
    return sorted(each for each in found if each is not None and each not in known_topic_ids)


def _remove_empty(store: FileHalf, folder: str) -> None:
    """Remove the folder, and those in it, that have no files."""
    for name in store.list(folder):
        if store.is_folder(f"{folder}/{name}"):
            _remove_empty(store, f"{folder}/{name}")
    if not store.list(folder):
        store.remove_folder(folder)
