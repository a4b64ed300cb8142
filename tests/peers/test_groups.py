"""Consumer groups: every API of the classic protocol, in every version, as Kafka answers it."""

import itertools
from collections.abc import Callable, Iterator

import pytest

from sparklog.wire.protocol.messages.delete_groups import DeleteGroupsRequest
from sparklog.wire.protocol.messages.describe_groups import DescribeGroupsRequest
from sparklog.wire.protocol.messages.find_coordinator import FindCoordinatorRequest
from sparklog.wire.protocol.messages.heartbeat import HeartbeatRequest
from sparklog.wire.protocol.messages.join_group import JoinGroupRequest
from sparklog.wire.protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from sparklog.wire.protocol.messages.list_groups import ListGroupsRequest
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from sparklog.wire.protocol.messages.sync_group import SyncGroupRequest
from tests.peers.both import Both
from tests.peers.group_story import (
    NEWEST_JOIN,
    NEWEST_LEAVE,
    NEWEST_SYNC,
    GroupStory,
    await_coordinator,
    protocols,
)

TOPIC = "grouped"
HEARTBEAT, COMMIT, FETCH = 4, 10, 10
ILLEGAL_GENERATION, UNKNOWN_MEMBER, REBALANCING = 22, 25, 27
#: A subscription of the consumer protocol, version 0, to one topic, without user data.
SUBSCRIBED = b"\x00\x00" + b"\x00\x00\x00\x01" + b"\x00\x07" + TOPIC.encode() + b"\xff\xff\xff\xff"
#: FindCoordinator has an address, and the clients of the others a host.
ADDRESSES = (r".*client_host", r".*node_id", r".*\.host", r"host", r".*port")

Tell = Callable[[str], GroupStory]


@pytest.fixture(scope="module")
def topic(both: Both) -> str:
    return both.create(TOPIC, 3)


@pytest.fixture
def tell(both: Both) -> Iterator[Tell]:
    """Begins a story of a group."""
    stories: list[GroupStory] = []

    def begin(group: str) -> GroupStory:
        stories.append(GroupStory(both, group))
        return stories[-1]

    yield begin
    for story in stories:
        story.close()


# -- one member


@pytest.mark.parametrize("version", range(NEWEST_JOIN + 1))
def test_one_member_joins_syncs_beats_and_leaves(tell: Tell, version: int) -> None:
    story = tell(f"alone-{version}")
    joined = story.enter("a", version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    sync = min(version, NEWEST_SYNC)
    assert story.same("a", story.sync("a", 1, {"a": b"mine"}), sync).assignment == b"mine"
    assert story.same("a", story.beat("a", 1), min(version, HEARTBEAT)).error_code == 0
    story.described()
    assert story.same("a", story.sync("a", 1), sync).assignment == b"mine"
    leave = min(version, NEWEST_LEAVE)
    assert story.same("a", story.leave("a", leave), leave).error_code == 0
    story.described()
    assert story.same("a", story.beat("a", 1), 4).error_code == UNKNOWN_MEMBER


def test_a_member_that_joins_again_unchanged_keeps_its_generation(tell: Tell) -> None:
    story = tell("again")
    story.enter("a")
    story.same("a", story.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
    # The leader's is a new assignment.
    assert story.same("a", story.join("a"), NEWEST_JOIN).generation_id == 2
    # While the assignment is awaited it gets the same answer again.
    assert story.same("a", story.join("a"), NEWEST_JOIN).generation_id == 2
    changed = story.join("a", protocols=protocols("range", metadata=b"\x00\x01"))
    assert story.same("a", changed, NEWEST_JOIN).generation_id == 3


JOINS: dict[str, dict[str, object]] = {
    "an unknown member": {"member_id": "nobody"},
    "no group": {"group_id": ""},
    "a short session": {"session_timeout_ms": 10},
    "a long session": {"session_timeout_ms": 2_000_000_000},
    "no protocol": {"protocols": ()},
    "no protocol type": {"protocol_type": ""},
    "an unknown static member": {"member_id": "nobody", "group_instance_id": "i"},
}


@pytest.mark.parametrize("what", sorted(JOINS))
def test_joins_that_are_refused(tell: Tell, what: str) -> None:
    story = tell("refused-" + what.replace(" ", "-"))
    for version in (3, NEWEST_JOIN):
        refused = story.same("a", story.join("b", **JOINS[what]), version)
        assert refused.error_code != 0


def test_members_that_do_not_fit_are_refused(tell: Tell) -> None:
    story = tell("unfit")
    story.enter("a")
    story.same("a", story.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
    for unfit in ({"protocols": protocols("other")}, {"protocol_type": "connect"}):
        assert story.same("b", story.join("b", **unfit), 3).error_code == 23


def test_what_is_refused_to_strangers(tell: Tell) -> None:
    story = tell("strange")
    for name, generation in (("a", 1), ("", 1), ("a", -1)):
        story.same("a", story.beat(name, generation), HEARTBEAT)
        story.same("a", story.sync(name, generation), NEWEST_SYNC)
        story.same("a", story.leave(name), NEWEST_LEAVE)
        story.same("a", story.leave(name, 2), 2)
    story.enter("a")
    for generation in (0, 2, -1):
        found = story.same("a", story.beat("a", generation), HEARTBEAT)
        assert found.error_code == ILLEGAL_GENERATION
        story.same("a", story.sync("a", generation), NEWEST_SYNC)
    story.same("a", story.sync("a", 1, protocol_type="connect"), NEWEST_SYNC)
    story.same("a", story.sync("a", 1, protocol_name="other"), NEWEST_SYNC)
    story.same("a", story.beat("b", 1), HEARTBEAT)
    story.same("a", story.beat("a", 1, group_id=""), HEARTBEAT)
    story.same("a", story.sync("a", 1, group_id=""), NEWEST_SYNC)
    nobody = LeaveGroupRequest(group_id="", members=(MemberIdentity(member_id="b"),))
    story.same("a", lambda _: nobody, NEWEST_LEAVE)


# -- several members


def test_a_second_member_makes_the_first_join_again(tell: Tell) -> None:
    story = tell("two")
    story.enter("a")
    story.same("a", story.sync("a", 1, {"a": b"all"}), NEWEST_SYNC)
    story.begin_entering("b")
    story.await_error("a", story.beat("a", 1), HEARTBEAT, REBALANCING)
    story.tell("a", story.join("a"), NEWEST_JOIN)
    leader = story.hear("a", JoinGroupRequest, NEWEST_JOIN)
    follower = story.hear("b", JoinGroupRequest, NEWEST_JOIN)
    assert (leader.generation_id, len(leader.members), len(follower.members)) == (2, 2, 0)
    story.described()
    story.tell("b", story.sync("b", 2), NEWEST_SYNC)
    story.tell("a", story.sync("a", 2, {"a": b"one", "b": b"two"}), NEWEST_SYNC)
    assert story.hear("a", SyncGroupRequest, NEWEST_SYNC).assignment == b"one"
    assert story.hear("b", SyncGroupRequest, NEWEST_SYNC).assignment == b"two"
    story.described()
    # A follower that joins again unchanged gets what it has.
    assert story.same("b", story.join("b"), NEWEST_JOIN).generation_id == 2
    story.same("b", story.leave("b"), NEWEST_LEAVE)
    assert story.same("a", story.beat("a", 2), HEARTBEAT).error_code == REBALANCING
    assert story.same("a", story.join("a"), NEWEST_JOIN).generation_id == 3


def test_the_protocol_that_most_members_prefer_is_chosen(tell: Tell) -> None:
    story = tell("votes")
    wishes = {"a": ("x", "y", "z"), "b": ("y", "x"), "c": ("y", "x", "w")}
    story.enter("a", protocols=protocols(*wishes["a"]))
    story.begin_entering("b", protocols=protocols(*wishes["b"]))
    story.begin_entering("c", protocols=protocols(*wishes["c"]))
    story.tell("a", story.join("a", protocols=protocols(*wishes["a"])), NEWEST_JOIN)
    for name in wishes:
        assert story.hear(name, JoinGroupRequest, NEWEST_JOIN).protocol_name == "y"


def test_a_static_member_is_replaced_and_the_old_one_fenced(tell: Tell) -> None:
    story = tell("static")
    story.enter("a", group_instance_id="one")
    story.same("a", story.sync("a", 1, {"a": b"x"}, group_instance_id="one"), NEWEST_SYNC)
    joined = story.enter("new", group_instance_id="one")
    assert (joined.error_code, joined.generation_id, joined.skip_assignment) == (0, 1, True)
    story.same("new", story.sync("new", 1, group_instance_id="one"), NEWEST_SYNC)
    fenced = 82
    old = story.beat("a", 1, group_instance_id="one")
    assert story.same("a", old, HEARTBEAT).error_code == fenced
    story.same("a", story.sync("a", 1, group_instance_id="one"), NEWEST_SYNC)
    story.same("a", story.join("a", group_instance_id="one"), NEWEST_JOIN)
    story.same("a", story.leave("a", group_instance_id="one"), NEWEST_LEAVE)
    story.described()
    gone = LeaveGroupRequest(
        group_id=story.group,
        members=(
            MemberIdentity(group_instance_id="two"),
            MemberIdentity(group_instance_id="one", reason="removed"),
        ),
    )
    story.same("admin", lambda _: gone, NEWEST_LEAVE)
    story.described()


def test_a_static_member_of_older_versions_is_replaced(tell: Tell) -> None:
    for version in (5, 6, 8):
        story = tell(f"static-{version}")
        story.enter("a", version, group_instance_id="one")
        story.same("a", story.sync("a", 1, {"a": b"x"}, group_instance_id="one"), NEWEST_SYNC)
        story.enter("new", version, group_instance_id="one")
        story.described()


# -- offsets


def commit(
    group: str, *offsets: int, topic: str = TOPIC, metadata: str | None = "m", **more: object
) -> OffsetCommitRequest:
    parts = tuple(
        OffsetCommitRequestPartition(
            partition_index=number,
            committed_offset=offset,
            committed_leader_epoch=0,
            committed_metadata=metadata,
        )
        for number, offset in enumerate(offsets)
    )
    topics = (OffsetCommitRequestTopic(name=topic, partitions=parts),)
    return OffsetCommitRequest(**{"group_id": group, "topics": topics, **more})  # type: ignore[arg-type]


def fetch(group: str, version: int, *partitions: int, topic: str = TOPIC) -> OffsetFetchRequest:
    """Without partitions: everything."""
    if version < 8:
        old = (OffsetFetchRequestTopic(name=topic, partition_indexes=partitions),)
        return OffsetFetchRequest(group_id=group, topics=old if partitions else None)
    new = (OffsetFetchRequestTopics(name=topic, partition_indexes=partitions),)
    wanted = OffsetFetchRequestGroup(group_id=group, topics=new if partitions else None)
    return OffsetFetchRequest(groups=(wanted,), require_stable=True)


@pytest.mark.parametrize("version", range(2, 10))
def test_offsets_of_a_group_without_members(both: Both, topic: str, version: int) -> None:
    group = f"simple-{version}"
    await_coordinator(both, group)
    both.same(commit(group, 5, 7), version)
    for reading in range(1, 10):
        both.same(fetch(group, reading, 0, 1, 2, 9), reading)
        both.same(fetch(group, reading, 0, topic="missing"), reading)
        if reading >= 2:
            both.same(fetch(group, reading), reading)
    both.same(DescribeGroupsRequest(groups=(group,)), range(7))


def test_offsets_by_topic_id(both: Both, topic: str) -> None:
    group = "simple-by-id"
    await_coordinator(both, group)

    def by_id(side: object) -> OffsetCommitRequest:
        [named] = commit(group, 5, 7).topics
        known = OffsetCommitRequestTopic(
            topic_id=side.ids[topic],  # type: ignore[attr-defined]
            partitions=named.partitions,
        )
        return OffsetCommitRequest(group_id=group, topics=(known,))

    def wanted(side: object) -> OffsetFetchRequest:
        found = OffsetFetchRequestTopics(
            topic_id=side.ids[topic],  # type: ignore[attr-defined]
            partition_indexes=(0, 1, 2),
        )
        return OffsetFetchRequest(
            groups=(OffsetFetchRequestGroup(group_id=group, topics=(found,)),)
        )

    both.same(by_id, COMMIT)
    both.same(wanted, FETCH)
    both.same(fetch(group, FETCH), FETCH)


def test_commits_that_are_refused(both: Both, tell: Tell, topic: str) -> None:
    story = tell("commits")
    group = story.group
    for version in (2, 7, 9):
        both.same(commit(group, 1, topic="missing"), version)
        both.same(commit(group, 1, 1, 1, 1, 1), version)
        both.same(commit(group, 1, metadata="x" * 5000), version)
        both.same(commit(group, 1, metadata=None), version)
        both.same(commit(group, 1, generation_id_or_member_epoch=3), version)
        both.same(commit(group, 1, member_id="nobody"), version)
        both.same(commit("", 1), version)
    story.enter("a")
    as_member = {"generation_id_or_member_epoch": 1}
    story.same("a", lambda i: commit(group, 3, member_id=i("a"), **as_member), 9)
    story.same("a", story.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
    assert story.same("a", lambda i: commit(group, 3, member_id=i("a"), **as_member), 9)
    as_member["generation_id_or_member_epoch"] = 2
    story.same("a", lambda i: commit(group, 3, member_id=i("a"), **as_member), 9)
    both.same(commit(group, 4), 9)
    both.same(commit(group, 4, member_id="b", generation_id_or_member_epoch=1), 9)
    both.same(fetch(group, 9), 9)


def test_several_groups_at_once(both: Both, topic: str) -> None:
    for group in ("several-1", "several-2"):
        await_coordinator(both, group)
        both.same(commit(group, 8), 9)
    wanted = tuple(
        OffsetFetchRequestGroup(
            group_id=group,
            topics=(OffsetFetchRequestTopics(name=topic, partition_indexes=(0, 1)),),
        )
        for group in ("several-1", "several-2", "several-none", "")
    )
    both.same(OffsetFetchRequest(groups=wanted), (8, 9), where=(r"groups\[\d\]\.topics.*",))


def test_offsets_are_deleted(both: Both, tell: Tell, topic: str) -> None:
    story = tell("deleted-offsets")
    group = story.group

    def deletion(name: str = topic, of: str = group) -> OffsetDeleteRequest:
        parts = tuple(OffsetDeleteRequestPartition(partition_index=n) for n in (0, 1, 9))
        return OffsetDeleteRequest(
            group_id=of, topics=(OffsetDeleteRequestTopic(name=name, partitions=parts),)
        )

    both.same(deletion(), 0)
    both.same(deletion(of=""), 0)
    both.same(commit(group, 5, 6, 7), 9)
    both.same(deletion("missing"), 0)
    both.same(deletion(), 0)
    both.same(fetch(group, 9), 9)
    story.enter("a", protocols=protocols("range", metadata=SUBSCRIBED))
    story.same("a", story.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
    both.same(deletion(), 0)


# -- finding, listing and deleting


def test_groups_are_listed_by_state_and_type(both: Both, tell: Tell, topic: str) -> None:
    story = tell("listed")
    story.enter("a")
    story.same("a", story.sync("a", 1, {"a": b"x"}), NEWEST_SYNC)
    await_coordinator(both, "listed-empty")
    both.same(commit("listed-empty", 1), 9)
    states = ((), ("Stable",), ("Empty", "stable"), ("Nonsense",))
    types = ((), ("classic",), ("Classic", "consumer"), ("consumer",), ("nonsense",))
    for version in range(6):
        for states_filter, types_filter in itertools.product(
            states if version >= 4 else [()], types if version >= 5 else [()]
        ):
            request = ListGroupsRequest(states_filter=states_filter, types_filter=types_filter)
            kafka, ours = both.ask(request, version)
            assert _listed(ours) == _listed(kafka), (version, states_filter, types_filter)


def _listed(response: object) -> object:
    groups = response.groups  # type: ignore[attr-defined]
    found = [each for each in groups if each.group_id.startswith("listed")]
    return response.error_code, sorted(found, key=lambda each: each.group_id)  # type: ignore[attr-defined]


def test_groups_are_deleted(both: Both, tell: Tell, topic: str) -> None:
    story = tell("deleted")
    story.enter("a")
    await_coordinator(both, "deleted-empty")
    both.same(commit("deleted-empty", 1), 9)
    names = ("deleted", "deleted-empty", "deleted-missing", "")
    request = DeleteGroupsRequest(groups_names=names)
    both.same(request, 2, where=(r"results\[\d\].*",))
    kafka, ours = both.ask(request, 2)
    assert sorted((r.group_id, r.error_code) for r in ours.results) == sorted(
        (r.group_id, r.error_code) for r in kafka.results
    )
    both.same(fetch("deleted-empty", 9, 0), 9)
    both.same(DescribeGroupsRequest(groups=("deleted-empty",)), range(7))


def test_coordinators_are_found(each_node: Both) -> None:
    await_coordinator(each_node, "found")
    each_node.same(FindCoordinatorRequest(key="found"), range(4), where=ADDRESSES)
    many = FindCoordinatorRequest(coordinator_keys=("found", "other"))
    each_node.same(many, (4, 5, 6), where=ADDRESSES)


def test_an_unknown_group_is_described(both: Both) -> None:
    await_coordinator(both, "unknown")
    both.same(DescribeGroupsRequest(groups=("unknown",)), range(7))
    both.same(DescribeGroupsRequest(groups=("",)), range(7))
    operations = DescribeGroupsRequest(groups=("unknown",), include_authorized_operations=True)
    both.same(operations, (3, 6))


def test_a_heartbeat_of_every_version_is_refused_alike(both: Both) -> None:
    await_coordinator(both, "no-hearts")
    both.same(HeartbeatRequest(group_id="no-hearts", member_id="x", generation_id=1), range(5))
