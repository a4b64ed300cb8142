"""What nothing refers to in a store, and its deletion.

Owns: which objects of a partition are orphans, and the end of the folders of deleted topics.  Must
not know who leads a partition, or where the known topics come from.

A copy that fails, or is made twice, leaves objects that no manifest names.  A topic that is deleted
leaves its whole folder.  A broker may have an old image of the cluster, so a folder goes only when
its topic has been unknown for a while.  A tombstone in the folder has the time since when.

Unfinished uploads to the folders of live partitions are left alone: a store does not tell their
age.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple
from uuid import UUID

from sparklog.remote_log import names
from sparklog.remote_log.manifest import Manifest
from sparklog.storage_backends.base import FileHalf, StorageBackend

#: Stands for the time since when a topic is unknown, in place of one.
KEPT: Final = -1
#: What the tombstone of a topic that is kept says.
_KEEP: Final = {"keep": True}


class SweptOrphans(NamedTuple):
    """The objects that were deleted, and the names that are not ours and were left alone."""

    deleted: int
    unknown: int


class SweptTopics(NamedTuple):
    """What a sweep has found and done.

    Args:
        marked: topics that were found to be unknown for the first time.
        waiting: topics that have not been unknown for long enough.
        deleted: topics whose objects were deleted.
        objects: the deleted objects, tombstones not counted.
        unknown: names in the folders of deleted topics that are not ours and were left alone.
        kept: unknown topics that ``keep_unknown_topics`` keeps.
    """

    marked: int
    waiting: int
    deleted: int
    objects: int
    unknown: int
    kept: int = 0


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


def sweep_topics(
    store: StorageBackend, known_topic_ids: Collection[UUID], now_ms: int, age_ms: int
) -> SweptTopics:
    """Delete everything of topics that have been unknown for ``age_ms``; see the module.

    Raises StorageError: a later call goes on.
    """
    found = _topics_in(store)
    store.delete_many(names.tombstone_file(each) for each in found if each in known_topic_ids)
    marked = waiting = deleted = objects = unknown = kept = 0
    for topic_id in found:
        if topic_id in known_topic_ids:
            continue
        since_ms = _unknown_since(store, topic_id, now_ms)
        if since_ms is None:
            marked += 1
        elif since_ms == KEPT:
            kept += 1
        elif since_ms > now_ms - age_ms:
            waiting += 1
        else:
            contents = _contents(store, topic_id)
            _delete_topic(store, topic_id, contents)
            deleted += 1
            objects += len(contents.paths)
            unknown += contents.unknown
    return SweptTopics(marked, waiting, deleted, objects, unknown, kept)


def keep_unknown_topics(store: StorageBackend, known_topic_ids: Collection[UUID]) -> list[UUID]:
    """Never delete the topics that are unknown now, unless they become known again; return them.

    A cluster that was restored from an old copy of its journal does not know the newest topics.
    """
    kept = sorted(each for each in _topics_in(store) if each not in known_topic_ids)
    for topic_id in kept:
        store.put(names.tombstone_file(topic_id), json.dumps(_KEEP).encode())
    return kept


def _topics_in(store: StorageBackend) -> list[UUID]:
    return [each for name in store.list("") if (each := names.topic_of(name)) is not None]


def _unknown_since(store: StorageBackend, topic_id: UUID, now_ms: int) -> int | None:
    """The time in a topic's tombstone; None if there was none, and there is one from now on.

    KEPT if the tombstone says that the topic is to be kept.
    """
    path = names.tombstone_file(topic_id)
    document = json.dumps({"unknown_since_ms": now_ms}).encode()
    if store.put_if_absent(path, document):
        return None
    try:
        told = json.loads(store.read(path))
        since_ms = KEPT if "keep" in told else told["unknown_since_ms"]
    except (ValueError, LookupError, TypeError):
        since_ms = None
    if type(since_ms) is not int:
        store.put(path, document)
        return None
    return since_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class _TopicContents:
    """The folders of partitions, the paths of the files in them, and how many others there are."""

    folders: list[str]
    paths: list[str]
    unknown: int


def _contents(store: StorageBackend, topic_id: UUID) -> _TopicContents:
    folders: list[str] = []
    unknown = 0
    for name in store.list(str(topic_id)):
        partition = names.partition_of(name)
        if partition is not None:
            ours = (
                names.segments_folder(topic_id, partition),
                names.manifest_folder(topic_id, partition),
            )
            folders += ours
            inside = store.list(names.partition_folder(topic_id, partition))
            unknown += len(set(inside) - {each.rpartition("/")[2] for each in ours})
        elif name != names.TOMBSTONE_FILE:
            unknown += 1
    paths = [f"{folder}/{name}" for folder in folders for name in store.list(folder)]
    return _TopicContents(folders=folders, paths=paths, unknown=unknown)


def _delete_topic(store: StorageBackend, topic_id: UUID, contents: _TopicContents) -> None:
    """The tombstone goes last: until then the next sweep goes on at once."""
    for folder in contents.folders:
        store.remove_leftovers(folder)  # nobody copies to an unknown topic
    store.delete_many(contents.paths)
    if contents.unknown:
        return  # the tombstone stays with the rest, so that it is counted again
    store.delete(names.tombstone_file(topic_id))
    if isinstance(store, FileHalf):
        store.remove_folder(str(topic_id))  # those of an object store go with their objects
