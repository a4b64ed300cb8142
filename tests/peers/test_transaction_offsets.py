"""Offsets in transactions: AddOffsetsToTxn and TxnOffsetCommit, as Kafka answers them."""

import itertools

import pytest

from sparklog.wire.protocol.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
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
from tests.peers.both import Both
from tests.peers.deviations import EMPTY_TOPIC
from tests.peers.group_story import NEWEST_SYNC, GroupStory, await_coordinator
from tests.peers.transaction_story import (
    OLD_END,
    TRANSACTED,
    Identity,
    TellTransactions,
    TransactionStory,
)

OFFSETS_VERSIONS, COMMIT_VERSIONS = range(5), range(6)
NO_MEMBER = ""


@pytest.mark.parametrize("version", OFFSETS_VERSIONS)
def test_groups_are_added(tell_transactions: TellTransactions, version: int) -> None:
    story = tell_transactions(f"groups-{version}")
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
    topic: str = TRANSACTED,
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
    topics = (OffsetFetchRequestTopics(name=TRANSACTED, partition_indexes=(0, 1, 2)),)
    return OffsetFetchRequest(
        groups=(OffsetFetchRequestGroup(group_id=group, topics=topics),), require_stable=stable
    )


@pytest.mark.parametrize(
    ("version", "commit"), list(itertools.product(COMMIT_VERSIONS, (True, False)))
)
def test_offsets_are_committed_with_the_transaction(
    both: Both, tell_transactions: TellTransactions, version: int, commit: bool
) -> None:
    group = f"committed-{version}-{commit}"
    story = tell_transactions(group)
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


def test_offsets_that_are_refused(both: Both, tell_transactions: TellTransactions) -> None:
    group = "refused-offsets"
    story = tell_transactions(group)
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


def test_offsets_of_members(both: Both, tell_transactions: TellTransactions) -> None:
    group = "members-in-txn"
    story, members = tell_transactions(group), GroupStory(both, group)
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
