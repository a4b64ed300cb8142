"""The ``partition.metadata`` file: the topic that a partition directory belongs to.

Owns: text <-> topic id (``PartitionMetadataFile``, version 0), and the refusal to take one topic's
directory for another's.  Must not know what else is in the directory.
"""

import base64
import binascii
import uuid
from typing import Final

from sparklog.errors import CorruptLogError, DecodeError, ErrorCode, KafkaError
from sparklog.executors.log.names import PARTITION_METADATA
from sparklog.storage_backends.base import FileHalf

METADATA_VERSION: Final = 0


def encode_partition_metadata(topic_id: uuid.UUID) -> bytes:
    """Kafka writes ids as URL-safe base64 without padding."""
    text = base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()
    return f"version: {METADATA_VERSION}\ntopic_id: {text}\n".encode()


def decode_partition_metadata(data: bytes) -> uuid.UUID:
    """The topic id in the text of a file.  Raises DecodeError."""
    fields: dict[str, str] = {}
    for line in data.decode("ascii", errors="replace").splitlines():
        name, _, value = line.partition(":")
        fields[name.strip()] = value.strip()
    if fields.get("version") != str(METADATA_VERSION):
        raise DecodeError(f"partition metadata version {fields.get('version')!r} is not known")
    try:
        return uuid.UUID(bytes=base64.urlsafe_b64decode(fields.get("topic_id", "") + "=="))
    except (binascii.Error, ValueError) as error:
        raise DecodeError(f"topic id {fields.get('topic_id')!r} cannot be read") from error


def claim_partition_dir(
    half: FileHalf, partition_dir: str, wanted: uuid.UUID | None
) -> uuid.UUID | None:
    """The topic id of the directory.  A directory without an id gets the wanted id.

    Raises KafkaError(INCONSISTENT_TOPIC_ID), CorruptLogError.
    """
    path = f"{partition_dir}/{PARTITION_METADATA}"
    if not half.exists(path):
        if wanted is not None:
            half.put(path, encode_partition_metadata(wanted))
        return wanted
    try:
        found = decode_partition_metadata(half.read(path))
    except DecodeError as error:
        raise CorruptLogError(path, 0, str(error)) from error
    if wanted is not None and found != wanted:
        raise KafkaError(
            ErrorCode.INCONSISTENT_TOPIC_ID,
            f"{partition_dir} belongs to topic id {found}, not {wanted}",
        )
    return found
