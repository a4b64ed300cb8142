"""Every transactional API, in every version, as Kafka answers it.

Both sides have transaction version 2; requests of old versions are those of old clients.
"""

import itertools

import pytest

from sparklog.types import OffsetSpec
from sparklog.wire.protocol.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnTransaction,
)
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    TopicRequest,
)
from sparklog.wire.protocol.messages.describe_transactions import DescribeTransactionsRequest
from sparklog.wire.protocol.messages.end_txn import EndTxnRequest
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.list_transactions import ListTransactionsRequest
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sparklog.wire.protocol.schema import Request
from tests.peers.both import Both, list_offsets
from tests.peers.deviations import (
    DESCRIBED_ONCE,
    KNOWN_ZOMBIE,
    MEMBERS_ADD,
    MEMBERS_MARK,
    WITHOUT_PRODUCER,
)
from tests.peers.transaction_story import (
    OLD_END,
    OLD_PRODUCE,
    OWN,
    TIMEOUT_MS,
    TRANSACTED,
    TRANSACTION_KEY,
    Identity,
    TellTransactions,
    TransactionStory,
)

ADD_VERSIONS = range(4)
INIT_VERSIONS, END_VERSIONS = range(6), range(6)
#: FindCoordinator has an address.
ADDRESSES = (r".*node_id", r".*\.host", r"host", r".*port")


# -- finding


def test_coordinators_are_found(each_node: Both, tell_transactions: TellTransactions) -> None:
    tell_transactions("found")
    request = FindCoordinatorRequest(key="found", key_type=TRANSACTION_KEY)
    each_node.same(request, range(1, 4), where=ADDRESSES)
    many = FindCoordinatorRequest(coordinator_keys=("found", "other"), key_type=TRANSACTION_KEY)
    each_node.same(many, (4, 5, 6), where=ADDRESSES)


# -- identities


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_an_id_is_taken_over_again_and_again(
    tell_transactions: TellTransactions, version: int
) -> None:
    story = tell_transactions(f"taken-{version}")
    assert story.init(version)
    assert not story.init(version)
    assert not story.init(version)
    story.add((TRANSACTED, 0))
    assert not story.init(version)  # aborts, and fences the producer before
    assert not story.init(version)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1, 900_000, 900_001, 2**31 - 1])
def test_timeouts(both: Both, tell_transactions: TellTransactions, timeout_ms: int) -> None:
    story = tell_transactions("timeouts")
    request = InitProducerIdRequest(
        transactional_id=f"timeout-{timeout_ms}", transaction_timeout_ms=timeout_ms
    )
    story.ask(lambda _: request, 5)
    story.ask(lambda _: request, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_goes_on_after_an_error(
    tell_transactions: TellTransactions, version: int
) -> None:
    """KIP-360: a producer asks for the next epoch of its own id."""
    story = tell_transactions(f"recovered-{version}")
    story.init()
    story.init(version, as_known=True)
    story.init(version, as_known=True)
    story.add((TRANSACTED, 0))
    story.init(version, as_known=True)
    story.init(version, as_known=True)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_identities_that_are_not_the_present_one(
    tell_transactions: TellTransactions, version: int
) -> None:
    story = tell_transactions(f"mistaken-{version}")
    for _ in range(3):
        story.init()
    for id_change, epoch_change in ((0, -1), (0, -2), (0, 1), (1000, 0), (1000, -5), (None, 0)):
        _ask_init(story, version, id_change, epoch_change)
    story.add((TRANSACTED, 0))
    for id_change, epoch_change in ((0, -1), (0, 1), (1000, 0)):
        _ask_init(story, version, id_change, epoch_change)


def _ask_init(
    story: TransactionStory, version: int, id_change: int | None, epoch_change: int
) -> None:
    def request(identity: Identity) -> Request:
        return InitProducerIdRequest(
            transactional_id=story.name,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=-1 if id_change is None else identity.producer_id + id_change,
            producer_epoch=identity.epoch + epoch_change,
        )

    story.ask(request, version)


def test_an_unknown_id_with_an_identity(tell_transactions: TellTransactions) -> None:
    story = tell_transactions("unknown-with-identity")
    for producer_id, epoch in ((77_777, 0), (77_777, -1), (-1, 3), (-2, 0), (0, 2**15 - 1)):
        request = InitProducerIdRequest(
            transactional_id=f"unknown-{producer_id}-{epoch}",
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        story.ask(lambda _, request=request: request, 5)  # type: ignore[misc]


# -- partitions


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_are_added(tell_transactions: TellTransactions, version: int) -> None:
    story = tell_transactions(f"added-{version}")
    story.add((TRANSACTED, 0), version=version)  # by a producer that has no id yet
    story.init()
    story.add((TRANSACTED, 0), version=version)
    story.add((TRANSACTED, 0), (TRANSACTED, 2), version=version)
    story.add((TRANSACTED, 1), (TRANSACTED, 7), version=version)
    story.add(("missing", 0), (TRANSACTED, 1), version=version)
    story.add(("__consumer_offsets", 0), version=version)
    story.add(version=version)
    story.add(("", 0), version=version)
    story.ask(lambda _: DescribeTransactionsRequest(transactional_ids=(story.name,)), 0)


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_of_another_producer(tell_transactions: TellTransactions, version: int) -> None:
    story = tell_transactions(f"others-{version}")
    story.init()
    story.init()
    for id_change, epoch_change in ((0, -1), (0, 1), (1, 0), (-(2**40), 0), (0, -10)):

        def request(
            identity: Identity, id_change: int = id_change, epoch_change: int = epoch_change
        ) -> Request:
            other = Identity(
                producer_id=identity.producer_id + id_change, epoch=identity.epoch + epoch_change
            )
            return story.adding(other, (TRANSACTED, 0))

        story.ask(request, version)


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_of_no_transactional_id(
    tell_transactions: TellTransactions, version: int
) -> None:
    story = tell_transactions("nobodys")
    for name in ("", "never seen"):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=story.adding(Identity(), (TRANSACTED, 0)).v3_and_below_topics,
        )
        story.ask(lambda _, request=request: request, version)  # type: ignore[misc]


@pytest.mark.parametrize("version", [4, 5])
def test_clients_do_not_ask_as_brokers(tell_transactions: TellTransactions, version: int) -> None:
    story = tell_transactions(f"asked-as-broker-{version}")
    story.init()  # Kafka adds the partition, to which no test writes

    def request(identity: Identity) -> Request:
        added = story.adding(identity, (TRANSACTED, 2))
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=story.name,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            topics=added.v3_and_below_topics,
        )
        return AddPartitionsToTxnRequest(transactions=(transaction,))

    story.ask(request, version, MEMBERS_ADD)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_clients_write_no_markers(
    tell_transactions: TellTransactions, version: int, commit: bool
) -> None:
    story = tell_transactions(f"marked-{version}-{commit}")
    story.init()

    def request(identity: Identity) -> Request:
        marker = WritableTxnMarker(
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            transaction_result=commit,
            topics=(WritableTxnMarkerTopic(name="markers", partition_indexes=(0,)),),
        )
        return WriteTxnMarkersRequest(markers=(marker,))

    story.ask_leaders(request, version, MEMBERS_MARK)


# -- ends


@pytest.mark.parametrize(
    ("version", "commit"), list(itertools.product(END_VERSIONS, (True, False)))
)
def test_a_transaction_ends(
    both: Both, tell_transactions: TellTransactions, version: int, commit: bool
) -> None:
    story = tell_transactions(f"ended-{version}-{commit}")
    story.init()
    story.add((TRANSACTED, 0), (TRANSACTED, 1))
    story.write(TRANSACTED, version=OLD_PRODUCE)
    story.end(commit=commit, version=version)
    story.await_state("CompleteCommit" if commit else "CompleteAbort")
    both.await_same(list_offsets(TRANSACTED, OffsetSpec.LATEST, isolation_level=1), 10)
    for each in (commit, not commit):
        story.ask(lambda identity, each=each: story.ending(identity, commit=each), version)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("version", "commit"), list(itertools.product(END_VERSIONS, (True, False)))
)
def test_an_end_without_a_transaction(
    tell_transactions: TellTransactions, version: int, commit: bool
) -> None:
    story = tell_transactions(f"empty-{version}-{commit}")
    story.init()
    story.ask(lambda identity: story.ending(identity, commit=commit), version)


@pytest.mark.parametrize("version", END_VERSIONS)
def test_an_end_by_another_producer(tell_transactions: TellTransactions, version: int) -> None:
    story = tell_transactions(f"not-ended-{version}")
    story.init()
    story.init()
    story.add((TRANSACTED, 0))
    for id_change, epoch_change in ((0, -1), (0, 1), (1, 0), (0, -10)):

        def request(
            identity: Identity, id_change: int = id_change, epoch_change: int = epoch_change
        ) -> Request:
            other = Identity(
                producer_id=identity.producer_id + id_change, epoch=identity.epoch + epoch_change
            )
            return story.ending(other, commit=True)

        story.ask(request, version)
    for name in ("", "never seen"):
        nobody = EndTxnRequest(transactional_id=name, producer_id=1, producer_epoch=0)
        story.ask(lambda _, nobody=nobody: nobody, version)  # type: ignore[misc]
    story.await_state("Ongoing")


def test_every_transaction_of_a_new_client_has_its_epoch(
    both: Both, tell_transactions: TellTransactions
) -> None:
    story = tell_transactions("epochs")
    story.init()
    for number in range(4):
        story.write(TRANSACTED, b"%d" % number)
        story.end(commit=number % 2 == 0)
    story.end(commit=False)  # nothing was written
    story.write(TRANSACTED, b"last")
    story.end(commit=True)
    story.await_state("CompleteCommit")
    both.await_same(list_offsets(TRANSACTED, OffsetSpec.LATEST, isolation_level=1), 10)


# -- records


@pytest.mark.parametrize("version", [3, 8, OLD_PRODUCE, 12])
def test_records_outside_of_the_transaction(
    both: Both, tell_transactions: TellTransactions, version: int
) -> None:
    """From version 12 on a batch adds its partition to the transaction."""
    topic = both.create(f"outside-{version}", 4)
    story = tell_transactions(f"outside-{version}")
    story.write(topic, b"x", WITHOUT_PRODUCER, partition=3, version=version)
    story.init()
    story.write(topic, partition=2, version=version)
    story.add((topic, 0))
    story.write(topic, partition=1, version=version)
    story.write(topic, partition=0, version=version)


def test_records_of_a_zombie(both: Both, tell_transactions: TellTransactions) -> None:
    topic = both.create("of-a-zombie")
    story = tell_transactions("zombie")
    story.init()
    zombie = {side.name: story.identity(side) for side in story.leaders.sides}
    story.add((topic, 0))
    story.write(topic, version=OLD_PRODUCE)
    story.init()
    for version in (OLD_PRODUCE, 12):
        present = dict(story._identities)
        story._identities = dict(zombie)
        story.write(topic, b"late", KNOWN_ZOMBIE, sequence=1, version=version)
        story._identities = present
    story.await_state("Empty")


# -- what is shown


def test_transactions_are_described(tell_transactions: TellTransactions) -> None:
    story = tell_transactions("described")

    def described(*names: str) -> None:
        story.ask(lambda _: DescribeTransactionsRequest(transactional_ids=names), 0)

    described("described")
    story.init(timeout_ms=12_345)
    described("described", "missing", "")
    described()
    twice = DescribeTransactionsRequest(transactional_ids=("described", "described"))
    story.ask(lambda _: twice, 0, DESCRIBED_ONCE)
    story.add((TRANSACTED, 0), (TRANSACTED, 2))
    described("described")
    story.end(commit=True, version=OLD_END)
    story.await_state("CompleteCommit")
    described("described")
    story.write(TRANSACTED, partition=1)
    described("described")


def test_transactions_are_listed(tell_transactions: TellTransactions) -> None:
    idle, busy, done = (tell_transactions(f"listed-{name}") for name in ("idle", "busy", "done"))
    for story in (idle, busy, done):
        story.init()
    busy.add((TRANSACTED, 0))
    done.add((TRANSACTED, 0))
    done.end(commit=False, version=OLD_END)
    done.await_state("CompleteAbort")
    states = ((), ("Ongoing",), ("Empty", "CompleteAbort"), ("ongoing", "Nonsense"), ("Dead",))
    durations, patterns = (-1, 0, 3_600_000), (None, "", "listed-.*", "listed", "listed-i", "[")
    for version in range(3):
        for state_filters, duration, pattern in itertools.product(
            states,
            durations if version >= 1 else (-1,),
            patterns if version >= 2 else (None,),
        ):
            request = ListTransactionsRequest(
                state_filters=state_filters,
                duration_filter=duration,
                transactional_id_pattern=pattern,
            )
            kafka, ours = idle.coordinators.ask(request, version)
            assert _listed(ours) == _listed(kafka), (version, state_filters, duration, pattern)


def _listed(response: object) -> object:
    found = response.transaction_states  # type: ignore[attr-defined]
    names = [
        (each.transactional_id, each.transaction_state)
        for each in found
        if each.transactional_id.startswith("listed-")
    ]
    unknown = sorted(response.unknown_state_filters)  # type: ignore[attr-defined]
    return response.error_code, unknown, sorted(names)  # type: ignore[attr-defined]


def test_transactions_of_producers_are_listed(tell_transactions: TellTransactions) -> None:
    story = tell_transactions("listed-by-producer")
    story.init()

    def listed(*changes: int) -> None:
        def request(identity: Identity) -> Request:
            ids = tuple(identity.producer_id + change for change in changes)
            return ListTransactionsRequest(producer_id_filters=ids)

        story.ask(request, 2)

    listed(0)
    listed(0, 10**9)
    listed(10**9)


def test_producers_are_described(both: Both, tell_transactions: TellTransactions) -> None:
    both.create("producers", 2)
    story = tell_transactions("producers")

    def described(name: str, *numbers: int) -> None:
        topics = (TopicRequest(name=name, partition_indexes=numbers),)
        both.same(DescribeProducersRequest(topics=topics), 0, where=OWN)

    described("producers", 0, 1)
    described("producers", 0, 5, -1)
    described("missing", 0)
    described("producers")
    described("", 0)
    both.same(DescribeProducersRequest(topics=()), 0)
    story.init()
    story.write("producers")
    described("producers", 0, 1)
    story.write("producers", sequence=1)
    described("producers", 0)
    story.end(commit=True)
    story.await_state("CompleteCommit")
    described("producers", 0)
