"""Tiered topics, and the changes of settings that they do not survive.

Owns: which topics may have segments in the remote_dir, and the refusal of changes that would leave
these segments behind or compact the topics.  Must not know how settings are changed.
"""

from collections.abc import Mapping
from typing import Final

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.errors import ErrorCode, KafkaError
from sparklog.metadata import ClusterImage
from sparklog.plurals import listed

#: The default of a topic's ``cleanup.policy``, a setting of brokers.
POLICY_DEFAULT: Final = "log.cleanup.policy"
#: Topics that a message names; it counts the others.
NAMED_MAX: Final = 3

_POLICY = "cleanup.policy"
_REMOTE_ENABLE = "remote.storage.enable"
_REMOTE_DELETE = "remote.log.delete.on.disable"


def is_tiered(image: ClusterImage, topic: str) -> bool:
    """Whether segments of the topic may be in the remote_dir.

    The settings have no defaults of brokers.  A topic that was tiered keeps one of the two for
    good, because nothing here knows whether the brokers have deleted everything.  No other topic
    gets one of them (``check_remote_part``).
    """
    return may_be_remote(image.topic_overrides(topic))


def may_be_remote(overrides: Mapping[str, str]) -> bool:
    """``is_tiered`` for a topic with these settings of its own."""
    return "true" in (overrides.get(_REMOTE_ENABLE), overrides.get(_REMOTE_DELETE))


def check_remote_part(before: Mapping[str, str], after: Mapping[str, str]) -> None:
    """Check the change of a topic's settings (KIP-950).

    Raises KafkaError(INVALID_CONFIG) if the topic is to leave what is in the remote_dir behind, or
    is to count as tiered and was never tiered.
    """
    if may_be_remote(after):
        if not may_be_remote(before) and after.get(_REMOTE_ENABLE) != "true":
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"{_REMOTE_DELETE}=true is for topics that are or were tiered; leave it out, or "
                f"set {_REMOTE_ENABLE}=true with it",
            )
        return
    if before.get(_REMOTE_ENABLE) == "true":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            "It is invalid to disable remote storage without deleting remote data. If you want to "
            "keep the remote data and turn to read only, please set `remote.storage.enable=true,"
            "remote.log.copy.disable=true`. If you want to disable remote storage and delete all "
            "remote data, please set `remote.storage.enable=false,"
            "remote.log.delete.on.disable=true`.",
        )
    if before.get(_REMOTE_DELETE) == "true":
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{_REMOTE_DELETE} stays true while {_REMOTE_ENABLE} is not: the remote_dir may still "
            f"have records of the topic, which are to be deleted. Set {_REMOTE_ENABLE}=true to "
            "keep segments there again",
        )


def check_policy_default(image: ClusterImage, config: BrokerConfig) -> None:
    """Raises KafkaError(INVALID_CONFIG) if brokers with this config would compact tiered topics by
    default.

    The brokers would not do it (``TopicConfig.compacts``), but the topics would have a setting that
    is refused for them.
    """
    topics = inherited_policy_topics(image) if compacts_by_default(config) else []
    if topics:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"{POLICY_DEFAULT}=compact does not go with tiered topics that have no {_POLICY} of "
            f"their own ({listed(topics, NAMED_MAX)}): compacted topics stay on the brokers' disks;"
            f" set {_POLICY}=delete for each of these topics first",
        )


def compacts_by_default(config: BrokerConfig) -> bool:
    return TopicConfig.resolve({}, config).compacts


def inherited_policy_topics(image: ClusterImage) -> list[str]:
    """The tiered topics whose ``cleanup.policy`` is that of the brokers."""
    return sorted(
        name
        for name in image.topics
        if may_be_remote(overrides := image.topic_overrides(name)) and _POLICY not in overrides
    )
