"""Settings as values: one table of names, types, defaults, ranges and docs.

Owns: every setting of topics and brokers, under Kafka's name where Kafka has the setting, and the
messages about Kafka's settings that have no meaning here.  Must not know where settings are used or
stored.
"""

from sparklog.config.broker import BROKER_SETTING_BY_NAME, BROKER_SETTINGS, BrokerConfig
from sparklog.config.foreign import FOREIGN_SETTINGS, ForeignSetting, find_foreign
from sparklog.config.setting import NO_LIMIT, Setting, Synonym, nearest, require_setting
from sparklog.config.topic import (
    DEFAULTS_WITH_RULES,
    TOPIC_SETTING_BY_NAME,
    TOPIC_SETTINGS,
    TopicConfig,
    check_defaults,
    inherited_names,
)
from sparklog.types import Compression

COMPRESSION_NAMES = {c.name.lower(): c for c in Compression}

__all__ = [
    "BROKER_SETTINGS",
    "BROKER_SETTING_BY_NAME",
    "COMPRESSION_NAMES",
    "DEFAULTS_WITH_RULES",
    "FOREIGN_SETTINGS",
    "NO_LIMIT",
    "TOPIC_SETTINGS",
    "TOPIC_SETTING_BY_NAME",
    "BrokerConfig",
    "ForeignSetting",
    "Setting",
    "Synonym",
    "TopicConfig",
    "check_defaults",
    "find_foreign",
    "inherited_names",
    "nearest",
    "require_setting",
]
