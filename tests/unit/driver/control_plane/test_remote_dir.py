"""The remote_dir at the start of a control plane: whether the cluster may use it."""

import asyncio
import json
import logging
from dataclasses import replace
from typing import Any

import pytest

from sparklog.config import BrokerConfig
from sparklog.driver.control_plane.control_plane import ControlPlane
from sparklog.driver.control_plane.options import ControlPlaneOptions
from sparklog.driver.control_plane.remote_dir import check_policy_of_tiered
from sparklog.errors import StartError, StorageError
from sparklog.metadata import ConfigChanged
from sparklog.remote_log import names
from sparklog.storage_backends.memory import MemoryBackend
from sparklog.storage_backends.registry import open_file_half
from sparklog.types import ResourceType
from sparklog.wire.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, options_of, run
from tests.unit.driver.control_plane.driver_fakes import ControllerUnderTest


@pytest.fixture
def bucket(request: pytest.FixtureRequest) -> MemoryBackend:
    half = open_file_half(f"memory://bucket-of-{request.node.name}".replace("[", "-").strip("]"))
    assert isinstance(half, MemoryBackend)
    return half


def start(options: ControlPlaneOptions) -> str:
    """Start a control plane and stop it; return the cluster's id."""

    async def life() -> str:
        control_plane = ControlPlane(options)
        await control_plane.start()
        control_plane.stop("the test ends")
        await control_plane.run()
        return control_plane.image.cluster_id

    return asyncio.run(life())


def with_remote_dir(options: ControlPlaneOptions, url: str) -> ControlPlaneOptions:
    return replace(options, settings={**options.settings, "remote.dir": url})


def refusal(options: ControlPlaneOptions) -> str:
    with pytest.raises(StartError) as refused:
        start(options)
    return str(refused.value)


def tiered_cluster(request: pytest.FixtureRequest, url: str, *topics: str) -> ControlPlaneOptions:
    """The options of a stopped cluster that has tiered topics in this remote_dir."""

    async def story(under_test: UnderTest) -> None:
        await under_test.register()
        configs = (CreatableTopicConfig(name="remote.storage.enable", value="TRUE"),)
        for name in topics:
            topic = CreatableTopic(
                name=name, num_partitions=1, replication_factor=1, configs=configs
            )
            created = await under_test.ask(CreateTopicsRequest(topics=(topic,)))
            assert created.topics[0].error_code == 0, created

    run(request, story, remote_dir=url)
    return options_of(request)


def commits(options: ControlPlaneOptions) -> list[str]:
    names = open_file_half(options.journal_dir).list("")
    return [name for name in names if name.endswith(".json")]


def test_a_bucket_without_an_owner_becomes_that_of_a_new_cluster(
    request: pytest.FixtureRequest, bucket: MemoryBackend
) -> None:
    options = with_remote_dir(options_of(request), bucket.url)
    cluster_id = start(options)
    assert json.loads(bucket.read(names.CLUSTER_FILE)) == {"cluster_id": cluster_id}
    assert start(options) == cluster_id
    assert bucket.list("") == [names.CLUSTER_FILE]


def test_a_bucket_of_another_cluster_is_refused_before_the_journal_is_taken_over(
    request: pytest.FixtureRequest, bucket: MemoryBackend
) -> None:
    options = options_of(request)
    cluster_id = start(options)
    before = commits(options)
    bucket.put(names.CLUSTER_FILE, b'{"cluster_id": "other"}')
    text = refusal(with_remote_dir(options, bucket.url))
    assert text.startswith(
        f"remote_dir={bucket.url} cannot be used: {bucket.url} holds the remote logs of cluster "
        f"other, not of {cluster_id}; choose another remote_dir: "
    )
    assert text.endswith(f"if it is not needed any more, delete all of {bucket.url}")
    assert commits(options) == before


def test_a_bucket_whose_owner_cannot_be_read_is_mended_and_not_left(
    request: pytest.FixtureRequest, bucket: MemoryBackend
) -> None:
    options = with_remote_dir(tiered_cluster(request, bucket.url, "a"), bucket.url)
    cluster_id = json.loads(bucket.read(names.CLUSTER_FILE))["cluster_id"]
    bucket.put(names.CLUSTER_FILE, b"")
    text = refusal(options)
    assert text.startswith(f"remote_dir={bucket.url} cannot be used: {bucket.url}: cluster.json, ")
    written = f'{{"cluster_id": "{cluster_id}"}}'
    assert f"or write {written} into it" in text
    bucket.put(names.CLUSTER_FILE, written.encode())
    assert start(options) == cluster_id


def test_a_foreign_journal_does_not_take_a_bucket(
    request: pytest.FixtureRequest, bucket: MemoryBackend
) -> None:
    options = options_of(request)
    start(options)
    expecting = replace(options, expected_cluster_id="ours")
    assert "not 'ours'" in refusal(with_remote_dir(expecting, bucket.url))
    assert not bucket.exists(names.CLUSTER_FILE)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("fsspec+memory://x/y", "no store of fsspec+memory:// is known to create a file only if"),
        ("carrier-pigeon://x", "is needed here; choose a folder or file://, s3://, s3a://"),
        ("/proc/no/remote", "/proc/no"),
        ("s3://b", "names no bucket; write s3://BUCKET or s3://BUCKET/FOLDER"),
    ],
    ids=["no promise", "unknown scheme", "no folder", "no bucket"],
)
def test_a_store_that_cannot_hold_remote_logs_is_named_with_the_remedy(
    request: pytest.FixtureRequest, url: str, reason: str
) -> None:
    text = refusal(with_remote_dir(options_of(request), url))
    assert text.startswith(f"remote_dir={url} cannot be used: ")
    assert reason in text


def test_a_bucket_that_can_be_read_only_is_refused(
    request: pytest.FixtureRequest, bucket: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = with_remote_dir(options_of(request), bucket.url)
    start(options)

    def deny(_store: object, path: str, _data: object) -> None:
        raise StorageError(f"cannot write {path}: access denied")

    monkeypatch.setattr(MemoryBackend, "put", deny)
    assert refusal(options) == (
        f"remote_dir={bucket.url} cannot be used: cannot write cluster.json: access denied"
    )


def test_tiered_topics_need_the_bucket_that_has_their_records(
    request: pytest.FixtureRequest, bucket: MemoryBackend, caplog: pytest.LogCaptureFixture
) -> None:
    options = tiered_cluster(request, bucket.url, "a", "b", "c", "d")
    other = MemoryBackend()
    before = commits(options)
    empty = with_remote_dir(options, f"memory://{other.disk.name}-empty")
    assert refusal(empty) == (
        f"remote_dir={empty.settings['remote.dir']} belongs to no cluster, and this cluster has "
        "records of a, b, c and 1 more in another one; start it with the remote_dir that it had, "
        "or with a complete copy"
    )
    assert commits(options) == before
    start(with_remote_dir(options, bucket.url))
    caplog.set_level(logging.WARNING)
    start(options)
    assert "a, b, c and 1 more: tiered, and the cluster is started without a remote_dir" in (
        caplog.text
    )
    assert "no retention deletes records of these topics" in caplog.text


def compacting(options: ControlPlaneOptions) -> ControlPlaneOptions:
    return replace(options, settings={**options.settings, "log.cleanup.policy": "compact"})


def test_a_start_with_a_default_that_compacts_tiered_topics_is_refused(
    request: pytest.FixtureRequest, bucket: MemoryBackend
) -> None:
    options = tiered_cluster(request, bucket.url, "a", "b", "c", "d")
    before = commits(options)
    assert refusal(compacting(with_remote_dir(options, bucket.url))) == (
        "log.cleanup.policy=compact does not go with tiered topics that have no cleanup.policy of "
        "their own (a, b, c and 1 more): compacted topics stay on the brokers' disks; start the "
        "cluster without it, and set cleanup.policy=delete for each of these topics first"
    )
    assert commits(options) == before
    # A control plane that comes back while brokers run is no start of the cluster.
    start(replace(compacting(options), checks_remote_dir=False))


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_default_that_compacts_and_was_set_at_run_time_is_logged(
    caplog: pytest.LogCaptureFixture, broker: str
) -> None:
    """It can be changed in a cluster that runs only."""
    under_test = ControllerUnderTest()
    under_test.register(1)
    under_test.create("a")
    image = under_test.image
    for kind, resource, name, value in (
        (ResourceType.TOPIC, "a", "remote.storage.enable", "true"),
        (ResourceType.BROKER, broker, "log.cleanup.policy", "compact,delete"),
    ):
        image.replay(
            ConfigChanged(resource_type=kind, resource_name=resource, name=name, value=value)
        )
    check_policy_of_tiered(BrokerConfig(), image)
    (record,) = caplog.records
    assert record.levelname == "ERROR"
    assert "of their own (a): they are not compacted" in record.getMessage()
    caplog.clear()
    own = ConfigChanged(
        resource_type=ResourceType.TOPIC, resource_name="a", name="cleanup.policy", value="delete"
    )
    image.replay(own)
    check_policy_of_tiered(BrokerConfig.resolve({"log.cleanup.policy": "compact"}), image)
    assert not caplog.records


def test_a_restarted_control_plane_comes_back_while_the_bucket_is_away(
    request: pytest.FixtureRequest, bucket: MemoryBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = with_remote_dir(options_of(request), bucket.url)
    cluster_id = start(options)

    def away(*_: Any) -> Any:
        raise StorageError("the store does not answer")

    monkeypatch.setattr("sparklog.driver.control_plane.remote_dir.open_backend", away)
    assert refusal(options).endswith("cannot be used: the store does not answer")
    assert start(replace(options, checks_remote_dir=False)) == cluster_id
