"""The names of the objects of a remote log.

Owns: where each object lies below the root of the store.  Must not know what is in it.

``cluster.json`` names the cluster that the store belongs to.  A partition has the folder
``<topic id>/<partition>``, with the manifest in ``manifest`` and the objects of segments in
``segments``.  ``lost.json`` is there after a leader has found that the manifest lacks records, and
while it is there, nothing of the partition is deleted.  The id of a segment begins with its base
offset and the leader epoch of the broker that has copied it, and ends with the time of the copy and
a random part.  So an orphan, which no manifest names, tells its age.
"""

import re
from typing import Final
from uuid import UUID

CLUSTER_FILE: Final = "cluster.json"
LOST_FILE: Final = "lost.json"
LOG_SUFFIX: Final = ".log"
INDEXES_SUFFIX: Final = ".indexes"

_SEGMENT_ID: Final = re.compile(r"(\d{20})-(\d{10})-([0-9a-f]{12})-[0-9a-f]{16}", re.ASCII)

_PARTITION: Final = re.compile(r"0|[1-9]\d{0,9}", re.ASCII)


def topic_of(name: str) -> UUID | None:
    """The id of the topic that a folder below the root belongs to; None for other names."""
    try:
        topic_id = UUID(name)
    except ValueError:
        return None
    return topic_id if str(topic_id) == name else None


def partition_of(name: str) -> int | None:
    """The partition that a folder of a topic belongs to; None for other names."""
    return int(name) if _PARTITION.fullmatch(name) else None


def partition_folder(topic_id: UUID, partition: int) -> str:
    return f"{topic_id}/{partition}"


def manifest_folder(topic_id: UUID, partition: int) -> str:
    return f"{partition_folder(topic_id, partition)}/manifest"


def segments_folder(topic_id: UUID, partition: int) -> str:
    return f"{partition_folder(topic_id, partition)}/segments"


def lost_file(topic_id: UUID, partition: int) -> str:
    return f"{partition_folder(topic_id, partition)}/{LOST_FILE}"


def segment_id(base_offset: int, leader_epoch: int, now_ms: int, nonce: bytes) -> str:
    """The id of a new copy of a segment; ``nonce`` has eight random bytes."""
    assert len(nonce) == 8
    return f"{base_offset:020d}-{leader_epoch:010d}-{now_ms:012x}-{nonce.hex()}"


def segment_of(object_name: str) -> str | None:
    """The id of the segment that an object belongs to; None for a name that is not ours."""
    for suffix in (LOG_SUFFIX, INDEXES_SUFFIX):
        segment = object_name.removesuffix(suffix)
        if segment != object_name and _SEGMENT_ID.fullmatch(segment):
            return segment
    return None


def copied_at_ms(object_name: str) -> int | None:
    """When the copy began that wrote an object; None for a name that is not ours."""
    found = _SEGMENT_ID.fullmatch(object_name.partition(".")[0])
    return None if found is None else int(found[3], 16)


def copied_in_epoch(segment: str) -> int | None:
    """The leader epoch of the broker that has copied a segment; None for an id that is not ours."""
    found = _SEGMENT_ID.fullmatch(segment)
    return None if found is None else int(found[2])


def base_offset(segment: str) -> int | None:
    """The base offset in the id of a segment; None for an id that is not ours."""
    found = _SEGMENT_ID.fullmatch(segment)
    return None if found is None else int(found[1])


def objects(folder: str, segment: str) -> tuple[str, str]:
    """The paths of both objects of a segment."""
    return log_object(folder, segment), indexes_object(folder, segment)


def log_object(folder: str, segment: str) -> str:
    """The path of a log object; ``folder`` is that of the partition's segments."""
    return f"{folder}/{segment}{LOG_SUFFIX}"


def indexes_object(folder: str, segment: str) -> str:
    return f"{folder}/{segment}{INDEXES_SUFFIX}"
