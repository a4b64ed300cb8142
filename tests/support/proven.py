"""What tests prove of clients that we did not write: the table of clients in docs/protocol.md.

Owns: the names of clients and features, and the mark of a test.  Must not know how a test works.

A test says what it proves by ``@proves("a feature", "a client", ...)``; the page is made from these
marks, so it says nothing that no test shows.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

import pytest

MARK: Final = "proves"

#: The columns of the table, and their titles there.
CLIENTS: Final = {
    "confluent": "librdkafka (confluent-kafka)",
    "kcat": "kcat",
    "kafka-python": "kafka-python",
    "aiokafka": "aiokafka",
    "franz-go": "franz-go",
    "sarama": "sarama",
    "java": "Kafka's Java clients and tools",
    "spark": "Spark's Kafka source and sink",
}

#: The rows of the table: what the client does against sparklog.
FEATURES: Final = {
    "metadata": "lists nodes, topics and partitions",
    "versions": "finds the versions of every node, and none that it cannot use",
    "produce": "writes with keys, headers and timestamps, as an idempotent producer if it is one",
    "codecs": "writes with gzip, snappy, lz4 and zstd",
    "fetch": "reads records, whichever client wrote them",
    "offsets": "finds where to begin by timestamp",
    "auto-created topic": "creates a missing topic by writing to it",
    "fetch sessions": "reads in incremental fetch sessions while partitions come and go (KIP-227)",
    "replicas": "shows leaders, replicas and in-sync replicas",
    "reassignments": "moves replicas",
    "refused record": "reports a record over the topic's limit, and goes on",
    "offset out of range": "reports an offset that does not exist",
    "transaction": "writes to several topics in one transaction, commits and aborts",
    "fenced producer": "is fenced by a second producer with its transactional id",
    "taken over": "aborts what a dead producer with its transactional id has left open",
    "chain": "consumes, transforms and produces exactly once while members come and go",
    "transaction tools": "lists, describes, finds and aborts transactions",
    "topics": "creates, grows, describes and deletes topics",
    "settings": "shows and changes settings",
    "deleted records": "deletes records before an offset",
    "group": "subscribes with a group, commits and resumes",
    "rebalance": "shares partitions with a second member, and takes them over",
    "mixed group": "shares one group with other clients",
    "static member": "comes back as a static member without a rebalance (KIP-345)",
    "cooperative": "keeps what does not move in a cooperative rebalance (KIP-429)",
    "streams": "runs Kafka Streams' word count, at least once, and resets it",
    "connect": "runs Kafka Connect in distributed mode",
    "checkpoint": "streams with a checkpoint, and finds new topics by a pattern",
    "group tools": "lists, describes and deletes groups",
    "reset offsets": "sets, shifts and deletes committed offsets",
    "log files": "reads the files of our logs and of `__consumer_offsets`",
    "transaction state": "reads the files of `__transaction_state`",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Proof:
    """A test, by its path and name, and what it proves."""

    feature: str
    clients: tuple[str, ...]
    test: str


def proves(feature: str, *clients: str) -> pytest.MarkDecorator:
    """Mark a test that shows a feature with clients; a test may have several of these marks.

    Raises ValueError for names that are not in ``FEATURES`` and ``CLIENTS``: add new ones there.
    """
    if feature not in FEATURES:
        raise ValueError(f"{feature!r} is not in FEATURES of tests/support/proven.py")
    unknown = [each for each in clients if each not in CLIENTS]
    if unknown or not clients:
        raise ValueError(f"{feature!r}: {unknown} are not in CLIENTS of tests/support/proven.py")
    return pytest.mark.proves(feature, *clients)


def proofs_of(test: object, name: str) -> Iterable[Proof]:
    """The proofs of a test function; ``name`` is its path and name."""
    marks = getattr(test, "pytestmark", [])
    for mark in marks if isinstance(marks, list) else [marks]:
        if mark.name == MARK:
            feature, *clients = mark.args
            yield Proof(feature=feature, clients=tuple(clients), test=name)
