"""Topics with three replicas, their elections and their reassignments, as both have them."""

import pytest

from sparklog.wire.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from sparklog.wire.protocol.messages.describe_topic_partitions import (
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from sparklog.wire.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from sparklog.wire.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from sparklog.wire.protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.peers.both import PRODUCE_VERSION, TIMEOUT_MS, Both, batch, produce
from tests.peers.deviations import (
    LAST_LEADER,
    LOG_START,
    NAMED_TWICE,
    NODE_ZERO,
    ONCE,
    OTHER_CONTROLLER,
    UNKNOWN_ELECTION,
    Deviation,
)
from tests.peers.trios import Moves, Trios, moving

ROUND = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
NODES = ("1", "2", "3", "control plane")
METADATA_VERSIONS = (1, 4, 5, 7, 8, 13)
PREFERRED, UNCLEAN = 0, 1
ELECTIONS = range(ElectLeadersRequest.MAX_VERSION + 1)
REASSIGNMENTS = range(AlterPartitionReassignmentsRequest.MAX_VERSION + 1)


def metadata(name: str) -> MetadataRequest:
    return MetadataRequest(topics=(MetadataRequestTopic(name=name),))


def describing(name: str) -> DescribeTopicPartitionsRequest:
    return DescribeTopicPartitionsRequest(topics=(TopicRequest(name=name),))


def check(trios: Trios, topic: str, *meant: Deviation, hung: str = "") -> None:
    """What nodes of ours say of a topic is what Kafka says."""
    for node in NODES:
        if node == hung:
            continue
        at = trios.at(node)
        for version in METADATA_VERSIONS:
            at.await_same(metadata(topic), version, NODE_ZERO, OTHER_CONTROLLER)
        at.await_same(describing(topic), 0, *meant)


@pytest.fixture(params=("2", "control plane"))
def node(request: pytest.FixtureRequest, trios: Trios) -> Both:
    """A broker, which has to pass on what the controller decides, and the controller."""
    return trios.at(request.param)


def test_replicas_stand_where_they_were_placed(trios: Trios) -> None:
    check(trios, trios.place("placed", ROUND))


# -- elections


def election(kind: int, wanted: dict[str, tuple[int, ...]] | None) -> ElectLeadersRequest:
    topics = None
    if wanted is not None:
        topics = tuple(
            TopicPartitions(topic=name, partitions=numbers) for name, numbers in wanted.items()
        )
    return ElectLeadersRequest(election_type=kind, topic_partitions=topics, timeout_ms=TIMEOUT_MS)


@pytest.mark.parametrize("kind", [PREFERRED, UNCLEAN, 2, -1])
def test_elections_where_none_is_needed_or_none_can_be(trios: Trios, node: Both, kind: int) -> None:
    trios.place(name := f"elected-{kind}-{node.node[0]}", ROUND)
    unknown = () if kind in (PREFERRED, UNCLEAN) else (UNKNOWN_ELECTION,)
    for version in ELECTIONS:
        node.same(election(kind, {name: (0, 2, 9, -1), "not-there": (0,), "b d": (1,)}), version)
        node.same(election(kind, {name: ()}), version)
        node.same(election(kind, {}), version, *(unknown if version else ()))
        node.same(election(kind, None), version, where=(r"replica_election_results.*",))
    node.same(election(PREFERRED, {name: (1, 1)}), 2, ONCE)
    check(trios, name)


# -- reassignments


def listing(name: str | None, *numbers: int) -> ListPartitionReassignmentsRequest:
    topics = None
    if name is not None:
        topics = (ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers),)
    return ListPartitionReassignmentsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


NO_MOVES: tuple[Moves, ...] = (
    {9: (1, 2)},
    {-1: (1, 2)},
    {0: ()},
    {0: (1, 1)},
    {0: (-1, 2)},
    {0: (1, 9)},
    {0: (1, 0)},
    {0: None},
    {9: None},
    {},
    {0: (1, 2, 3)},
    {0: (1, 2, 3), 1: (9,), 7: None},
)


def test_reassignments_that_change_nothing(trios: Trios, node: Both) -> None:
    trios.place(name := f"kept-{node.node[0]}", ROUND)
    for moves in NO_MOVES:
        node.same(moving(name, moves), REASSIGNMENTS)
        node.same(moving("not-there", moves), REASSIGNMENTS)
    node.same(AlterPartitionReassignmentsRequest(), REASSIGNMENTS)
    check(trios, name)


def test_other_replicas_of_a_partition_named_twice(trios: Trios, node: Both) -> None:
    trios.place(name := f"twice-{node.node[0]}", ROUND)
    twice = tuple(
        ReassignablePartition(partition_index=0, replicas=replicas)
        for replicas in ((1, 2, 3), (1, 2, 3))
    )
    topic = ReassignableTopic(name=name, partitions=twice)
    node.same(AlterPartitionReassignmentsRequest(topics=(topic,)), 0, NAMED_TWICE)


def test_fewer_replicas_and_another_order_are_there_at_once(trios: Trios, node: Both) -> None:
    trios.place(name := f"reordered-{node.node[0]}", ROUND)
    node.same(moving(name, {0: (3, 2, 1), 1: (2, 3), 2: (1,)}), 1)
    check(trios, name)
    node.same(election(PREFERRED, {name: (0, 1, 2)}), 2)
    check(trios, name)
    for wanted in (listing(name, 0, 1, 9), listing(name), listing("not-there", 0), listing(None)):
        node.same(wanted, 0)


def test_a_number_of_replicas_that_must_stay(trios: Trios, node: Both) -> None:
    trios.place(name := f"factor-{node.node[0]}", ROUND)
    for moves in ({0: (1, 2)}, {0: (1, 3, 2)}, {0: (1, 3, 2), 1: (3,), 2: None}):
        node.same(moving(name, moves, allow_replication_factor_change=False), 1)
    check(trios, name)


# -- while a broker hangs


def test_a_broker_hangs_and_comes_back(trios: Trios) -> None:
    plain = trios.place("hung", ROUND)
    strict = trios.place("hung-strict", ROUND, min_insync_replicas="3")
    alone = trios.place("hung-alone", ((3,), (1,)))
    trios.hang(3, plain)
    try:
        for topic in (plain, strict):
            check(trios, topic, hung="3")
        check(trios, alone, LAST_LEADER, hung="3")
        for version in ELECTIONS:
            for kind in (PREFERRED, UNCLEAN):
                wanted = {plain: (0, 2), alone: (0, 1)}
                trios.same(election(kind, wanted), version)
        for topic, acks in ((plain, -1), (strict, 1)):
            trios.same(produce(topic, batch(b"x"), acks=acks), PRODUCE_VERSION)
        trios.same(produce(strict, batch(b"x")), PRODUCE_VERSION, LOG_START)
    finally:
        trios.resume(3, plain, strict, alone)
    for topic in (plain, strict, alone):
        check(trios, topic)
    trios.same(produce(strict, batch(b"x")), PRODUCE_VERSION)
    trios.same(election(PREFERRED, {plain: (0, 1, 2)}), 2)
    check(trios, plain)


def test_reassignments_wait_for_a_broker_that_hangs(trios: Trios) -> None:
    watched = trios.place("watched", ROUND)
    names = [trios.place(name, ((1, 2), (2, 3))) for name in ("awaited", "replaced", "cancelled")]
    trios.hang(3, watched)
    try:
        for name in names:
            trios.same(moving(name, {0: (1, 3), 1: (2, 3)}), 1)
            trios.same(moving(name, {0: (3, 2)}, allow_replication_factor_change=False), 1)
            trios.same(listing(name, 0, 1), 0)
            check(trios, name, hung="3")
        awaited, replaced, cancelled = names
        trios.same(moving(replaced, {0: (3, 2)}), 1)
        trios.same(moving(cancelled, {0: None, 1: None}), 1)
        for name in (replaced, cancelled):
            trios.same(listing(name, 0, 1), 0)
            check(trios, name, hung="3")
        trios.same(moving(cancelled, {0: None}), 1)
    finally:
        trios.resume(3, watched)
    for name in (awaited, replaced, cancelled):
        trios.await_partitions(name, lambda all_: all(len(p.replica_nodes) == 2 for p in all_))
        trios.same(listing(name, 0, 1), 0)
        check(trios, name)
