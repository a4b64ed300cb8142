"""Creation and deletion of topics, and additional partitions.

Owns: which of these requests are granted, topic by topic.  Must not know how partitions are placed
or what settings mean.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID

from sparklog.config import TOPIC_SETTINGS, BrokerConfig, Setting, TopicConfig
from sparklog.driver.control_plane.controller.assignments import (
    PlacementDraft,
    check_replication_factor,
    shared_warning,
    targets,
)
from sparklog.driver.control_plane.controller.configs import (
    check_topic_configs,
    check_topic_rules,
    unique_names,
)
from sparklog.driver.control_plane.controller.decision import Decision, WarnOperator
from sparklog.driver.control_plane.controller.name_collisions import TakenNames
from sparklog.driver.control_plane.controller.partition_transitions import new_partition
from sparklog.driver.control_plane.controller.tiered_topics import check_remote_part, is_tiered
from sparklog.driver.control_plane.placement import Replicas
from sparklog.driver.control_plane.skipped_numbers import first_epoch_of_added
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import (
    ClusterImage,
    ConfigChanged,
    PartitionImage,
    PartitionsAdded,
    Record,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    TopicCreated,
    TopicDeleted,
    TopicImage,
)
from sparklog.metadata.topic_names import check_not_internal, check_topic_name
from sparklog.types import ConfigSource, ResourceType
from sparklog.wire.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from sparklog.wire.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from sparklog.wire.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)

#: Stands for the default number of partitions or the default replication factor (KIP-464).
USE_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class _Creation:
    """The outcome of the creation of one topic."""

    result: CreatableTopicResult
    records: tuple[Record, ...] = ()
    warnings: tuple[str, ...] = ()


def create_topics(
    image: ClusterImage,
    config: BrokerConfig,
    request: CreateTopicsRequest,
    new_id: Callable[[], UUID],
) -> Decision:
    """Create topics, each on its own; all that are granted share one commit.

    A topic that is named twice is refused, in one result; so it is for the other requests.
    """
    times = Counter(topic.name for topic in request.topics)
    draft = PlacementDraft(image)
    taken = TakenNames(image.topics)
    outcomes: list[_Creation] = []
    for topic in {topic.name: topic for topic in request.topics}.values():
        try:
            if times[topic.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            _check_name_is_free(image, topic.name, taken)
            outcomes.append(_create_topic(image, config, draft, topic, new_id))
            taken.add(topic.name)
        except KafkaError as error:
            refusal = CreatableTopicResult(
                name=topic.name, error_code=error.code, error_message=error.message
            )
            outcomes.append(_Creation(result=refusal))
    response = CreateTopicsResponse(topics=tuple(outcome.result for outcome in outcomes))
    if request.validate_only:
        return Decision(response=response)
    return Decision(
        records=tuple(record for outcome in outcomes for record in outcome.records),
        response=response,
        effects=tuple(WarnOperator(message=w) for outcome in outcomes for w in outcome.warnings),
    )


def _check_name_is_free(image: ClusterImage, name: str, taken: TakenNames) -> None:
    check_topic_name(name)
    check_not_internal(name, "create it")
    if image.topic(name) is not None:
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name!r} already exists")
    other = taken.find_collision(name)
    if other is not None:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"topic {name!r} collides with {other!r}: names may not differ in '.' and '_' only",
        )


def _create_topic(
    image: ClusterImage,
    config: BrokerConfig,
    draft: PlacementDraft,
    topic: CreatableTopic,
    new_id: Callable[[], UUID],
) -> _Creation:
    overrides = check_topic_configs(unique_names((c.name, c.value) for c in topic.configs))
    check_topic_rules(overrides, config)
    check_remote_part({}, overrides)
    replicas = _replicas_of_new_topic(config, draft, topic)
    topic_id = new_id()
    created = TopicCreated(
        topic=topic.name, topic_id=topic_id, partitions=_new_partitions(image, replicas)
    )
    configs = [
        ConfigChanged(
            resource_type=int(ResourceType.TOPIC),
            resource_name=topic.name,
            name=name,
            value=value,
        )
        for name, value in overrides.items()
    ]
    result = CreatableTopicResult(
        name=topic.name,
        topic_id=topic_id,
        num_partitions=len(replicas),
        replication_factor=len(replicas[0]),
        configs=_described(config, overrides),
    )
    return _Creation(
        result=result,
        records=(created, *configs),
        warnings=tuple(_warnings(image, topic.name, replicas, overrides)),
    )


def _warnings(
    image: ClusterImage, name: str, replicas: Sequence[Replicas], overrides: dict[str, str]
) -> Iterator[str]:
    """Warnings about settings that are granted, as in Kafka, but may not be intended."""
    shared = shared_warning(image, name, replicas)
    if shared is not None:
        yield shared
    wanted, factor = int(overrides.get("min.insync.replicas", 0)), len(replicas[0])
    if wanted > factor:
        yield (
            f"topic {name!r}: min.insync.replicas={wanted} is more than its {factor} replicas; "
            f"it counts as {factor}"
        )


def _replicas_of_new_topic(
    config: BrokerConfig, draft: PlacementDraft, topic: CreatableTopic
) -> tuple[Replicas, ...]:
    if topic.assignments:
        return draft.accept(_manual_replicas(topic))
    partitions, factor = topic.num_partitions, topic.replication_factor
    if partitions == USE_DEFAULT:
        partitions = config.num_partitions
    if partitions < 1:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"{partitions} partitions: the number must be positive, or -1 for the default",
        )
    if factor == USE_DEFAULT:
        factor = config.default_replication_factor
    check_replication_factor(factor)
    return draft.place(partitions, factor)


def _manual_replicas(topic: CreatableTopic) -> list[Replicas]:
    """The replicas that the client has chosen, in the order of the partitions."""
    if topic.num_partitions != USE_DEFAULT or topic.replication_factor != USE_DEFAULT:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "with a manual assignment the number of partitions and the replication factor must "
            "both be -1",
        )
    ordered = sorted(topic.assignments, key=_partition_index)
    if [assignment.partition_index for assignment in ordered] != list(range(len(ordered))):
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"a manual assignment must name each partition from 0 to {len(ordered) - 1} once",
        )
    return [assignment.broker_ids for assignment in ordered]


def _partition_index(assignment: CreatableReplicaAssignment) -> int:
    return assignment.partition_index


def _new_partitions(
    image: ClusterImage, replicas: Sequence[Replicas]
) -> tuple[PartitionImage, ...]:
    return tuple(new_partition(chosen, image.is_alive) for chosen in replicas)


def _described(
    config: BrokerConfig, overrides: dict[str, str]
) -> tuple[CreatableTopicConfigs, ...]:
    values = TopicConfig.resolve(overrides, config)
    return tuple(
        CreatableTopicConfigs(
            name=setting.name,
            value=setting.render(getattr(values, setting.field)),
            config_source=_source(setting, config, overrides),
        )
        for setting in TOPIC_SETTINGS
    )


def _source(setting: Setting, config: BrokerConfig, overrides: dict[str, str]) -> ConfigSource:
    if setting.name in overrides:
        return ConfigSource.DYNAMIC_TOPIC_CONFIG
    if setting.field in config.changed_defaults:
        return ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG
    if setting.field in config.topic_defaults:
        return ConfigSource.STATIC_BROKER_CONFIG
    return ConfigSource.DEFAULT_CONFIG


# -- deleting


def delete_topics(
    image: ClusterImage, config: BrokerConfig, request: DeleteTopicsRequest, wall_ms: int
) -> Decision:
    """``wall_ms`` is the time of day, for what is deleted in the remote_dir a day later."""
    times = Counter(_identity(image, wanted) for wanted in request.topics)
    records: list[Record] = []
    responses: list[DeletableTopicResult] = []
    answered: set[UUID] = set()
    for wanted in request.topics:
        topic: TopicImage | None = None
        try:
            if not config.delete_topic_enable:
                raise KafkaError(
                    ErrorCode.TOPIC_DELETION_DISABLED,
                    "the cluster was started with delete.topic.enable=false",
                )
            topic = _find_topic(image, wanted)
            if topic.topic_id in answered:
                continue
            answered.add(topic.topic_id)
            if times[topic.topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            check_not_internal(topic.name, "delete it")
            records.append(TopicDeleted(topic=topic.name, topic_id=topic.topic_id))
            if is_tiered(image, topic.name):
                records.append(RemoteDeleteMarked(topic_id=topic.topic_id, time_ms=wall_ms))
            responses.append(DeletableTopicResult(name=topic.name, topic_id=topic.topic_id))
        except KafkaError as error:
            responses.append(
                DeletableTopicResult(
                    name=wanted.name if topic is None else topic.name,
                    topic_id=wanted.topic_id if topic is None else topic.topic_id,
                    error_code=error.code,
                    error_message=error.message,
                )
            )
    return Decision(
        records=tuple(records), response=DeleteTopicsResponse(responses=tuple(responses))
    )


def _identity(image: ClusterImage, wanted: DeleteTopicState) -> UUID | None:
    topic = image.topic(wanted.name) if wanted.name is not None else None
    return topic.topic_id if topic else wanted.topic_id


def _find_topic(image: ClusterImage, wanted: DeleteTopicState) -> TopicImage:
    if (wanted.name is None) == (wanted.topic_id is None):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "give either the topic's name or its id")
    if wanted.topic_id is not None:
        topic = image.topic_by_id(wanted.topic_id)
        if topic is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_TOPIC_ID, f"there is no topic with id {wanted.topic_id}"
            )
        return topic
    return _require_topic(image, wanted.name or "")


def _require_topic(image: ClusterImage, name: str) -> TopicImage:
    topic = image.topic(name)
    if topic is None:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


def finish_remote_deletes(image: ClusterImage, topic_ids: Collection[UUID]) -> Decision:
    """The remote_dir has nothing of these deleted topics any more."""
    gone = sorted(image.remote_deletes.keys() & set(topic_ids))
    return Decision(records=tuple(RemoteDeleteFinished(topic_id=each) for each in gone))


# -- adding partitions


def create_partitions(image: ClusterImage, request: CreatePartitionsRequest) -> Decision:
    times = Counter(topic.name for topic in request.topics)
    draft = PlacementDraft(image)
    records: list[Record] = []
    results: list[CreatePartitionsTopicResult] = []
    for wanted in {topic.name: topic for topic in request.topics}.values():
        error: KafkaError | None = None
        try:
            if times[wanted.name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the request names the topic twice")
            topic = _require_topic(image, wanted.name)
            check_not_internal(topic.name, "add partitions to it")
            replicas = _replicas_of_added(topic, draft, wanted)
            leader_epoch = first_epoch_of_added(topic)
            partitions = tuple(
                replace(each, leader_epoch=leader_epoch)
                for each in _new_partitions(image, replicas)
            )
            records.append(PartitionsAdded(topic=wanted.name, partitions=partitions))
        except KafkaError as refusal:
            error = refusal
        results.append(
            CreatePartitionsTopicResult(
                name=wanted.name,
                error_code=error.code if error else ErrorCode.NONE,
                error_message=error.message if error else None,
            )
        )
    return Decision(
        records=() if request.validate_only else tuple(records),
        response=CreatePartitionsResponse(results=tuple(results)),
    )


def _replicas_of_added(
    topic: TopicImage, draft: PlacementDraft, wanted: CreatePartitionsTopic
) -> tuple[Replicas, ...]:
    present = len(topic.partitions)
    if wanted.count <= present:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"topic {topic.name!r} has {present} partitions; {wanted.count} would not be more "
            "(partitions cannot be taken away)",
        )
    added = wanted.count - present
    if wanted.assignments is None:
        return draft.place(added, len(targets(topic.partitions[0])), topic)
    if len(wanted.assignments) != added:
        raise KafkaError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the request adds {added} partitions and assigns {len(wanted.assignments)}",
        )
    return draft.accept([assignment.broker_ids for assignment in wanted.assignments], topic)
