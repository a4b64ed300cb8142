"""The files of a journal: the header and the document of a commit or a checkpoint.

Owns: the header's fields, and which records are in a file.  Must not know where files are kept, nor
what records mean.
"""

from dataclasses import dataclass

from sparklog.commit_log import decode_document, encode_document
from sparklog.metadata import Record, from_json

LOG_NAME = "journal"


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitHeader:
    """The header of a commit.  ``nonce`` tells a controller's own commit from another's.

    ``version`` is the number of the commit; ``time_ms`` is in milliseconds since the epoch.
    """

    version: int
    controller_epoch: int
    nonce: str
    time_ms: int


def encode_file(header: CommitHeader, encoded_records: bytes) -> bytes:
    """Encode a file.  Raises StorageError if it would exceed ``FILE_BYTES_MAX``."""
    return encode_document(header, encoded_records, log_name=LOG_NAME)


def decode_file(data: bytes) -> tuple[CommitHeader, tuple[Record, ...]]:
    """Decode a file.  Raises DecodeError that tells what is wrong with it."""
    return decode_document(data, CommitHeader, from_json)
