"""Where sparklog's answers are meant to differ from Kafka's, each with its reason.

Owns: the table.  A test names the deviations that it expects; one that does not show fails it.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from sparklog.wire.records.batch import batch_size
from tests.peers.comparison import MISSING, Difference

ANY: Any = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class Deviation:
    """``path`` is a regular expression; ``kafka`` and ``ours`` are the values, or ANY."""

    path: str
    reason: str
    kafka: Any = ANY
    ours: Any = ANY
    agree: Callable[[Any, Any], bool] = lambda _kafka, _ours: True

    def covers(self, difference: Difference) -> bool:
        return (
            re.fullmatch(self.path, difference.path) is not None
            and (self.kafka is ANY or self.kafka == difference.kafka)
            and (self.ours is ANY or self.ours == difference.ours)
            and self.agree(difference.kafka, difference.ours)
        )


def whole_batches(records: bytes) -> bytes:
    end = 0
    while (size := batch_size(records, end)) is not None and end + size <= len(records):
        end += size
    return records[:end]


# -- the cluster

NODE_ZERO = Deviation(
    path=r"brokers(\[0\])?",
    kafka=MISSING,
    reason="the control plane is node 0 and listed: librdkafka refuses a coordinator that is not",
)
CONTROLLER_ID = Deviation(
    path="controller_id",
    kafka=1,
    ours=0,
    reason="the control plane is the controller, and node 0",
)
OTHER_CONTROLLER = Deviation(
    path="controller_id",
    ours=0,
    reason="the control plane is the controller; Kafka's brokers name one of themselves instead",
)
FEWER_APIS = Deviation(
    path=r"api_keys\[\d+\]",
    ours=MISSING,
    reason="groups of KIP-848, access rules, quotas and KRaft are not served (yet)",
)
CONTROLLERS_API = Deviation(
    path=r"api_keys\[56\]",
    kafka=MISSING,
    reason="node 0 is the controller, to which leaders propose in-sync replicas",
)
NO_FEATURES = Deviation(
    path=r"(supported_features|finalized_features)(\[.*\].*|_epoch)?",
    reason="features are versions of KRaft's metadata and of coordinators; of these only "
    "transaction.version means something here",
)
KAFKA_BREAKS = Deviation(
    path=r".*error_code",
    kafka=-1,
    reason="Kafka runs into an exception of its own; we name what is wrong with the request",
)

NO_MORE_PAGES = Deviation(
    path=r"topics",
    ours=[],
    reason="a page behind all topics is empty: the last of them may have been deleted meanwhile",
)

# -- replicas

ONCE = Deviation(
    path=r"replica_election_results\[.*\]\.partition_result\[1\]",
    ours=MISSING,
    reason="what is named twice is answered once",
)
LAST_LEADER = Deviation(
    path=r"topics\[.*\]\.partitions\[.*\]\.last_known_elr",
    ours=[],
    reason="who was complete last is said of replicas that are not eligible any more; Kafka says "
    "it of an eligible one too",
)
NAMED_TWICE = Deviation(
    path=r"responses\[.*\]\.partitions\[.*\](\.error_code)?",
    reason="what is asked for twice, in two ways, is refused and answered once",
)
UNKNOWN_ELECTION = Deviation(
    path="error_code",
    kafka=0,
    ours=42,
    reason="an election type that does not exist is refused, though it is asked for no partition",
)

# -- settings

FEWER_SETTINGS = Deviation(
    path=r"results\[.*\]\.configs\[.*\]",
    ours=MISSING,
    reason="settings without a meaning here are not offered",
)
MIN_INSYNC_DEFAULT = Deviation(
    path=r"results\[.*\]\.configs(\[min\.insync\.replicas\].*)?",
    reason="Kafka writes this default into the cluster's settings when it is formatted (KIP-966)",
)
UNKNOWN_SETTING = Deviation(
    path=r"responses\[.*\]\.error_code",
    kafka=0,
    ours=40,
    reason="a setting that does not exist is a typing error, also where it is deleted",
)
BROKER_REFUSALS = Deviation(
    path=r"responses\[.*\]\.error_code",
    kafka=42,
    ours=40,
    reason="a bad setting is INVALID_CONFIG for brokers as it is for topics",
)
OWN_DEFAULTS = Deviation(
    path=r"results\[.*\]\.configs\[socket\..*\](\.synonyms\[.*\])?\.value",
    reason="the system sizes buffers of sockets itself, and its longest backlog is taken",
)
BOUNDED_REQUESTS = Deviation(
    path=r"results\[.*\]\.configs\[queued\.max\.request\.bytes\](\.synonyms\[.*\])?\.value",
    kafka="-1",
    ours="268435456",
    reason="the memory of requests that arrive is bounded unless an operator says otherwise",
)
OWN_SETTINGS = Deviation(
    path=r"results\[.*\]\.configs\[.*\]",
    kafka=MISSING,
    reason="settings of ours that Kafka does not have are listed beside the others",
)
CHANGED_WHILE_RUNNING = Deviation(
    path=r"results\[.*\]\.configs\[remote\.log\.manager\.task\.interval\.ms\]\.read_only",
    kafka=True,
    ours=False,
    reason="a leader reads this interval at every look, so that it can be changed at any time",
)
LISTS_ARE_NOT_EMPTY = Deviation(
    path=r"responses\[.*\]\.error_code",
    kafka=0,
    ours=40,
    reason="what would be left is no policy at all, and deleting the setting says that better",
)

# -- Produce

_OUTCOME = r"responses\[.*\]\.partition_responses\[.*\]\.(error_code|base_offset|log_start_offset)"
TRAILING_BYTES = Deviation(
    path=_OUTCOME,
    reason="bytes behind a batch are somebody's mistake; Kafka drops them and says nothing",
)
STAMPED_BY_CLIENT = Deviation(
    path=_OUTCOME,
    reason="a producer may not claim that the broker's clock stamped its batch",
)
NO_EPOCH = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\..*",
    reason="a producer id without an epoch could never be fenced",
)
CLIENTS_HORIZON = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\.(error_code|base_offset)",
    reason="a client's delete horizon would let compaction drop a tombstone before its time",
)
RECORDS_UNSEEN = Deviation(
    path=_OUTCOME,
    reason="single records are never decoded by a broker: the header answers for them",
)
RECORD_ERRORS = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\.record_errors",
    ours=[],
    reason="single records are never decoded by a broker: the batch is refused as a whole",
)
DUPLICATE_TIME = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\.log_append_time_ms",
    ours=-1,
    reason="Kafka gives a duplicate's CreateTime for the broker's, and clients would believe it",
)
LOG_START = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\.log_start_offset",
    ours=-1,
    reason="where the log starts is said with what is wrong about the log, not about the batch",
)
EMPTY_TOPIC = Deviation(
    path="responses|topics",
    kafka=[],
    reason="a topic that was asked about without partitions is answered without partitions",
)
WITHOUT_PRODUCER = Deviation(
    path=_OUTCOME,
    reason="a transactional batch without a producer id could never be committed or aborted",
)

# -- transactions

KNOWN_ZOMBIE = Deviation(
    path=r"responses\[.*\]\.partition_responses\[.*\]\.log_start_offset",
    kafka=-1,
    reason="a leader that has seen a later epoch refuses the batch itself; Kafka's asks the "
    "coordinator first, whose refusal says nothing of the log",
)
EMPTY_ID_OF_PLAIN_BATCH = Deviation(
    path=_OUTCOME,
    reason="a request with an empty transactional id is refused whatever its batches are",
)
MEMBERS_ADD = Deviation(
    path="error_code|results_by_transaction.*",
    reason="versions from 4 on are for brokers, and only members of the cluster are brokers",
)
MEMBERS_MARK = Deviation(
    path=r"markers\[.*\]\.topics\[.*\]\.partitions\[.*\]\.error_code",
    ours=31,
    reason="only members of the cluster end transactions; Kafka asks its access rules",
)
DESCRIBED_ONCE = Deviation(
    path=r"transaction_states\[1\]",
    ours=MISSING,
    reason="a transactional id that is named twice is described once",
)

# -- Fetch and offsets

WHOLE_BATCHES = Deviation(
    path=r"responses\[.*\]\.partitions\[.*\]\.records",
    agree=lambda kafka, ours: whole_batches(kafka) == ours,
    reason="only whole batches are sent; Kafka cuts at the limit, and clients drop the piece",
)
ABOVE_ALL_EPOCHS = Deviation(
    path=r"responses\[.*\]\.partitions\[.*\]\..*",
    agree=lambda kafka, ours: kafka in (1, -1) and ours in (0, 12),
    reason="a log with an epoch that its leader never had is told where it left the leader's "
    "history; for Kafka its offset is out of range",
)
BELOW_ALL_EPOCHS = Deviation(
    path=r"topics\[.*\]\.partitions\[.*\]\.(leader_epoch|end_offset)",
    ours=-1,
    reason="an epoch below -1 is none: Kafka repeats it, with the log start for its end",
)
DELETED_RECORD = Deviation(
    path=r"topics\[.*\]\.partitions\[.*\]\.(timestamp|offset|leader_epoch)",
    ours=-1,
    reason="Kafka names a record below the log start, which nobody can read any more",
)

# -- compaction

KEPT_BASE_TIMESTAMP = Deviation(
    path=r"\[\d+\]\.base_timestamp",
    reason="records that stay are copied as they are, with their timestamps relative to the base "
    "timestamp; Kafka writes them anew, relative to the first of them",
)
SEGMENTS_MEET = Deviation(
    path=r"\[\d+\]",
    kafka=MISSING,
    agree=lambda _kafka, ours: ours["records"] == (),
    reason="the last batch of every segment stays, emptied if need be, so that segments meet; "
    "Kafka keeps the last batch of the whole cleaning",
)
LAST_MARKER = Deviation(
    path=r"\[\d+\]\.(attributes|base_timestamp|horizon|records|marker)",
    reason="the last marker of a producer that has written nothing since is kept whole; Kafka "
    "keeps its batch empty, from which no producer epoch can be restored",
)

# -- frames

STRICT_FRAMES = {
    "bytes behind the body": "the two sides do not mean the same request",
    "an array with a negative length": "-1 is null; below that is no length",
    "a name that is not UTF-8": "Kafka puts a replacement character in its place",
}
