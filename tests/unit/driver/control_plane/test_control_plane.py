"""The control plane on a real event loop and real sockets, with its journal on a memory disk."""

import asyncio
import json
from dataclasses import replace

import pytest

from sparklog.driver.control_plane.control_plane import (
    ControlPlane,
    ForeignClusterError,
)
from sparklog.driver.control_plane.handlers.create_internal_topic import internal_topic_creator
from sparklog.driver.control_plane.journal import JournalConflict, commit_name
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.errors import ConfigError, ErrorCode, KafkaError, StartError, StorageError
from sparklog.metadata import ClusterImage, decode_records
from sparklog.metadata.topic_names import CONSUMER_OFFSETS
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.registry import open_file_half
from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from sparklog.wire.protocol.messages.describe_cluster import DescribeClusterRequest
from sparklog.wire.protocol.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from sparklog.wire.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from sparklog.wire.protocol.messages.init_producer_id import InitProducerIdRequest
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from sparklog.wire.protocol.private import (
    FIRST_PRIVATE_KEY,
    PRIVATE_MESSAGES,
    AllocateProducerIdsRequest,
    AssignBrokersRequest,
    BrokerHeartbeatRequest,
    CreateInternalTopicRequest,
    CreateInternalTopicResponse,
    ForwardRequestRequest,
    NodeStatusRequest,
    ReportDamageRequest,
    ReportLossRequest,
    StopNodeRequest,
    WatchMetadataRequest,
)
from sparklog.wire.protocol.private_clients import (
    ConsistentCutRequest,
    ReadRemoteSegmentsRequest,
)
from sparklog.wire.protocol.private_replicas import (
    ReadCleanOffsetRequest,
    ReadLocalStartRequest,
    ReadTieredStateRequest,
)
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, options_of, run

TOPIC = CreatableTopic(name="flights", num_partitions=6, replication_factor=1)


def test_topics_are_made_changed_and_deleted(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        before = under_test.control_plane.image.version
        created = await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        assert [(t.name, t.error_code, t.num_partitions) for t in created.topics] == [
            ("flights", 0, 6)
        ]
        assert under_test.control_plane.image.version == before + 1
        again = await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        assert again.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS

        more = CreatePartitionsTopic(name="flights", count=8)
        added = await under_test.ask(CreatePartitionsRequest(topics=(more,)))
        assert [result.error_code for result in added.results] == [0]

        change = AlterableConfig(name="retention.ms", value="1000")
        resource = AlterConfigsResource(resource_type=2, resource_name="flights", configs=(change,))
        altered = await under_test.ask(IncrementalAlterConfigsRequest(resources=(resource,)))
        assert [response.error_code for response in altered.responses] == [0]
        wanted = DescribeConfigsResource(
            resource_type=2, resource_name="flights", configuration_keys=("retention.ms",)
        )
        described = await under_test.ask(DescribeConfigsRequest(resources=(wanted,)))
        assert [c.value for c in described.results[0].configs] == ["1000"]

        metadata = await under_test.ask(MetadataRequest(topics=None))
        assert [(t.name, len(t.partitions)) for t in metadata.topics] == [("flights", 8)]
        assert {p.leader_id for p in metadata.topics[0].partitions} == {1}

        topic_id = metadata.topics[0].topic_id
        gone = DeleteTopicsRequest(topics=(DeleteTopicState(topic_id=topic_id),))
        deleted = await under_test.ask(gone)
        assert [(r.name, r.error_code) for r in deleted.responses] == [("flights", 0)]
        assert (await under_test.ask(MetadataRequest(topics=None))).topics == ()

    run(request, story)


def test_it_is_node_0_and_the_controller(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register(3)
        port = under_test.control_plane.port
        metadata = await under_test.ask(MetadataRequest(topics=()))
        nodes = {(node.node_id, node.host, node.port) for node in metadata.brokers}
        assert nodes == {(0, "127.0.0.1", port), (3, "127.0.0.1", 9103)}
        assert metadata.controller_id == 0
        cluster = await under_test.ask(DescribeClusterRequest())
        assert (cluster.controller_id, {b.broker_id for b in cluster.brokers}) == (0, {0, 3})
        assert cluster.cluster_id == under_test.control_plane.image.cluster_id

    run(request, story)


def test_librdkafkas_way_to_ask_for_all_topics_is_understood(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        header = encode_request(MetadataRequest(topics=None), 13, 5, "rdkafka")[:-4]
        payload = header + bytes.fromhex("00000000010000")  # as librdkafka 2.12 sends it
        answer = await under_test.client.exchange(MetadataRequest.API_KEY, (payload,))
        _, response = decode_response(MetadataResponse, 13, answer)
        assert [topic.name for topic in response.topics] == ["flights"]

    run(request, story)


def test_old_versions_of_delete_topics_name_topics(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        message = DeleteTopicsRequest(topic_names=("flights", "none"))
        payload = encode_request(message, 4, 77, "test")
        answer = await under_test.client.exchange(message.API_KEY, (payload,))
        _, response = decode_response(DeleteTopicsResponse, 4, answer)
        assert [(r.name, r.error_code) for r in response.responses] == [
            ("flights", 0),
            ("none", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ]

    run(request, story)


@pytest.mark.parametrize(("setting", "code"), [("true", 0), ("false", 3)])
def test_metadata_creates_topics_when_that_is_allowed(
    request: pytest.FixtureRequest, setting: str, code: int
) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        message = MetadataRequest(topics=(MetadataRequestTopic(name="new"),))
        metadata = await under_test.ask(message)
        assert [(t.name, t.error_code) for t in metadata.topics] == [("new", code)]

    run(request, story, auto_create_topics_enable=setting)


def test_a_member_has_an_internal_topic_created(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.tell(AssignBrokersRequest(count=2))
        wanted = CreateInternalTopicRequest(name=CONSUMER_OFFSETS)
        await under_test.register(1)
        refused = await under_test.tell(wanted)
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await under_test.register(2)
        assert await under_test.tell(wanted) == CreateInternalTopicResponse()
        assert await under_test.tell(wanted) == CreateInternalTopicResponse()
        assert len(under_test.control_plane.image.topics[CONSUMER_OFFSETS].partitions) == 50

    run(request, story)


def test_the_control_plane_creates_internal_topics_for_its_own_requests(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        create = internal_topic_creator(under_test.control_plane.decide)
        with pytest.raises(KafkaError, match="of 0 brokers, 0 have registered") as caught:
            await create(CONSUMER_OFFSETS)
        assert caught.value.code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await under_test.register()
        for _ in range(2):
            await create(CONSUMER_OFFSETS)
            assert under_test.control_plane.image.topic(CONSUMER_OFFSETS) is not None

    run(request, story)


def test_idempotent_producers_get_ids_and_transactional_ones_wait_for_their_topic(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        first = await under_test.ask(InitProducerIdRequest())
        second = await under_test.ask(InitProducerIdRequest())
        assert [(r.producer_id, r.producer_epoch) for r in (first, second)] == [(0, 0), (1, 0)]
        refused = await under_test.ask(InitProducerIdRequest(transactional_id="t"))
        assert refused.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    run(request, story)


def test_private_messages_are_for_members_only(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        codes = {}
        served_by_brokers = (
            ReportDamageRequest,
            ReadCleanOffsetRequest,
            ReadTieredStateRequest,
            ReadLocalStartRequest,
            ReadRemoteSegmentsRequest,
        )
        for key, (message, _) in PRIVATE_MESSAGES.items():
            if key > 20001 and message not in served_by_brokers:
                codes[message] = (await under_test.ask(message())).error_code
        for_clients = (ConsistentCutRequest, NodeStatusRequest)
        assert {codes.pop(message) for message in for_clients} == {ErrorCode.NONE}
        assert set(codes.values()) == {ErrorCode.CLUSTER_AUTHORIZATION_FAILED}
        assert len(codes) == len(PRIVATE_MESSAGES) - len(served_by_brokers) - 4
        told = {key for key in under_test.client.versions if key >= FIRST_PRIVATE_KEY}
        assert told == {message.API_KEY for message in for_clients}

    run(request, story)


def test_brokers_follow_the_image(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        first = await under_test.tell(WatchMetadataRequest(since=-1))
        image = ClusterImage.from_snapshot(first.version, decode_records(first.commits[0]))
        assert (first.snapshot, image) == (True, under_test.control_plane.image)
        other = await under_test.connect(member=True)
        wait = WatchMetadataRequest(since=image.version, max_wait_ms=10_000)
        waiting = asyncio.create_task(other.request(wait))
        registered = await under_test.register()
        assert registered.controller_epoch == 1
        change = await waiting
        for version, commit in enumerate(change.commits, start=image.version + 1):
            image.replay_commit(version, decode_records(commit))
        assert (change.snapshot, image) == (False, under_test.control_plane.image)
        other.close()

    run(request, story)


def test_a_brokers_life(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        assigned = await under_test.tell(AssignBrokersRequest(count=1))
        assert [(b.broker_id, b.new) for b in assigned.brokers] == [(1, True)]
        epoch = (await under_test.register()).broker_epoch
        beat = BrokerHeartbeatRequest(broker_id=1, broker_epoch=epoch)
        assert not (await under_test.tell(beat)).fenced
        block = await under_test.tell(AllocateProducerIdsRequest(broker_id=1, broker_epoch=epoch))
        assert (block.first_producer_id, block.count) == (0, 1000)
        assert (await under_test.tell(replace(beat, has_stopped=True))).fenced
        assert under_test.control_plane.image.alive_brokers() == []
        stale = await under_test.tell(replace(beat, broker_epoch=9))
        assert stale.error_code == ErrorCode.STALE_BROKER_EPOCH
        assert (await under_test.tell(ReportLossRequest())).error_code == 0

    run(request, story)


def test_silent_brokers_are_fenced(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        version = under_test.control_plane.image.version + 1
        await under_test.register()  # which may have been silent for too long when this returns
        watch = WatchMetadataRequest(since=version, max_wait_ms=5000)
        while (news := await under_test.tell(watch)).version == version:
            pass  # it has waited in vain
        assert news.version == version + 1
        assert under_test.control_plane.image.alive_brokers() == []

    run(request, story, broker_session_timeout_ms="200")


def test_a_forwarded_request_is_answered_inside(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        inner = encode_request(CreateTopicsRequest(topics=(TOPIC,)), 7, 42, "client")
        outer = await under_test.tell(ForwardRequestRequest(api_version=7, request=inner))
        correlation_id, created = decode_response(CreateTopicsResponse, 7, outer.response)
        assert (outer.error_code, correlation_id) == (0, 42)
        assert [(t.name, t.error_code) for t in created.topics] == [("flights", 0)]
        for wrong in (
            encode_request(StopNodeRequest(), 0, 1, None),
            encode_request(MetadataRequest(), 9, 1, None),
            inner[:-3],
            b"",
        ):
            refused = await under_test.tell(ForwardRequestRequest(request=wrong))
            assert refused.error_code == ErrorCode.INVALID_REQUEST
        assert not under_test.running.done()

    run(request, story)


def test_status_counts(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        status = json.loads((await under_test.tell(NodeStatusRequest())).status)
        assert {key: status[key] for key in ("role", "commits", "brokers_alive", "topics")} == {
            "role": "control-plane",
            "commits": 1,
            "brokers_alive": 1,
            "topics": 0,
        }
        assert status["requests"]["20002"] == 1

    run(request, story)


def test_a_member_stops_it_and_watchers_are_answered(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        other = await under_test.connect(member=True)
        wait = WatchMetadataRequest(since=1, max_wait_ms=10_000)
        waiting = asyncio.create_task(other.request(wait))
        while under_test.control_plane.metadata_feed.watchers == 0:
            await asyncio.sleep(0.01)
        assert (await under_test.tell(StopNodeRequest(reason="done"))).error_code == 0
        assert (await waiting).commits == ()
        await under_test.running

    run(request, story)


# -- the journal


def test_a_restart_finds_everything(request: pytest.FixtureRequest) -> None:
    images: list[ClusterImage] = []

    async def before(under_test: UnderTest) -> None:
        await under_test.register()
        await under_test.ask(CreateTopicsRequest(topics=(TOPIC,)))
        images.append(under_test.control_plane.image)

    async def after(under_test: UnderTest) -> None:
        image = under_test.control_plane.image
        old = images[0]
        assert image.controller_epoch == old.controller_epoch + 1
        assert image == replace(old, version=old.version + 1, controller=image.controller)
        news = await under_test.tell(WatchMetadataRequest(since=old.version))
        assert (news.snapshot, news.version, len(news.commits)) == (False, image.version, 1)

    run(request, before)
    run(request, after)


def test_the_newer_controller_wins(request: pytest.FixtureRequest) -> None:
    async def story(under_test: UnderTest) -> None:
        second = ControlPlane(under_test.control_plane.options)
        await second.start()
        running = asyncio.create_task(second.run())
        with pytest.raises(Exception, match=r"lost|closed|reset"):
            await under_test.ask(InitProducerIdRequest())
        with pytest.raises(JournalConflict, match="was replaced and ends"):
            await under_test.running
        assert second.image.controller_epoch == 2
        second.stop("the test ends")
        await running

    run(request, story)


def test_while_the_disk_refuses_writes_it_says_so_and_serves_what_is_durable(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        before = under_test.control_plane.image.copy()
        wanted = CreateTopicsRequest(topics=(TOPIC,))
        backend = open_file_half(under_test.control_plane.options.journal_dir)
        assert isinstance(backend, MemoryBackend)
        backend.faults.read_only = True
        try:
            refused = await under_test.ask(wanted)
            [topic] = refused.topics
            assert topic.error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "read-only; mount it writable" in (topic.error_message or "")
            metadata = await under_test.ask(MetadataRequest(topics=None))
            assert (len(metadata.brokers), metadata.topics) == (2, ())
        finally:
            backend.faults.clear()
        assert under_test.control_plane.image == before
        assert [t.error_code for t in (await under_test.ask(wanted)).topics] == [0]
        image = under_test.control_plane.image
        assert (image.version, list(image.topics)) == (before.version + 1, [TOPIC.name])

    run(request, story)


def test_a_commit_that_may_have_been_written_ends_it_without_an_answer(
    request: pytest.FixtureRequest,
) -> None:
    async def story(under_test: UnderTest) -> None:
        backend = open_file_half(under_test.control_plane.options.journal_dir)
        assert isinstance(backend, MemoryBackend)
        backend.faults.fail_next(count=2, operation="put_if_absent", after=True)
        with pytest.raises(Exception, match=r"lost|closed|reset"):
            await under_test.ask(InitProducerIdRequest())
        with pytest.raises(StorageError, match="the device failed"):
            await under_test.running

    run(request, story)


def refused_start(options: ControlPlaneOptions) -> Exception:
    async def start() -> Exception:
        with pytest.raises((StartError, StorageError, ConfigError)) as refusal:
            await ControlPlane(options).start()
        return refusal.value

    return asyncio.run(start())


def test_a_journal_of_another_cluster_is_refused(request: pytest.FixtureRequest) -> None:
    options = options_of(request)
    error = refused_start(replace(options, expected_cluster_id="mine"))
    assert isinstance(error, ForeignClusterError)
    assert str(error) == (
        f"{options.journal_dir} holds cluster '(none)', not 'mine'; choose the journal_dir and "
        "data_dir of one cluster"
    )
    assert not open_file_half(options.journal_dir).exists(commit_name(1))


def test_a_port_in_use_leaves_the_journal_alone(request: pytest.FixtureRequest) -> None:
    options = replace(options_of(request), port=0)

    async def story(under_test: UnderTest) -> None:
        version = under_test.control_plane.image.version
        again = replace(options, port=under_test.control_plane.port)
        with pytest.raises(StartError, match="choose another port"):
            await ControlPlane(again).start()
        backend = open_file_half(options.journal_dir)
        assert not backend.exists(commit_name(version + 1))

    run(request, story)


def test_wrong_settings_are_refused(request: pytest.FixtureRequest) -> None:
    options = options_of(request, num_partitions="many")
    assert "num.partitions='many'" in str(refused_start(options))
    everywhere = replace(options_of(request), listen_host="0.0.0.0")
    assert "needs an advertised_host" in str(refused_start(everywhere))
