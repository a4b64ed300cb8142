"""The names of the objects of a remote log.

Owns: where each object lies below the root of the store.  Must not know what is in it.

``cluster.json`` names the cluster that the store belongs to.  A partition has the folder
``<topic id>/<partition>``, with the manifest in ``manifest`` and the objects of segments in
``segments``.  The id of a segment begins with its base offset and the leader epoch of the broker
that has copied it, and ends with the time of the copy and a random part.  So an orphan, which no
manifest names, tells its age.
"""

import re
from typing import Final
from uuid import UUID

CLUSTER_FILE: Final = "cluster.json"
LOG_SUFFIX: Final = ".log"
INDEXES_SUFFIX: Final = ".indexes"

_SEGMENT_ID: Final = re.compile(r"(\d{20})-(\d{10})-([0-9a-f]{12})-[0-9a-f]{16}", re.ASCII)


def partition_folder(topic_id: UUID, partition: int) -> str:
    return f"{topic_id}/{partition}"


def manifest_folder(topic_id: UUID, partition: int) -> str:
    return f"{partition_folder(topic_id, partition)}/manifest"


def segments_folder(topic_id: UUID, partition: int) -> str:
    return f"{partition_folder(topic_id, partition)}/segments"


def segment_id(base_offset: int, leader_epoch: int, now_ms: int, nonce: bytes) -> str:
    """The id of a new copy of a segment; ``nonce`` has eight random bytes."""
    assert len(nonce) == 8
    return f"{base_offset:020d}-{leader_epoch:010d}-{now_ms:012x}-{nonce.hex()}"


def copied_at_ms(object_name: str) -> int | None:
    """When the copy began that wrote an object; None for a name that is not ours."""
    found = _SEGMENT_ID.fullmatch(object_name.partition(".")[0])
    return None if found is None else int(found[3], 16)


def base_offset(segment: str) -> int | None:
    """The base offset in the id of a segment; None for an id that is not ours."""
    found = _SEGMENT_ID.fullmatch(segment)
    return None if found is None else int(found[1])


def log_object(folder: str, segment: str) -> str:
    """The path of a log object; ``folder`` is that of the partition's segments."""
    return f"{folder}/{segment}{LOG_SUFFIX}"


def indexes_object(folder: str, segment: str) -> str:
    return f"{folder}/{segment}{INDEXES_SUFFIX}"
