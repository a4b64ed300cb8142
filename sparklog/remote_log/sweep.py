"""What nothing refers to in a store, and its deletion.

Owns: which objects of a partition are orphans, and the end of the folders of deleted topics.  Must
not know who leads a partition, or which topics were deleted.

A copy that fails, or is made twice, leaves objects that no manifest names.  A topic that is deleted
leaves its whole folder.  The folder goes because the journal says that the topic was deleted, and
never because the topic is not known: the journal may be an old copy.  Queries that run may still
read the objects, so the folder stays for a while.  A tombstone in the folder has the time since
when.

Unfinished uploads to the folders of live partitions are left alone: a store does not tell their
age.
"""

import json
from collections.abc import Collection, Iterable
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.commit_log import checkpoint_numbers, commit_numbers
from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest
from sparklog.storage_backends.base import FileHalf, StorageBackend

#: Orphaned copies that are deleted whatever the manifest has; more than that must be fewer than
#: its segments.
ORPHANS_MAX: Final = 100


class SweptOrphans(NamedTuple):
    """The objects that were deleted, and the names that are not ours and were left alone.

    ``doubtful`` are the objects that were left because they are too many: ``are_doubtful``.
    """

    deleted: int
    unknown: int
    doubtful: int = 0


class SweptTopic(NamedTuple):
    """What a call of ``sweep_topic`` has found and done.

    Args:
        is_due: the topic was deleted for long enough; otherwise nothing was done.
        is_finished: the store has nothing of ours any more in the folder of the topic.
        objects: the deleted objects, the tombstone not counted.
    """

    is_due: bool
    is_finished: bool
    objects: int


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


def are_doubtful(orphans: Collection[str], manifest: Manifest) -> bool:
    """Whether there are so many orphans that the manifest has probably lost commits.

    A manifest without segments may be lost as a whole, and then the copies are all that is left.
    """
    copies = len({names.segment_of(each) for each in orphans})
    live = manifest.segment_count
    return copies > (max(ORPHANS_MAX, live) if live else 0)


def sweep_topic(
    store: StorageBackend, topic_id: UUID, now_ms: int, age_ms: int, objects_max: int
) -> SweptTopic:
    """Delete at most ``objects_max`` objects of a deleted topic, and remember that it was deleted.

    Nothing is deleted within ``age_ms`` after the first call for the topic.  The caller knows that
    the topic was deleted, and repeats the call until it is finished.  Raises StorageError: a later
    call goes on.
    """
    since_ms = _deleted_since(store, topic_id, now_ms)
    if since_ms > now_ms - age_ms:
        return SweptTopic(is_due=False, is_finished=False, objects=0)
    folders = _folders(store, topic_id)
    paths = [
        f"{folder}/{name}" for folder in folders for name in store.list(folder) if _is_ours(name)
    ]
    store.delete_many(paths[:objects_max])
    if len(paths) > objects_max:
        return SweptTopic(is_due=True, is_finished=False, objects=objects_max)
    for folder in folders:
        store.remove_leftovers(folder)  # nobody copies to a deleted topic
    # The tombstone goes last: until then the next call goes on at once.
    store.delete(names.tombstone_file(topic_id))
    if isinstance(store, FileHalf):
        _remove_empty(store, str(topic_id))  # those of an object store go with their objects
    return SweptTopic(is_due=True, is_finished=True, objects=len(paths))


def unknown_topics(store: StorageBackend, known_topic_ids: Collection[UUID]) -> list[UUID]:
    """The topics that have a folder and are not known.  They are never deleted: see the module."""
    found = (names.topic_of(name) for name in store.list(""))
    return sorted(each for each in found if each is not None and each not in known_topic_ids)


def _deleted_since(store: StorageBackend, topic_id: UUID, now_ms: int) -> int:
    """The time in a topic's tombstone; ``now_ms`` if there was none, and there is one now."""
    path = names.tombstone_file(topic_id)
    document = json.dumps({"deleted_since_ms": now_ms}).encode()
    if store.put_if_absent(path, document):
        return now_ms
    try:
        since_ms = json.loads(store.read(path))["deleted_since_ms"]
    except (ValueError, LookupError, TypeError):
        since_ms = None
    # One that is damaged, or of a clock that was ahead, begins the time again.
    if type(since_ms) is not int or since_ms > now_ms:
        store.put(path, document)
        return now_ms
    return since_ms


def _folders(store: StorageBackend, topic_id: UUID) -> list[str]:
    """The folders with the segments and the manifests of a topic's partitions."""
    found = (names.partition_of(name) for name in store.list(str(topic_id)))
    return [
        folder(topic_id, partition)
        for partition in found
        if partition is not None
        for folder in (names.segments_folder, names.manifest_folder)
    ]


def _is_ours(name: str) -> bool:
    is_of_manifest = bool(commit_numbers([name]) or checkpoint_numbers([name]))
    return is_of_manifest or names.segment_of(name) is not None


def _remove_empty(store: FileHalf, folder: str) -> None:
    """Remove the folder, and those in it, that have no files."""
    for name in store.list(folder):
        if store.is_folder(f"{folder}/{name}"):
            _remove_empty(store, f"{folder}/{name}")
    if not store.list(folder):
        store.remove_folder(folder)
