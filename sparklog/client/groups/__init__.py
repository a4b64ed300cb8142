"""Consumer groups: members that share the partitions of topics and commit offsets.

Owns: the consumer protocol and the assignors, the state machine of a member (``membership``, pure),
the requests to a group's coordinator, committed offsets, and the consumers that applications use:
``Consumer`` and ``AsyncConsumer``.  Must not know how a coordinator works inside, nor Spark.
Records and positions of assigned partitions are those of ``client.consumer``.
"""

from sparklog.client.groups.async_consumer import AsyncConsumer
from sparklog.client.groups.blocking_consumer import Consumer
from sparklog.client.groups.consumer_protocol import PROTOCOL_TYPE as CONSUMER_PROTOCOL_TYPE
from sparklog.client.groups.consumer_protocol import decode_assignment
from sparklog.client.groups.offset_requests import NAMES_UNTIL as OFFSETS_NAMES_UNTIL
from sparklog.client.groups.offset_requests import (
    GroupIdentity,
    OffsetAndMetadata,
    commit_request,
    committed_offsets,
)
from sparklog.client.groups.options import GroupConsumerOptions
from sparklog.client.groups.rebalance_listener import RebalanceListener

__all__ = [
    "CONSUMER_PROTOCOL_TYPE",
    "OFFSETS_NAMES_UNTIL",
    "AsyncConsumer",
    "Consumer",
    "GroupConsumerOptions",
    "GroupIdentity",
    "OffsetAndMetadata",
    "RebalanceListener",
    "commit_request",
    "committed_offsets",
    "decode_assignment",
]
