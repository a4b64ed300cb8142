"""Random transactions and random cuts: what a cut shows of a transaction is all of it, or nothing.

Each seed is one life of a coordinator with two shards.  Producers write to the logs of
partitions, markers reach each partition on their own, and the offsets of a cut are read one
partition after the other, while everything else goes on.  The same lives with a bug planted must
show torn transactions.
"""

from dataclasses import dataclass, field
from random import Random
from typing import NamedTuple
from unittest.mock import patch

import pytest

from sparklog.driver.transactions import (
    AddPartitions,
    ConsistentCuts,
    Decision,
    EndTransaction,
    InitProducerId,
    Now,
    ProducerIdentity,
    TransactionConfig,
    TransactionShard,
    WriteMarkers,
)
from sparklog.driver.transactions.partition_transactions import PartitionTransactions
from sparklog.types import TopicPartition

PARTITIONS = tuple(TopicPartition("t", number) for number in range(4))
SEEDS = 40
STEPS = 800
CUT_WAIT_MS = 200


class Owner(NamedTuple):
    """One transaction: the number of those with the same transactional id before it."""

    name: str
    number: int


@dataclass
class Log:
    """The records of one partition by their transactions; markers are None."""

    records: list[Owner | None] = field(default_factory=list)
    ended: set[Owner] = field(default_factory=set)

    @property
    def last_stable_offset(self) -> int:
        for offset, owner in enumerate(self.records):
            if owner is not None and owner not in self.ended:
                return offset
        return len(self.records)


@dataclass
class Producer:
    name: str
    shard: int
    identity: ProducerIdentity | None = None
    number: int = 0
    joined: set[TopicPartition] = field(default_factory=set)
    asked: int | None = None
    asks: str = ""

    @property
    def owner(self) -> Owner:
        return Owner(self.name, self.number)


class Life:
    """A coordinator, its producers and its cuts, for one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.ms = 0
        self.cuts = ConsistentCuts()
        ids = iter(range(1_000_000))
        self.shards = [
            TransactionShard(TransactionConfig(), lambda: next(ids), self.cuts) for _ in range(2)
        ]
        self.producers = [Producer(name, index % 2) for index, name in enumerate("abcd")]
        self.logs = {tp: Log() for tp in PARTITIONS}
        self.appends: list[tuple[int, str]] = []
        self.markers: list[tuple[int, WriteMarkers, TopicPartition]] = []
        self.committed: set[Owner] = set()
        self.request_ids = iter(range(1_000_000))
        self.by_request: dict[int, Producer] = {}
        self.cut_ids = iter(range(1_000_000))
        #: The offsets that each cut has read; a cut that drains has none yet.
        self.cuts_taken: list[dict[TopicPartition, int]] = []
        self.wanted: dict[int, tuple[TopicPartition, ...]] = {}
        self.found: dict[int, dict[TopicPartition, int]] = {}

    @property
    def now(self) -> Now:
        return Now(self.ms, self.ms)

    def run(self) -> None:
        for shard in self.shards:
            shard.loaded(self.now)
        for _ in range(STEPS):
            self.ms += self.random.randrange(3)
            steps = (self.produce, self.append, self.mark, self.begin, self.collect)
            self.random.choices(steps, weights=(8, 6, 8, 3, 1))[0]()
            self.advance()
        self.cuts.transactions.check_invariants()

    # -- producers

    def produce(self) -> None:
        producer = self.random.choice(self.producers)
        if producer.asked is not None:
            return
        if producer.identity is None:
            self.ask(producer, "init")
        elif producer.joined and self.random.random() < 0.5:
            for tp in sorted(producer.joined):
                self.logs[tp].records.append(producer.owner)
        elif producer.joined and self.random.random() < 0.5:
            self.ask(producer, self.random.choice(["commit", "commit", "abort"]))
        else:
            self.ask(producer, "add")

    def ask(self, producer: Producer, what: str) -> None:
        producer.asked = request_id = next(self.request_ids)
        producer.asks = what
        self.by_request[request_id] = producer
        name, identity = producer.name, producer.identity
        if what == "init":
            request: InitProducerId | AddPartitions | EndTransaction = InitProducerId(
                request_id=request_id, transactional_id=name, timeout_ms=60_000
            )
        elif what == "add":
            assert identity is not None
            request = AddPartitions(
                request_id=request_id,
                transactional_id=name,
                producer=identity,
                partitions=frozenset(self.random.sample(PARTITIONS, 2)),
                connection=1,
                client_version=0,
            )
            producer.joined |= request.partitions
        else:
            assert identity is not None
            request = EndTransaction(
                request_id=request_id,
                transactional_id=name,
                producer=identity,
                committed=what == "commit",
                connection=1,
                client_version=0,
            )
        self.take(producer.shard, self.shards[producer.shard].handle(request, self.now))

    # -- the shell

    def take(self, shard: int, decision: Decision) -> None:
        self.appends += [(shard, each.transactional_id) for each in decision.appends]
        for write in decision.markers:
            self.markers += [(shard, write, tp) for tp in sorted(write.partitions)]
        for completion in decision.completions:
            producer = self.by_request[completion.request_id]
            assert not isinstance(completion.result, Exception), completion
            if producer.asks == "init":
                assert isinstance(completion.result, ProducerIdentity)
                producer.identity = completion.result
            producer.asked = None
            if producer.asks in ("commit", "abort"):
                if producer.asks == "commit":
                    self.committed.add(producer.owner)
                producer.number += 1
                producer.joined = set()

    def append(self) -> None:
        for _ in range(min(len(self.appends), 3)):
            shard, name = self.appends.pop(0)
            self.take(shard, self.shards[shard].appended(name, self.now))

    def mark(self) -> None:
        """A partition gets a marker, and the coordinator hears of it."""
        if not self.markers:
            return
        shard, write, tp = self.markers.pop(self.random.randrange(len(self.markers)))
        log = self.logs[tp]
        log.ended |= {
            owner
            for owner in log.records
            if owner is not None and owner.name == write.transactional_id
        }
        log.records.append(None)
        written = self.shards[shard].markers_written(
            write.transactional_id, write.producer, frozenset({tp}), self.now
        )
        self.take(shard, written)

    # -- cuts

    def begin(self) -> None:
        if len(self.wanted) < 3:
            cut_id = next(self.cut_ids)
            self.wanted[cut_id] = tuple(self.random.sample(PARTITIONS, 2))
            self.cuts.begin(cut_id, frozenset(self.wanted[cut_id]), CUT_WAIT_MS)

    def collect(self) -> None:
        """Read one offset of a cut that is ready."""
        if not self.found:
            return
        cut_id, found = self.random.choice(list(self.found.items()))
        left = [tp for tp in self.wanted[cut_id] if tp not in found]
        tp = self.random.choice(left)
        found[tp] = self.logs[tp].last_stable_offset
        if len(left) == 1:
            self.cuts_taken.append(self.found.pop(cut_id))
            self.end(cut_id)

    def advance(self) -> None:
        progress = self.cuts.advance(self.now)
        for cut_id in progress.ready:
            self.found[cut_id] = {}
        for cut_id in progress.refused:
            self.end(cut_id)

    def end(self, cut_id: int) -> None:
        del self.wanted[cut_id]
        self.cuts.end(cut_id, self.now)
        for number, shard in enumerate(self.shards):
            self.take(number, shard.release_held(self.now))

    # -- what must hold

    def torn(self) -> set[Owner]:
        """The transactions of which a cut shows some records and hides others."""
        torn: set[Owner] = set()
        for offsets in self.cuts_taken:
            shown: set[Owner] = set()
            hidden: set[Owner] = set()
            for tp, end in offsets.items():
                records = self.logs[tp].records
                shown |= {owner for owner in records[:end] if owner in self.committed}
                hidden |= {owner for owner in records[end:] if owner in self.committed}
            torn |= shown & hidden
        return torn


def lives() -> list[Life]:
    made = [Life(seed) for seed in range(SEEDS)]
    for life in made:
        life.run()
    return made


def test_no_cut_tears_a_transaction() -> None:
    made = lives()
    assert {seed: life.torn() for seed, life in enumerate(made) if life.torn()} == {}
    assert sum(len(life.committed) for life in made) > 10 * SEEDS
    assert sum(len(life.cuts_taken) for life in made) > 3 * SEEDS


@pytest.mark.parametrize(
    ("owner", "name", "planted"),
    [
        (ConsistentCuts, "holds_commit", lambda *_: False),
        (PartitionTransactions, "blocker", lambda *_: None),
    ],
    ids=["a cut without hold", "a cut that does not drain"],
)
def test_these_lives_find_torn_transactions(owner: type, name: str, planted: object) -> None:
    with patch.object(owner, name, planted):
        assert sum(bool(life.torn()) for life in lives()) > SEEDS // 10


def test_without_the_hold_of_joins_fewer_cuts_are_taken() -> None:
    taken = sum(len(life.cuts_taken) for life in lives())
    with patch.object(ConsistentCuts, "holds_join", lambda *_: False):
        without = sum(len(life.cuts_taken) for life in lives())
    assert without < taken
