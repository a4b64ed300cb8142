"""A log of numbered commits, each of which is one file that exactly one of several writers creates.

Owns: put-if-absent with reading back, loading and catching up, checkpoints, pruning, and the files'
names and documents.  Must not know what the records mean, nor clocks, threads or event loops.
"""

from sparklog.commit_log.commit_log import COMMITS_PER_READ, KEEP_MS, CommitLog
from sparklog.commit_log.documents import (
    FILE_BYTES_MAX,
    Header,
    decode_document,
    encode_document,
)
from sparklog.commit_log.file_names import (
    checkpoint_name,
    checkpoint_numbers,
    commit_name,
    commit_numbers,
    is_commit_log_file,
)
from sparklog.commit_log.kind import CommitLogError, CommitLogKind, CommitState

__all__ = [
    "COMMITS_PER_READ",
    "FILE_BYTES_MAX",
    "KEEP_MS",
    "CommitLog",
    "CommitLogError",
    "CommitLogKind",
    "CommitState",
    "Header",
    "checkpoint_name",
    "checkpoint_numbers",
    "commit_name",
    "commit_numbers",
    "decode_document",
    "encode_document",
    "is_commit_log_file",
]
