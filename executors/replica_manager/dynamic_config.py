"""The dynamic configuration: a broker's settings at its start, and the changes since then.

Owns: the broker's settings and those of its topics, each resolved once per change.  Must not know
which code uses them.
"""

from collections.abc import Mapping

from sparklog.config import BrokerConfig, TopicConfig
from sparklog.metadata import ClusterImage
from sparklog.service.settings import changed_config


class DynamicConfig:
    """The settings of one broker.  ``broker`` is another object after every change."""

    def __init__(self, node_id: int, settings: Mapping[str, str]) -> None:
        self._node_id = node_id
        self._start = self.broker = BrokerConfig.resolve(settings)
        self._overrides: dict[str, str] = {}
        self._topics: dict[str, tuple[Mapping[str, str], BrokerConfig, TopicConfig]] = {}

    def follow(self, image: ClusterImage) -> None:
        """Take over this broker's settings in the image."""
        overrides = image.broker_overrides(self._node_id)
        if overrides != self._overrides:
            self._overrides = overrides
            self.broker = changed_config(self._start, overrides)

    def of_topic(self, image: ClusterImage, topic: str) -> TopicConfig:
        overrides = image.topic_overrides(topic)
        known = self._topics.get(topic)
        if known is not None and known[0] == overrides and known[1] is self.broker:
            return known[2]
        config = TopicConfig.resolve(overrides, self.broker)
        self._topics[topic] = (overrides, self.broker, config)
        return config

    def forget_topic(self, topic: str) -> None:
        self._topics.pop(topic, None)
