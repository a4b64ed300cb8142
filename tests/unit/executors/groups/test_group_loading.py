"""A new coordinator: what it loads, and what a member finds there."""

from dataclasses import replace

from sparklog.config import BrokerConfig
from sparklog.errors import ErrorCode
from sparklog.executors.coordinator import CoordinatorRecord, Decision
from sparklog.executors.groups import GroupConfig
from sparklog.executors.groups.record_schemas import (
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
)
from sparklog.executors.groups.records import group_record, offset_record
from tests.unit.executors.groups.group_rig import (
    CONFIG,
    GROUP,
    RANGE,
    SESSION_MS,
    GroupRig,
    commit,
    fetched,
    heartbeat,
    join,
    leave,
    responses_of,
    sync,
)


def test_members_go_on_in_their_generation_with_a_whole_session() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    before = rig.described()
    rig.advance(SESSION_MS - 1)
    rig.load()
    assert rig.described() == before
    assert rig.advance(SESSION_MS - 1) == Decision()
    assert rig.ask(heartbeat(leader, 1), 4).error_code == ErrorCode.NONE
    assert rig.ask(sync(follower, 1), 5).assignment == f"of {follower}".encode()
    rig.advance(1)
    assert rig.state == "PreparingRebalance"


def test_a_generation_without_an_assignment_is_lost() -> None:
    rig = GroupRig()
    leader, follower = rig.stable(2)
    rig.send(join(leader), 9)
    rig.send(join(follower), 9)
    rig.load()
    assert rig.state == "Stable"
    assert rig.ask(sync(leader, 2), 5).error_code == ErrorCode.ILLEGAL_GENERATION
    rig.send(join(leader), 9)
    joined = responses_of(rig.send(join(follower), 9))
    assert {each.generation_id for each in joined} == {2}


def test_an_empty_group_keeps_its_generation() -> None:
    rig = GroupRig()
    (leader,) = rig.stable()
    rig.send(commit({("orders", 0): 5}, leader, 1), 9)
    rig.send(leave(leader), 5)
    rig.load()
    rig.send(join(), 3)
    (response,) = rig.finish_initial_rebalance()
    assert response.generation_id == 3
    assert fetched(rig) == {("orders", 0): 5}


def test_the_last_record_of_a_group_counts() -> None:
    first, second = GroupRig(), GroupRig()
    first.stable()
    second.stable(2)
    rig = GroupRig(log=[*first.log, *second.log])
    assert rig.described() == second.described()
    assert GroupRig(log=[*second.log, group_record(GROUP, None)]).state == "Dead"


def test_a_group_with_offsets_and_without_a_record_is_a_simple_one() -> None:
    key = OffsetCommitKey(group=GROUP, topic="t", partition=0)
    rig = GroupRig(log=[offset_record(key, OffsetCommitValue(offset=1))])
    assert (rig.described().group_state, rig.described().protocol_type) == ("Empty", "")
    rig = GroupRig(log=[*rig.log, offset_record(key, None)])
    assert rig.state == "Dead"


def test_a_record_of_a_member_without_rebalance_timeout_or_leader_is_loaded() -> None:
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=7,
        protocol="range",
        leader=None,
        members=(
            MemberMetadata(member_id="m", session_timeout=SESSION_MS, subscription=RANGE.metadata),
        ),
    )
    rig = GroupRig(log=[group_record(GROUP, value)])
    (response,) = responses_of(rig.send(join("m"), 9))
    assert (response.leader, response.generation_id) == ("m", 8)


def test_records_of_other_kinds_are_ignored() -> None:
    rig = GroupRig(log=[CoordinatorRecord(key=b"\x00\x03\x00\x01g", value=b"\x00\x00")])
    assert rig.state == "Dead"


def test_the_settings_are_those_of_the_broker() -> None:
    assert GroupConfig.of(BrokerConfig()) == replace(CONFIG, group_bytes_max=1_000_000)
    config = BrokerConfig.resolve(
        {
            "group.initial.rebalance.delay.ms": "1",
            "group.min.session.timeout.ms": "2",
            "group.max.session.timeout.ms": "3",
            "group.max.size": "4",
            "offset.metadata.max.bytes": "5",
            "offsets.retention.minutes": "6",
            "offsets.retention.check.interval.ms": "7",
            "message.max.bytes": "48589",
        }
    )
    assert GroupConfig.of(config) == GroupConfig(
        initial_rebalance_delay_ms=1,
        min_session_timeout_ms=2,
        max_session_timeout_ms=3,
        size_max=4,
        metadata_bytes_max=5,
        retention_ms=360_000,
        retention_check_interval_ms=7,
        group_bytes_max=1,
    )


def test_a_group_fits_into_a_segment() -> None:
    """A batch that is larger than a segment is refused, after its group has gone ahead."""
    config = BrokerConfig.resolve({"offsets.topic.segment.bytes": "48600"})
    assert GroupConfig.of(config).group_bytes_max == 12
