"""OffsetCommit, OffsetFetch and OffsetDelete: topics, ids and errors in every version."""

import asyncio
from dataclasses import replace
from uuid import UUID

import pytest

from sparklog.errors import ErrorCode, KafkaError
from sparklog.executors.coordinator import CoordinatorRequest
from sparklog.metadata import TopicDeleted
from sparklog.wire.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from sparklog.wire.protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
    OffsetDeleteResponsePartition,
    OffsetDeleteResponseTopic,
)
from sparklog.wire.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.executors.coordinator.group_rig import ELSEWHERE, HERE, GroupRig, run

NOT_COORDINATOR = int(ErrorCode.NOT_COORDINATOR)
UNKNOWN = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
UNKNOWN_ID = int(ErrorCode.UNKNOWN_TOPIC_ID)
NO_TOPIC = UUID(int=0xBAD)


def topic_id(rig: GroupRig) -> UUID:
    return rig.replicas.image.topics["t"].topic_id


# -- OffsetCommit


def commit(rig: GroupRig, version: int, *, group_id: str = HERE) -> OffsetCommitRequest:
    """Offsets for two partitions that exist, one that does not, and a topic that does not."""
    by_id = version >= 10
    parts = tuple(
        OffsetCommitRequestPartition(partition_index=number, committed_offset=number + 10)
        for number in (1, 7, 0)
    )
    return OffsetCommitRequest(
        group_id=group_id,
        generation_id_or_member_epoch=3,
        member_id="m",
        topics=(
            OffsetCommitRequestTopic(name="gone", topic_id=NO_TOPIC, partitions=parts[:1]),
            OffsetCommitRequestTopic(
                name="" if by_id else "t", topic_id=topic_id(rig), partitions=parts
            ),
        ),
    )


def codes(response: OffsetCommitResponse) -> list[tuple[object, int, int]]:
    """Topic, partition and error code of everything in a response."""
    return [
        (topic.topic_id or topic.name, part.partition_index, part.error_code)
        for topic in response.topics
        for part in topic.partitions
    ]


def committed(request: CoordinatorRequest) -> OffsetCommitResponse:
    assert isinstance(request.body, OffsetCommitRequest)
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=tuple(
                    OffsetCommitResponsePartition(partition_index=part.partition_index)
                    for part in topic.partitions
                ),
            )
            for topic in request.body.topics
        )
    )


@pytest.mark.parametrize("version", range(2, 11))
def test_partitions_that_do_not_exist_are_refused_and_the_others_committed(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = committed
        response = await rig.ask(commit(rig, version), version)
        gone, there = (NO_TOPIC, topic_id(rig)) if version >= 10 else ("gone", "t")
        unknown = UNKNOWN_ID if version >= 10 else UNKNOWN
        assert codes(response) == [
            (gone, 1, unknown),
            (there, 1, 0),
            (there, 7, UNKNOWN),
            (there, 0, 0),
        ]
        (seen,) = rig.seen
        assert isinstance(seen.body, OffsetCommitRequest)
        (topic,) = seen.body.topics
        assert topic.name == "t"
        assert [(p.partition_index, p.committed_offset) for p in topic.partitions] == [
            (1, 11),
            (0, 10),
        ]

    run(test)


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_refused_commit_answers_every_partition(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        unknown = UNKNOWN_ID if version >= 10 else UNKNOWN
        for error, code in (
            (ErrorCode.ILLEGAL_GENERATION, ErrorCode.ILLEGAL_GENERATION),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
            (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        ):
            rig.script = lambda _, error=error: KafkaError(error)  # type: ignore[misc]
            response = await rig.ask(commit(rig, version), version)
            found = [code for _, _, code in codes(response)]
            assert found == [unknown, code, UNKNOWN, code]
        response = await rig.ask(commit(rig, version, group_id=ELSEWHERE), version)
        found = [code for _, _, code in codes(response)]
        assert found == [unknown, NOT_COORDINATOR, UNKNOWN, NOT_COORDINATOR]

    run(test)


def commit_of_existing(rig: GroupRig, version: int, group_id: str = HERE) -> OffsetCommitRequest:
    """Offsets for two partitions that exist."""
    request = commit(rig, version, group_id=group_id)
    topic = request.topics[1]
    parts = tuple(part for part in topic.partitions if part.partition_index < 2)
    return replace(request, topics=(replace(topic, partitions=parts),))


@pytest.mark.parametrize("version", [2, 9, 10])
def test_a_commit_of_partitions_that_exist_reaches_the_coordinator_whole(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = committed
        there = topic_id(rig) if version >= 10 else "t"
        request = commit_of_existing(rig, version)
        assert codes(await rig.ask(request, version)) == [(there, 1, 0), (there, 0, 0)]
        named = replace(request.topics[0], name="t", topic_id=topic_id(rig))
        (seen,) = rig.seen
        assert isinstance(seen.body, OffsetCommitRequest)
        assert [(t.name, t.topic_id) for t in seen.body.topics] == [("t", named.topic_id)]
        rig.script = lambda _: KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        code = int(ErrorCode.INVALID_COMMIT_OFFSET_SIZE)
        assert codes(await rig.ask(request, version)) == [(there, 1, code), (there, 0, code)]
        elsewhere = commit_of_existing(rig, version, ELSEWHERE)
        assert {code for _, _, code in codes(await rig.ask(elsewhere, version))} == {
            NOT_COORDINATOR
        }

    run(test)


def test_commits_that_arrive_together_are_decided_in_one_turn_of_the_loop() -> None:
    async def test(rig: GroupRig) -> None:
        decided: list[int] = []

        def script(request: CoordinatorRequest) -> OffsetCommitResponse:
            if len(rig.seen) == 1:
                asyncio.get_running_loop().call_soon(lambda: decided.append(len(rig.seen)))
            return committed(request)

        rig.script = script
        client = await rig.connect()
        request = commit_of_existing(rig, 9)
        await asyncio.gather(*[rig.ask(request, 9, client) for _ in range(5)])
        assert decided == [5]

    run(test)


def test_a_commit_without_any_known_partition_does_not_reach_the_coordinator() -> None:
    async def test(rig: GroupRig) -> None:
        part = OffsetCommitRequestPartition(partition_index=0)
        topic = OffsetCommitRequestTopic(name="gone", partitions=(part,))
        response = await rig.ask(OffsetCommitRequest(group_id=ELSEWHERE, topics=(topic,)), 9)
        assert codes(response) == [("gone", 0, UNKNOWN)]
        assert await rig.ask(OffsetCommitRequest(group_id=HERE), 9) == OffsetCommitResponse()
        assert rig.seen == []

    run(test)


def test_a_commit_of_many_partitions_is_answered_in_their_order() -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = committed
        parts = tuple(OffsetCommitRequestPartition(partition_index=n) for n in range(2000))
        topic = OffsetCommitRequestTopic(name="t", partitions=parts)
        response = await rig.ask(OffsetCommitRequest(group_id=HERE, topics=(topic,)), 9)
        assert codes(response) == [("t", n, 0 if n < 2 else UNKNOWN) for n in range(2000)]

    run(test)


@pytest.mark.parametrize(("version", "code"), [(9, UNKNOWN), (10, UNKNOWN_ID)])
def test_a_topic_that_is_deleted_during_a_long_commit_gets_no_offsets(
    version: int, code: int
) -> None:
    """Its tombstones may have been written already, and nothing would end later offsets."""

    async def test(rig: GroupRig) -> None:
        def script(request: CoordinatorRequest) -> OffsetCommitResponse:
            if len(rig.seen) == 1:
                gone = TopicDeleted(topic="t", topic_id=topic_id(rig))
                rig.replicas.image.replay_commit(rig.replicas.image.version + 1, [gone])
            return committed(request)

        rig.script = script
        numbers = [0] * 250 + [1] * 2000
        parts = tuple(OffsetCommitRequestPartition(partition_index=each) for each in numbers)
        topic = OffsetCommitRequestTopic(name="t", topic_id=topic_id(rig), partitions=parts)
        response = await rig.ask(OffsetCommitRequest(group_id=HERE, topics=(topic,)), version)
        assert [part.error_code for part in response.topics[0].partitions] == (
            [0] * 250 + [code] * 2000
        )
        assert len(rig.seen) == 1

    run(test)


# -- OffsetFetch


def fetched(request: CoordinatorRequest) -> OffsetFetchResponse:
    """Offset 5 of partition 0 of ``t``, and of a topic that was deleted since."""
    assert isinstance(request.body, OffsetFetchRequest)
    (group,) = request.body.groups
    part = OffsetFetchResponsePartitions(
        partition_index=0, committed_offset=5, committed_leader_epoch=2, metadata="x"
    )
    names = ["t", "deleted"] if group.topics is None else [topic.name for topic in group.topics]
    topics = tuple(OffsetFetchResponseTopics(name=name, partitions=(part,)) for name in names)
    return OffsetFetchResponse(
        groups=(OffsetFetchResponseGroup(group_id=group.group_id, topics=topics),)
    )


@pytest.mark.parametrize("version", range(1, 8))
def test_offsets_of_one_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = fetched
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0,))
        request = OffsetFetchRequest(group_id=HERE, topics=(topic,), require_stable=version == 7)
        response = await rig.ask(request, version)
        ((part,),) = [topic.partitions for topic in response.topics]
        assert (part.partition_index, part.committed_offset, part.metadata) == (0, 5, "x")
        assert part.committed_leader_epoch == (2 if version >= 5 else -1)
        assert response.error_code == part.error_code == 0
        (seen,) = rig.seen
        assert isinstance(seen.body, OffsetFetchRequest)
        assert seen.body == OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(
                    group_id=HERE,
                    topics=(
                        OffsetFetchRequestTopics(
                            name="t",
                            topic_id=topic_id(rig),
                            partition_indexes=(0,),
                        ),
                    ),
                ),
            ),
            require_stable=version == 7,
        )

    run(test)


@pytest.mark.parametrize("version", range(2, 8))
def test_all_offsets_of_one_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = fetched
        response = await rig.ask(OffsetFetchRequest(group_id=HERE), version)
        assert [topic.name for topic in response.topics] == ["t", "deleted"]

    run(test)


@pytest.mark.parametrize("version", range(1, 8))
def test_a_refused_fetch_of_one_group(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        topic = OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1))
        rig.script = lambda _: KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        for group_id in (HERE, ELSEWHERE):
            request = OffsetFetchRequest(group_id=group_id, topics=(topic,))
            response = await rig.ask(request, version)
            if version >= 2:
                assert response.error_code == NOT_COORDINATOR
            else:
                (answered,) = response.topics
                assert [
                    (p.partition_index, p.committed_offset, p.metadata, p.error_code)
                    for p in answered.partitions
                ] == [(0, -1, "", NOT_COORDINATOR), (1, -1, "", NOT_COORDINATOR)]

    run(test)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_offsets_of_several_groups(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = fetched
        by_id = version >= 10
        topics = (
            OffsetFetchRequestTopics(name="t", topic_id=topic_id(rig), partition_indexes=(0,)),
            OffsetFetchRequestTopics(name="gone", topic_id=NO_TOPIC, partition_indexes=(4, 2)),
        )
        request = OffsetFetchRequest(
            groups=(
                OffsetFetchRequestGroup(group_id=HERE, topics=topics if by_id else topics[:1]),
                OffsetFetchRequestGroup(group_id=ELSEWHERE, topics=topics),
                OffsetFetchRequestGroup(group_id=HERE),
            )
        )
        here, elsewhere = (await rig.ask(request, version)).groups
        assert (here.group_id, here.error_code) == (HERE, 0)
        assert (elsewhere.group_id, elsewhere.error_code) == (ELSEWHERE, NOT_COORDINATOR)
        found = [
            (topic.topic_id or topic.name, part.partition_index, part.committed_offset,
             part.error_code)
            for topic in here.topics for part in topic.partitions
        ]  # fmt: skip
        if by_id:
            assert found == [
                (topic_id(rig), 0, 5, 0),
                (NO_TOPIC, 4, -1, UNKNOWN_ID),
                (NO_TOPIC, 2, -1, UNKNOWN_ID),
            ]
        else:
            assert found == [("t", 0, 5, 0)]
        (seen,) = rig.seen
        assert isinstance(seen.body, OffsetFetchRequest)
        assert [t.name for t in seen.body.groups[0].topics or ()] == ["t"]

    run(test)


@pytest.mark.parametrize("version", range(2, 11))
def test_offsets_of_an_earlier_topic_are_not_those_of_the_present_one(version: int) -> None:
    """Their tombstones may be yet to be written when a topic has been created anew."""

    async def test(rig: GroupRig) -> None:
        def of_two_topics(request: CoordinatorRequest) -> OffsetFetchResponse:
            (group,) = fetched(request).groups
            (part,) = group.topics[0].partitions
            topics = tuple(
                OffsetFetchResponseTopics(
                    name="t", topic_id=each, partitions=(replace(part, partition_index=number),)
                )
                for number, each in enumerate((NO_TOPIC, topic_id(rig)))
            )
            return OffsetFetchResponse(groups=(replace(group, topics=topics),))

        rig.script = of_two_topics
        if version < 8:
            found = (await rig.ask(OffsetFetchRequest(group_id=HERE), version)).topics
        else:
            request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE),))
            found = (await rig.ask(request, version)).groups[0].topics
        assert [part.partition_index for topic in found for part in topic.partitions] == [1]

    run(test)


@pytest.mark.parametrize("version", [8, 9, 10])
def test_all_offsets_of_several_groups(version: int) -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = fetched
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE),))
        (group,) = (await rig.ask(request, version)).groups
        found = [topic.topic_id or topic.name for topic in group.topics]
        assert found == ([topic_id(rig)] if version >= 10 else ["t", "deleted"])

    run(test)


def test_a_group_error_of_the_state_machine_is_kept() -> None:
    async def test(rig: GroupRig) -> None:
        code = int(ErrorCode.UNKNOWN_MEMBER_ID)
        group = OffsetFetchResponseGroup(group_id=HERE, error_code=code)
        rig.script = lambda _: OffsetFetchResponse(groups=(group,))
        request = OffsetFetchRequest(groups=(OffsetFetchRequestGroup(group_id=HERE),))
        assert (await rig.ask(request)).groups[0].error_code == code
        assert (await rig.ask(OffsetFetchRequest(group_id=HERE), 7)).error_code == code

    run(test)


# -- OffsetDelete


def delete(*names: str, group_id: str = HERE) -> OffsetDeleteRequest:
    parts = tuple(OffsetDeleteRequestPartition(partition_index=number) for number in (0, 7))
    topics = tuple(OffsetDeleteRequestTopic(name=name, partitions=parts) for name in names)
    return OffsetDeleteRequest(group_id=group_id, topics=topics)


def test_offsets_of_partitions_that_exist_are_deleted() -> None:
    async def test(rig: GroupRig) -> None:
        code = int(ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC)
        part = OffsetDeleteResponsePartition(partition_index=0, error_code=code)
        topic = OffsetDeleteResponseTopic(name="t", partitions=(part,))
        rig.script = lambda _: OffsetDeleteResponse(topics=(topic,))
        response = await rig.ask(delete("gone", "t"))
        assert [
            (topic.name, part.partition_index, part.error_code)
            for topic in response.topics
            for part in topic.partitions
        ] == [("gone", 0, UNKNOWN), ("gone", 7, UNKNOWN), ("t", 0, code), ("t", 7, UNKNOWN)]
        (seen,) = rig.seen
        assert isinstance(seen.body, OffsetDeleteRequest)
        assert [topic.name for topic in seen.body.topics] == ["t"]

    run(test)


def test_a_refused_deletion_has_no_partitions() -> None:
    async def test(rig: GroupRig) -> None:
        rig.script = lambda _: OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        response = await rig.ask(delete("gone"))
        assert response == OffsetDeleteResponse(error_code=ErrorCode.GROUP_ID_NOT_FOUND)
        elsewhere = await rig.ask(delete("t", group_id=ELSEWHERE))
        assert elsewhere == OffsetDeleteResponse(error_code=NOT_COORDINATOR)
        nameless = await rig.ask(delete("t", group_id=""))
        assert nameless == OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID)

    run(test)
