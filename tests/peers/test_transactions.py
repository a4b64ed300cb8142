"""Every transactional API, in every version, as Kafka answers it.

Both sides have transaction version 2; requests of old versions are those of old clients.
"""

import itertools
from collections.abc import Callable, Iterator

import pytest

from sparklog.types import OffsetSpec
from sparklog.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from sparklog.wire.protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from sparklog.wire.protocol.schema import Request
from tests.peers.both import Both, list_offsets
from tests.peers.deviations import (
    DESCRIBED_ONCE,
    EMPTY_TOPIC,
    KNOWN_ZOMBIE,
    MEMBERS_ADD,
    MEMBERS_MARK,
    WITHOUT_PRODUCER,
)
from tests.peers.group_story import NEWEST_SYNC, GroupStory, await_coordinator
from tests.peers.transaction_story import (
    OLD_END,
    OLD_PRODUCE,
    OWN,
    TIMEOUT_MS,
    TRANSACTION_KEY,
    Identity,
    TransactionStory,
)

TOPIC = "transacted"
ADD_VERSIONS, OFFSETS_VERSIONS, COMMIT_VERSIONS = range(4), range(5), range(6)
INIT_VERSIONS, END_VERSIONS = range(6), range(6)
#: FindCoordinator has an address.
ADDRESSES = (r".*node_id", r".*\.host", r"host", r".*port")
NO_MEMBER = ""

Tell = Callable[[str], TransactionStory]


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create(TOPIC, 3)


@pytest.fixture
def tell(both: Both, topic: str) -> Iterator[Tell]:
    """Begins a story of a transactional id."""
    stories: list[TransactionStory] = []

    def begin(name: str) -> TransactionStory:
        stories.append(TransactionStory(both, name))
        return stories[-1]

    yield begin
    for story in stories:
        story.close()


# -- finding


def test_coordinators_are_found(each_node: Both, tell: Tell) -> None:
    tell("found")
    request = FindCoordinatorRequest(key="found", key_type=TRANSACTION_KEY)
    each_node.same(request, range(1, 4), where=ADDRESSES)
    many = FindCoordinatorRequest(coordinator_keys=("found", "other"), key_type=TRANSACTION_KEY)
    each_node.same(many, (4, 5, 6), where=ADDRESSES)


# -- identities


@pytest.mark.parametrize("version", INIT_VERSIONS)
def test_an_id_is_taken_over_again_and_again(tell: Tell, version: int) -> None:
    story = tell(f"taken-{version}")
    assert story.init(version)
    assert not story.init(version)
    assert not story.init(version)
    story.add((TOPIC, 0))
    assert not story.init(version)  # aborts, and fences the producer before
    assert not story.init(version)


@pytest.mark.parametrize("timeout_ms", [0, -1, 1, 900_000, 900_001, 2**31 - 1])
def test_timeouts(both: Both, tell: Tell, timeout_ms: int) -> None:
    story = tell("timeouts")
    request = InitProducerIdRequest(
        transactional_id=f"timeout-{timeout_ms}", transaction_timeout_ms=timeout_ms
    )
    story.ask(lambda _: request, 5)
    story.ask(lambda _: request, 0)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_a_producer_that_goes_on_after_an_error(tell: Tell, version: int) -> None:
    """KIP-360: a producer asks for the next epoch of its own id."""
    story = tell(f"recovered-{version}")
    story.init()
    story.init(version, as_known=True)
    story.init(version, as_known=True)
    story.add((TOPIC, 0))
    story.init(version, as_known=True)
    story.init(version, as_known=True)


@pytest.mark.parametrize("version", [3, 4, 5])
def test_identities_that_are_not_the_present_one(tell: Tell, version: int) -> None:
    story = tell(f"mistaken-{version}")
    for _ in range(3):
        story.init()
    for id_change, epoch_change in ((0, -1), (0, -2), (0, 1), (1000, 0), (1000, -5), (None, 0)):
        _ask_init(story, version, id_change, epoch_change)
    story.add((TOPIC, 0))
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


def test_an_unknown_id_with_an_identity(tell: Tell) -> None:
    story = tell("unknown-with-identity")
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
def test_partitions_are_added(tell: Tell, version: int) -> None:
    story = tell(f"added-{version}")
    story.add((TOPIC, 0), version=version)  # by a producer that has no id yet
    story.init()
    story.add((TOPIC, 0), version=version)
    story.add((TOPIC, 0), (TOPIC, 2), version=version)
    story.add((TOPIC, 1), (TOPIC, 7), version=version)
    story.add(("missing", 0), (TOPIC, 1), version=version)
    story.add(("__consumer_offsets", 0), version=version)
    story.add(version=version)
    story.add(("", 0), version=version)
    story.ask(lambda _: DescribeTransactionsRequest(transactional_ids=(story.name,)), 0)


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_of_another_producer(tell: Tell, version: int) -> None:
    story = tell(f"others-{version}")
    story.init()
    story.init()
    for id_change, epoch_change in ((0, -1), (0, 1), (1, 0), (-(2**40), 0), (0, -10)):

        def request(
            identity: Identity, id_change: int = id_change, epoch_change: int = epoch_change
        ) -> Request:
            other = Identity(
                producer_id=identity.producer_id + id_change, epoch=identity.epoch + epoch_change
            )
            return story.adding(other, (TOPIC, 0))

        story.ask(request, version)


@pytest.mark.parametrize("version", ADD_VERSIONS)
def test_partitions_of_no_transactional_id(tell: Tell, version: int) -> None:
    story = tell("nobodys")
    for name in ("", "never seen"):
        request = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=1,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=story.adding(Identity(), (TOPIC, 0)).v3_and_below_topics,
        )
        story.ask(lambda _, request=request: request, version)  # type: ignore[misc]


@pytest.mark.parametrize("version", [4, 5])
def test_clients_do_not_ask_as_brokers(tell: Tell, version: int) -> None:
    story = tell(f"asked-as-broker-{version}")
    story.init()

    def request(identity: Identity) -> Request:
        added = story.adding(identity, (TOPIC, 0))
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
def test_clients_write_no_markers(tell: Tell, version: int, commit: bool) -> None:
    story = tell(f"marked-{version}-{commit}")
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
def test_a_transaction_ends(both: Both, tell: Tell, version: int, commit: bool) -> None:
    story = tell(f"ended-{version}-{commit}")
    story.init()
    story.add((TOPIC, 0), (TOPIC, 1))
    story.write(TOPIC, version=OLD_PRODUCE)
    story.end(commit=commit, version=version)
    story.await_state("CompleteCommit" if commit else "CompleteAbort")
    both.await_same(list_offsets(TOPIC, OffsetSpec.LATEST, isolation_level=1), 10)
    for each in (commit, not commit):
        story.ask(lambda identity, each=each: story.ending(identity, commit=each), version)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("version", "commit"), list(itertools.product(END_VERSIONS, (True, False)))
)
def test_an_end_without_a_transaction(tell: Tell, version: int, commit: bool) -> None:
    story = tell(f"empty-{version}-{commit}")
    story.init()
    story.ask(lambda identity: story.ending(identity, commit=commit), version)


@pytest.mark.parametrize("version", END_VERSIONS)
def test_an_end_by_another_producer(tell: Tell, version: int) -> None:
    story = tell(f"not-ended-{version}")
    story.init()
    story.init()
    story.add((TOPIC, 0))
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


def test_every_transaction_of_a_new_client_has_its_epoch(both: Both, tell: Tell) -> None:
    story = tell("epochs")
    story.init()
    for number in range(4):
        story.write(TOPIC, b"%d" % number)
        story.end(commit=number % 2 == 0)
    story.end(commit=False)  # nothing was written
    story.write(TOPIC, b"last")
    story.end(commit=True)
    story.await_state("CompleteCommit")
    both.await_same(list_offsets(TOPIC, OffsetSpec.LATEST, isolation_level=1), 10)


# -- records


@pytest.mark.parametrize("version", [3, 8, OLD_PRODUCE, 12])
def test_records_outside_of_the_transaction(both: Both, tell: Tell, version: int) -> None:
    """From version 12 on a batch adds its partition to the transaction."""
    topic = both.create(f"outside-{version}", 4)
    story = tell(f"outside-{version}")
    story.write(topic, b"x", WITHOUT_PRODUCER, partition=3, version=version)
    story.init()
    story.write(topic, partition=2, version=version)
    story.add((topic, 0))
    story.write(topic, partition=1, version=version)
    story.write(topic, partition=0, version=version)


def test_records_of_a_zombie(both: Both, tell: Tell) -> None:
    topic = both.create("of-a-zombie")
    story = tell("zombie")
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


# -- offsets


@pytest.mark.parametrize("version", OFFSETS_VERSIONS)
def test_groups_are_added(tell: Tell, version: int) -> None:
    story = tell(f"groups-{version}")
    await_coordinator(story.leaders, "offsets-in-txn")
    story.init()
    for group in ("offsets-in-txn", "offsets-in-txn", ""):
        story.ask(lambda identity, group=group: _adding(story, identity, group), version)  # type: ignore[misc]
    wrong = Identity(producer_id=5_000_000, epoch=0)
    story.ask(lambda _: _adding(story, wrong, "offsets-in-txn"), version)
    for name in ("", "never seen"):
        nobody = AddOffsetsToTxnRequest(transactional_id=name, producer_id=1, group_id="g")
        story.ask(lambda _, nobody=nobody: nobody, version)  # type: ignore[misc]


def _adding(story: TransactionStory, identity: Identity, group: str) -> AddOffsetsToTxnRequest:
    return AddOffsetsToTxnRequest(
        transactional_id=story.name,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        group_id=group,
    )


def committing(
    story: TransactionStory,
    identity: Identity,
    group: str,
    *offsets: int,
    topic: str = TOPIC,
    metadata: str | None = "",
    generation: int = -1,
    member: str = NO_MEMBER,
) -> TxnOffsetCommitRequest:
    """Offsets of the first partitions of a topic."""
    partitions = tuple(
        TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        for number, offset in enumerate(offsets)
    )
    return TxnOffsetCommitRequest(
        transactional_id=story.name,
        group_id=group,
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        generation_id=generation,
        member_id=member,
        topics=(TxnOffsetCommitRequestTopic(name=topic, partitions=partitions),),
    )


def fetching(group: str, *, stable: bool) -> OffsetFetchRequest:
    topics = (OffsetFetchRequestTopics(name=TOPIC, partition_indexes=(0, 1, 2)),)
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),), require_stable=stable
    )


@pytest.mark.parametrize(
    ("version", "commit"), list(itertools.product(COMMIT_VERSIONS, (True, False)))
)
def test_offsets_are_committed_with_the_transaction(
    both: Both, tell: Tell, version: int, commit: bool
) -> None:
    group = f"committed-{version}-{commit}"
    story = tell(group)
    await_coordinator(both, group)
    story.init()
    story.ask(lambda identity: _adding(story, identity, group), 3)
    story.ask_leaders(lambda identity: committing(story, identity, group, 4, 5), version)
    for stable in (False, True):
        both.same(fetching(group, stable=stable), 9)
    story.end(commit=commit, version=OLD_END)
    story.await_state("CompleteCommit" if commit else "CompleteAbort")
    both.await_same(fetching(group, stable=True), 9)
    both.same(fetching(group, stable=False), 9)


def test_offsets_that_are_refused(both: Both, tell: Tell) -> None:
    group = "refused-offsets"
    story = tell(group)
    await_coordinator(both, group)
    story.init()
    story.ask_leaders(lambda identity: committing(story, identity, group, 1), 4)  # not added yet
    story.ask(lambda identity: _adding(story, identity, group), 3)
    story.ask_leaders(lambda i: committing(story, i, group, 1, topic="missing"), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, 2, 3, 4), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, metadata="x" * 5000), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, metadata=None), 4)
    story.ask_leaders(lambda i: committing(story, i, group, -7), 4)
    story.ask_leaders(lambda i: committing(story, i, "", 1), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, generation=3), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, generation=3, member="m"), 4)
    story.ask_leaders(lambda i: committing(story, i, group, 1, member="m"), 4)
    story.ask_leaders(lambda i: committing(story, i, group), 4, EMPTY_TOPIC)
    late = Identity(producer_id=9_000_000, epoch=0)
    story.ask_leaders(lambda _: committing(story, late, group, 1), 4)


def test_offsets_of_members(both: Both, tell: Tell) -> None:
    group = "members-in-txn"
    story, members = tell(group), GroupStory(both, group)
    try:
        members.enter("a")
        members.same("a", members.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
        story.init()
        story.ask(lambda identity: _adding(story, identity, group), 3)
        ids = {side.name: members._ids[side.name]["a"] for side in both.sides}
        for generation, known in ((1, True), (0, True), (2, True), (1, False), (-1, False)):
            found = []
            for side in both.sides:
                member = ids[side.name] if known else "stranger" * (generation > 0)
                request = committing(
                    story, story.identity(side), group, 9, generation=generation, member=member
                )
                found.append(side.exchange(request, 4))
            both.compare(*found, story=f"generation {generation}, known {known}")
    finally:
        members.close()


# -- what is shown


def test_transactions_are_described(tell: Tell) -> None:
    story = tell("described")

    def described(*names: str) -> None:
        story.ask(lambda _: DescribeTransactionsRequest(transactional_ids=names), 0)

    described("described")
    story.init(timeout_ms=12_345)
    described("described", "missing", "")
    described()
    twice = DescribeTransactionsRequest(transactional_ids=("described", "described"))
    story.ask(lambda _: twice, 0, DESCRIBED_ONCE)
    story.add((TOPIC, 0), (TOPIC, 2))
    described("described")
    story.end(commit=True, version=OLD_END)
    story.await_state("CompleteCommit")
    described("described")
    story.write(TOPIC, partition=1)
    described("described")


def test_transactions_are_listed(tell: Tell) -> None:
    idle, busy, done = (tell(f"listed-{name}") for name in ("idle", "busy", "done"))
    for story in (idle, busy, done):
        story.init()
    busy.add((TOPIC, 0))
    done.add((TOPIC, 0))
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


def test_transactions_of_producers_are_listed(tell: Tell) -> None:
    story = tell("listed-by-producer")
    story.init()

    def listed(*changes: int) -> None:
        def request(identity: Identity) -> Request:
            ids = tuple(identity.producer_id + change for change in changes)
            return ListTransactionsRequest(producer_id_filters=ids)

        story.ask(request, 2)

    listed(0)
    listed(0, 10**9)
    listed(10**9)


def test_producers_are_described(both: Both, tell: Tell) -> None:
    both.create("producers", 2)
    story = tell("producers")

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
