"""The limits that are no settings: how much a node takes from a peer or a file before it refuses.

Owns: the list for docs/settings.md.  Must not know how a limit is enforced: the values come from
the modules that enforce them.
"""

from dataclasses import dataclass

from sparklog.client.connection import DEFAULT_FRAME_BYTES_MAX
from sparklog.driver.control_plane import (
    BROKERS_MAX,
    CLUSTER_PARTITIONS_MAX,
    FILE_BYTES_MAX,
    REQUEST_PARTITIONS_MAX,
    TOPIC_PARTITIONS_MAX,
)
from sparklog.executors.groups import (
    PENDING_MEMBERS_MAX,
    RECORD_MARGIN_BYTES,
    REMOVED_AT_ONCE,
)
from sparklog.executors.handlers.delayed_fetch import WAIT_MS_MAX
from sparklog.executors.log import SEARCH_BYTES_MAX
from sparklog.executors.replica_manager import (
    BUCKET_SEARCHES_AT_ONCE,
    LONG_PARTS_AT_ONCE,
    QUEUED_BYTES_MAX,
    SEARCHES_AT_ONCE,
    SEARCHES_MAX,
)
from sparklog.metadata.topic_names import NAME_LENGTH_MAX
from sparklog.slices import ITEMS_AT_ONCE
from sparklog.transport.channel import UNSENT_BYTES_MAX
from sparklog.transport.over_limit import OVER_LIMIT_CONNECTIONS_MAX
from sparklog.transport.queued_requests import FREE_BYTES
from sparklog.transport.server_connection import PARKED_REPLIES_MAX
from sparklog.transport.slice_scheduler import SLICED_REQUESTS_MAX
from sparklog.transport.unsent_responses import ALL_UNSENT_BYTES_MAX
from sparklog.wire.protocol.codec import MAX_REQUEST_ITEMS
from sparklog.wire.protocol.primitives import MAX_STRING_BYTES
from sparklog.wire.records.compression import MAX_UNCOMPRESSED_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """One limit.  ``beyond`` describes what happens to an item beyond the limit."""

    name: str
    value: int
    unit: str
    beyond: str


LIMITS: tuple[Limit, ...] = (
    Limit(
        name="items in all arrays of one request",
        value=MAX_REQUEST_ITEMS,
        unit="items",
        beyond="the connection is closed before objects are made of them",
    ),
    Limit(
        name="items of a request that are decoded, handled and answered at once",
        value=ITEMS_AT_ONCE,
        unit="items",
        beyond="the request is worked on in slices, by turns with those of other connections",
    ),
    Limit(
        name="long requests of clients that a node works on by turns",
        value=SLICED_REQUESTS_MAX,
        unit="requests",
        beyond="it waits, undecoded, until another one is done",
    ),
    Limit(
        name="partitions that one CreateTopics request may create",
        value=REQUEST_PARTITIONS_MAX,
        unit="partitions",
        beyond="POLICY_VIOLATION",
    ),
    Limit(
        name="a string of the older message formats",
        value=MAX_STRING_BYTES,
        unit="bytes",
        beyond="cannot be told in its two length bytes; newer formats end with the frame",
    ),
    Limit(
        name="bytes of an unfinished request that are free",
        value=FREE_BYTES,
        unit="bytes",
        beyond="the request counts for queued.max.request.bytes, and waits when that is used up",
    ),
    Limit(
        name="an answer, at a client of this library",
        value=DEFAULT_FRAME_BYTES_MAX,
        unit="bytes",
        beyond="the client closes the connection",
    ),
    Limit(
        name="one batch, decompressed",
        value=MAX_UNCOMPRESSED_BYTES,
        unit="bytes",
        beyond="the reader refuses the batch",
    ),
    Limit(
        name="batches whose headers mislead one lookup by timestamp, decompressed",
        value=SEARCH_BYTES_MAX,
        unit="bytes",
        beyond="no further batch is looked through; the answer is a lower bound: the first offset "
        "of the next batch that may have such a record",
    ),
    Limit(
        name="lookups by timestamp that decode at once",
        value=SEARCHES_AT_ONCE,
        unit="lookups",
        beyond="a lookup waits, at a broker and behind those of its own connection",
    ),
    Limit(
        name="lookups by timestamp at once in a batch of more than 16 MiB, decompressed",
        value=LONG_PARTS_AT_ONCE,
        unit="lookup",
        beyond="a lookup waits, at a broker",
    ),
    Limit(
        name="lookups by timestamp in the bucket at once",
        value=BUCKET_SEARCHES_AT_ONCE,
        unit="lookups",
        beyond="a lookup waits, at a broker and behind those of its own connection",
    ),
    Limit(
        name="lookups by timestamp that run or wait at a broker",
        value=SEARCHES_MAX,
        unit="lookups",
        beyond="REQUEST_TIMED_OUT",
    ),
    Limit(
        name="batches that wait for sparklog.validate.batches=records at a broker",
        value=QUEUED_BYTES_MAX,
        unit="bytes",
        beyond="REQUEST_TIMED_OUT, and the producer sends the batch again",
    ),
    Limit(
        name="the name of a topic",
        value=NAME_LENGTH_MAX,
        unit="characters",
        beyond="INVALID_TOPIC_EXCEPTION",
    ),
    Limit(
        name="partitions of a topic",
        value=TOPIC_PARTITIONS_MAX,
        unit="partitions",
        beyond="INVALID_PARTITIONS",
    ),
    Limit(
        name="partitions of a cluster",
        value=CLUSTER_PARTITIONS_MAX,
        unit="partitions",
        beyond="INVALID_PARTITIONS",
    ),
    Limit(name="brokers of a cluster", value=BROKERS_MAX, unit="brokers", beyond="INVALID_REQUEST"),
    Limit(
        name="one commit or checkpoint of the journal",
        value=FILE_BYTES_MAX,
        unit="bytes",
        beyond="it is refused with KAFKA_STORAGE_ERROR, and a file that large is damaged",
    ),
    Limit(
        name="answers that one connection may wait for",
        value=PARKED_REPLIES_MAX,
        unit="answers",
        beyond="the connection is not read from until some have left",
    ),
    Limit(
        name="bytes of answers that one client has not taken",
        value=UNSENT_BYTES_MAX,
        unit="bytes",
        beyond="the connection is not read from until it takes them",
    ),
    Limit(
        name="bytes of answers in memory that all clients have not taken",
        value=ALL_UNSENT_BYTES_MAX,
        unit="bytes",
        beyond="clients that take nothing for seconds are closed; at twice that, the largest",
    ),
    Limit(
        name="connections over max.connections that may prove to be a member's",
        value=OVER_LIMIT_CONNECTIONS_MAX,
        unit="connections",
        beyond="the one that waits longest is closed",
    ),
    Limit(
        name="the wait that one Fetch may ask for",
        value=WAIT_MS_MAX,
        unit="ms",
        beyond="it waits no longer than that",
    ),
    Limit(
        name="members of one group that were given an id and have not joined with it yet",
        value=PENDING_MEMBERS_MAX,
        unit="members",
        beyond="COORDINATOR_NOT_AVAILABLE",
    ),
    Limit(
        name="how much smaller the record of a group stays than message.max.bytes",
        value=RECORD_MARGIN_BYTES,
        unit="bytes",
        beyond="a member with more metadata gets GROUP_MAX_SIZE_REACHED; larger assignments are "
        "refused",
    ),
    Limit(
        name="committed offsets that are removed at once",
        value=REMOVED_AT_ONCE,
        unit="offsets",
        beyond="the rest is removed in further turns, and other requests are decided in between",
    ),
)
