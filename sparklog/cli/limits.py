"""The limits that are no settings: what a node takes from a peer or a file before it refuses.

Owns: the list, for people.  The values are those of the modules that enforce them.
"""

from dataclasses import dataclass

from sparklog.client.connection import DEFAULT_FRAME_BYTES_MAX
from sparklog.driver.controller.assignments import CLUSTER_PARTITIONS_MAX, TOPIC_PARTITIONS_MAX
from sparklog.driver.controller.brokers import BROKERS_MAX
from sparklog.driver.journal import FILE_BYTES_MAX
from sparklog.executors.handlers.fetch import WAIT_MS_MAX
from sparklog.metadata.topic_names import NAME_LENGTH_MAX
from sparklog.transport.channel import UNSENT_BYTES_MAX
from sparklog.transport.server import DOOR_CONNECTIONS_MAX, PARKED_REPLIES_MAX
from sparklog.wire.codec import MAX_REQUEST_ITEMS
from sparklog.wire.compression import MAX_UNCOMPRESSED_BYTES
from sparklog.wire.frames import TRUSTED_BYTES
from sparklog.wire.primitives import MAX_STRING_BYTES


@dataclass(frozen=True, slots=True, kw_only=True)
class Limit:
    """``beyond`` says what happens to one more."""

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
        name="a string of the older message formats",
        value=MAX_STRING_BYTES,
        unit="bytes",
        beyond="cannot be told in its two length bytes; newer formats end with the frame",
    ),
    Limit(
        name="memory for a frame that is announced and has not arrived",
        value=TRUSTED_BYTES,
        unit="bytes",
        beyond="more is taken as bytes arrive, up to socket.request.max.bytes",
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
        name="connections over max.connections that may prove to be a member's",
        value=DOOR_CONNECTIONS_MAX,
        unit="connections",
        beyond="the one that waits longest is closed",
    ),
    Limit(
        name="the wait that one Fetch may ask for",
        value=WAIT_MS_MAX,
        unit="ms",
        beyond="it waits no longer than that",
    ),
)
