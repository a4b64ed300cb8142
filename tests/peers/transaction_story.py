"""One story of a transactional id, told to Kafka and to us.

Owns: the producer's identity on either side.  Producer ids are made up by each side: answers are
compared without them, and the story compares whether an id is the one before.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTopic,
)
from sparklog.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.produce import ProduceRequest
from sparklog.wire.protocol.schema import Request
from tests.peers.both import Both, Side, batch, produce
from tests.peers.deviations import Deviation
from tests.support.waiting import wait_for

#: A topic of three partitions, to which stories write.
TRANSACTED = "transacted"
TRANSACTION_KEY = 1
#: The coordinator loads, or has not finished the last transition.
NOT_YET = frozenset({14, 15, 16, 51})
#: The last versions of clients that name partitions first (librdkafka).
OLD_END, OLD_PRODUCE = 1, 11
NEW_END, NEW_PRODUCE = 5, 12
ADD_VERSION = 3
TIMEOUT_MS = 60_000
#: Made up by each side, or its clock.
OWN = (
    r".*producer_id",
    r".*transaction_start_time_ms",
    r".*last_timestamp",
    r".*coordinator_epoch",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A producer's id and epoch on one side."""

    producer_id: int = -1
    epoch: int = -1


Asked = Callable[[Identity], Request]


class TransactionStory:
    """A transactional id, and its producer on both sides.  ``close`` ends an open transaction."""

    def __init__(self, both: Both, name: str) -> None:
        self.name = name
        self.coordinators = both.at("control plane")
        self.leaders = both
        self._identities: dict[str, Identity] = {}
        await_transaction_coordinator(both, name)

    def identity(self, side: Side) -> Identity:
        return self._identities.get(side.name, Identity())

    def ask(self, asked: Asked, version: int, *meant: Deviation, where: Iterable[str] = ()) -> Any:
        """Ask the coordinators, and compare the answers.  Returns ours.

        A marker of the last transaction may still be on its way: either side is asked again then.
        """
        found = [self._settled(side, asked, version) for side in self.coordinators.sides]
        self._compare(asked, found, version, meant, where)
        return found[1]

    def ask_leaders(
        self, asked: Asked, version: int, *meant: Deviation, where: Iterable[str] = ()
    ) -> Any:
        """Ask the brokers, and compare the answers.  Returns ours."""
        found = [side.exchange(asked(self.identity(side)), version) for side in self.leaders.sides]
        self._compare(asked, found, version, meant, where)
        return found[1]

    def init(
        self, version: int = 5, *, as_known: bool = False, timeout_ms: int = TIMEOUT_MS
    ) -> bool:
        """InitProducerId, ``as_known`` with the present identity.  Returns whether the producer id
        is another one than before; both sides have to agree about this."""

        def request(identity: Identity) -> Request:
            known = identity if as_known else Identity()
            return InitProducerIdRequest(
                transactional_id=self.name,
                transaction_timeout_ms=timeout_ms,
                producer_id=known.producer_id,
                producer_epoch=known.epoch,
            )

        return self.take(request, version)

    def take(self, asked: Asked, version: int) -> bool:
        """Ask for a new identity, and take it.  Returns whether the producer id is another one."""
        found = [self._settled(side, asked, version) for side in self.coordinators.sides]
        self._compare(asked, found, version, (), ())
        changes = set()
        for side, response in zip(self.coordinators.sides, found, strict=True):
            if response.error_code:
                return False
            before = self.identity(side).producer_id
            self._identities[side.name] = Identity(
                producer_id=response.producer_id, epoch=response.producer_epoch
            )
            changes.add(before != response.producer_id)
        [changed] = changes
        return changed

    def add(self, *places: tuple[str, int], version: int = ADD_VERSION) -> Any:
        """AddPartitionsToTxn."""
        return self.ask(lambda identity: self.adding(identity, *places), version)

    def adding(self, identity: Identity, *places: tuple[str, int]) -> AddPartitionsToTxnRequest:
        topics: dict[str, list[int]] = {}
        for topic, partition in places:
            topics.setdefault(topic, []).append(partition)
        return AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.name,
            v3_and_below_producer_id=identity.producer_id,
            v3_and_below_producer_epoch=identity.epoch,
            v3_and_below_topics=tuple(
                AddPartitionsToTxnTopic(name=topic, partitions=tuple(numbers))
                for topic, numbers in topics.items()
            ),
        )

    def write(
        self,
        topic: str,
        value: bytes = b"x",
        *meant: Deviation,
        partition: int = 0,
        sequence: int = 0,
        version: int = NEW_PRODUCE,
    ) -> Any:
        """One record in the transaction."""

        def request(identity: Identity) -> ProduceRequest:
            records = batch(
                value,
                transactional=True,
                producer_id=identity.producer_id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
            )
            return produce(topic, records, partition=partition, transactional_id=self.name)

        return self.ask_leaders(request, version, *meant)

    def ending(self, identity: Identity, *, commit: bool) -> EndTxnRequest:
        return EndTxnRequest(
            transactional_id=self.name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            committed=commit,
        )

    def end(self, *, commit: bool, version: int = NEW_END) -> Any:
        """EndTxn; from version 5 on it gives the identity for the next transaction."""

        def request(identity: Identity) -> Request:
            return self.ending(identity, commit=commit)

        if version < NEW_END:
            return self.ask(request, version)
        return self.take(request, version)

    def await_state(self, state: str) -> None:
        """Until both coordinators say that the transaction is in this state."""
        for side in self.coordinators.sides:
            wait_for(lambda side=side: self.state(side) == state, 30.0)  # type: ignore[misc]

    def state(self, side: Side) -> str:
        request = DescribeTransactionsRequest(transactional_ids=(self.name,))
        [found] = side.exchange(request, 0, _node(side)).transaction_states
        return str(found.transaction_state)

    def close(self) -> None:
        for side in self.coordinators.sides:
            identity = self.identity(side)
            if identity.producer_id >= 0:
                self._settled(side, lambda identity: self.ending(identity, commit=False), 3)

    def _settled(self, side: Side, asked: Asked, version: int) -> Any:
        found: list[Any] = []

        def settled() -> bool:
            found[:] = [side.exchange(asked(self.identity(side)), version, _node(side))]
            return not NOT_YET & _codes(found[0])

        wait_for(settled, 30.0)
        return found[0]

    def _compare(
        self,
        asked: Asked,
        found: list[Any],
        version: int,
        meant: Iterable[Deviation],
        where: Iterable[str],
    ) -> None:
        story = f"{type(asked(Identity())).__name__} v{version} of {self.name}"
        self.leaders.compare(*found, *meant, where=(*OWN, *where), story=story)


#: Begins the story of a transactional id, which ends with the test.
TellTransactions = Callable[[str], TransactionStory]


def await_transaction_coordinator(both: Both, name: str) -> None:
    """Until both sides have a coordinator for a transactional id, and it has loaded."""
    request = FindCoordinatorRequest(key=name, key_type=TRANSACTION_KEY)
    described = DescribeTransactionsRequest(transactional_ids=(name,))
    for side in both.sides:

        def loaded(side: Side = side) -> bool:
            if side.exchange(request, 3).error_code:
                return False
            [found] = side.exchange(described, 0, _node(side)).transaction_states
            return found.error_code not in NOT_YET

        wait_for(loaded, 60.0)


def _node(side: Side) -> str:
    return "control plane" if "control plane" in side.addresses else "broker"


def _codes(response: Any) -> set[int]:
    """Every error code in an answer."""
    codes: set[int] = set()
    for name in getattr(response, "__dataclass_fields__", {}):
        value = getattr(response, name)
        if name.endswith("error_code"):
            codes.add(int(value))
        elif isinstance(value, tuple):
            codes = codes.union(*map(_codes, value)) if value else codes
    return codes
