"""Fields that sparklog adds to Kafka's messages, for its own clients.

Owns: their structs, names and tags.  Must not know how messages are generated.

They are tagged (KIP-482) and int64, and -1 where the value is not known.  Kafka numbers its tags
from 0, sparklog from 10000.  Clients should skip tags that they do not know, but not all of them
do, so the fields go to ``RequestContext.own_client`` only.
"""

from typing import Final, NamedTuple


class OwnField(NamedTuple):
    """``doc`` becomes the comment of the field in the generated message."""

    name: str
    tag: int
    doc: str


OWN_FIELDS: Final[dict[str, tuple[OwnField, ...]]] = {
    "DescribeLogDirsPartition": (
        OwnField(
            "remote_size",
            10000,
            "Of sparklog, from the leader of a tiered partition: the size of its objects in bytes.",
        ),
        OwnField(
            "remote_copy_lag",
            10001,
            "Of sparklog, likewise: bytes of sealed segments that are to be copied and are not.",
        ),
    )
}
