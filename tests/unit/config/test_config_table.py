"""The tables of settings: defaults, ranges, synonyms, rules, and what Kafka has and we have not."""

import sys
from dataclasses import fields, replace

import pytest

from sparklog.config import (
    BROKER_SETTING_BY_NAME,
    BROKER_SETTINGS,
    FOREIGN_SETTINGS,
    TOPIC_SETTING_BY_NAME,
    TOPIC_SETTINGS,
    BrokerConfig,
    Setting,
    TopicConfig,
    find_foreign,
    inherited_names,
)
from sparklog.errors import ConfigError

ALL = {**BROKER_SETTING_BY_NAME, **TOPIC_SETTING_BY_NAME}
NUMBERS = [s for s in ALL.values() if s.kind in ("SHORT", "INT", "LONG", "DOUBLE")]
LIMITS = [
    (setting, int(limit), step)
    for setting in NUMBERS
    for limit, step in ((setting.minimum, -1), (setting.maximum, 1))
    if limit is not None and limit < sys.float_info.max
]


def test_the_values_of_a_new_config_are_the_defaults_of_the_table() -> None:
    topic, broker = TopicConfig(), BrokerConfig()
    assert {s.field: s.default for s in TOPIC_SETTINGS} == {
        field.name: getattr(topic, field.name) for field in fields(topic)
    }
    derived = {"topic_defaults", "changed_defaults", "ignored"}
    assert {s.field: s.default for s in BROKER_SETTINGS} == {
        field.name: getattr(broker, field.name)
        for field in fields(broker)
        if field.name not in derived
    }


def test_every_number_has_a_range_and_every_setting_a_sentence_and_a_default_that_fits() -> None:
    for setting in ALL.values():
        assert setting.doc.endswith("."), setting.name
        if setting in NUMBERS:
            assert setting.minimum is not None, setting.name
            assert setting.maximum is not None, setting.name
        if setting.default is not None:
            assert setting.parse(setting.render(setting.default)) == setting.default, setting.name


@pytest.mark.parametrize(
    ("setting", "limit", "step"), LIMITS, ids=[f"{s.name} {limit}" for s, limit, _ in LIMITS]
)
def test_the_limit_itself_is_taken_and_one_beyond_is_refused(
    setting: Setting, limit: int, step: int
) -> None:
    assert setting.parse(str(limit)) == limit
    with pytest.raises(ConfigError, match=rf"^{setting.name}='{limit + step}': expected \w+ at "):
        setting.parse(str(limit + step))


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "1_000"),
        ("retention.ms", "٣"),
        ("retention.ms", ""),
        ("retention.ms", "1e3"),
        ("preallocate", "yes"),
        ("min.cleanable.dirty.ratio", "nan"),
        ("message.timestamp.type", "Createtime"),
        ("cleanup.policy", "compact,shred"),
        ("max.connections.per.ip.overrides", "localhost:1"),
        ("max.connections.per.ip.overrides", "127.0.0.1"),
        ("max.connections.per.ip.overrides", "127.0.0.1:-1"),
    ],
)
def test_text_that_is_no_value_is_refused(name: str, text: str) -> None:
    with pytest.raises(ConfigError, match=name):
        ALL[name].parse(text)


@pytest.mark.parametrize("text", ["1", "999"])
def test_a_url_is_good_for_a_second_at_least(text: str) -> None:
    """Signatures count seconds: less would be none, and turn the URLs off in silence."""
    name = "remote.signed.url.lifetime.ms"
    with pytest.raises(ConfigError, match=rf"{name}='{text}': expected 0, for no URLs, or at lea"):
        ALL[name].parse(text)
    assert [ALL[name].parse(each) for each in ("0", "1000")] == [0, 1000]


def test_overrides_by_address_are_read_with_and_without_brackets() -> None:
    config = BrokerConfig.resolve(
        {"max.connections.per.ip.overrides": "127.0.0.1:2, ::1:3,[2001:DB8::1]:0,"}
    )
    assert config.connections_max_by_address == {"127.0.0.1": 2, "::1": 3, "2001:db8::1": 0}


@pytest.mark.parametrize(
    ("given", "segment_ms"),
    [
        ({}, 604_800_000),
        ({"log.roll.hours": "2"}, 7_200_000),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, 5),
    ],
)
def test_of_synonyms_the_first_counts_whatever_their_order(
    given: dict[str, str], segment_ms: int
) -> None:
    assert TopicConfig.resolve({}, BrokerConfig.resolve(given)).segment_ms == segment_ms


def test_retention_of_minus_one_hours_is_for_ever() -> None:
    broker = BrokerConfig.resolve({"log.retention.hours": "-1"})
    assert TopicConfig.resolve({}, broker).retention_ms == -1


def test_a_change_at_run_time_lies_over_what_was_given_at_start() -> None:
    start = BrokerConfig.resolve({"log.retention.hours": "1", "max.connections": "7"})
    changed = start.overlay({"log.retention.ms": "5", "producer.id.expiration.ms": "9"})
    assert TopicConfig.resolve({}, changed).retention_ms == 5
    assert (changed.max_connections, changed.producer_id_expiration_ms) == (7, 9)
    assert changed.changed_defaults == {"retention_ms"}
    assert start.overlay({}) == start


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"max.connections.per.ip": "0"}, "max.connections.per.ip.overrides"),
        ({"log.retention.ms": "0"}, "log.retention.ms=0"),
        ({"log.retention.hours": "0"}, "log.retention.ms=0"),
        ({"ssl.keystore.location": "/k"}, "neither authenticated nor encrypted"),
        ({"listeners": "PLAINTEXT://:9092"}, "listen_host"),
        ({"num.partition": "1"}, "did you mean num.partitions"),
    ],
)
def test_settings_that_do_not_fit_are_refused_with_the_remedy(
    given: dict[str, str], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        BrokerConfig.resolve(given)


def test_what_only_tunes_kafka_s_machinery_is_ignored_and_named() -> None:
    config = BrokerConfig.resolve({"num.io.threads": "8", "group.consumer.max.size": "1"})
    assert config.ignored == ("num.io.threads", "group.consumer.max.size")
    with pytest.raises(ConfigError, match=r"num\.io\.threads cannot be set here"):
        TopicConfig.resolve({"num.io.threads": "8"}, config)


def test_no_setting_is_both_understood_and_foreign() -> None:
    assert [name for name in ALL if find_foreign(name) is not None] == []
    names = [name for foreign in FOREIGN_SETTINGS for name in foreign.names]
    assert len(names) == len(set(names))


def test_requests_that_are_queued_may_hold_at_least_the_largest_one() -> None:
    config = BrokerConfig.resolve({"queued.max.request.bytes": "104857600"})
    assert config.queued_max_request_bytes == 104_857_600
    assert BrokerConfig.resolve({"queued.max.request.bytes": "-1"}).queued_max_request_bytes == -1
    with pytest.raises(ConfigError, match=r"expected at least that, or -1 for no limit"):
        BrokerConfig.resolve({"queued.max.request.bytes": "104857599"})
    # The default gives way.
    assert BrokerConfig.resolve({"socket.request.max.bytes": "1000000000"})


@pytest.mark.parametrize(
    ("overrides", "problem"),
    [
        ({"remote.storage.enable": "true"}, "start the cluster with a remote_dir"),
        (
            {"remote.storage.enable": "true", "cleanup.policy": "compact,delete"},
            "does not go with cleanup.policy=compact",
        ),
        (
            {"remote.storage.enable": "true", "local.retention.ms": "8", "retention.ms": "7"},
            "local.retention.ms=8 is more than retention.ms=7",
        ),
        (
            {
                "remote.storage.enable": "true",
                "local.retention.bytes": "-1",
                "retention.bytes": "7",
            },
            "local.retention.bytes=-1 is more than retention.bytes=7",
        ),
        (
            {
                "remote.storage.enable": "true",
                "remote.log.copy.disable": "true",
                "retention.ms": "7",
                "local.retention.ms": "6",
                "cleanup.policy": "delete",
            },
            "local.retention.ms=6 does not go with remote.log.copy.disable=true",
        ),
        (
            {"remote.log.delete.on.disable": "true", "cleanup.policy": "compact"},
            "remote.log.delete.on.disable=true does not go with cleanup.policy=compact",
        ),
    ],
)
def test_tiering_has_its_rules(overrides: dict[str, str], problem: str) -> None:
    has_remote_dir = len(overrides) > 1
    config = TopicConfig.resolve(overrides, BrokerConfig())
    (found,) = config.problems(has_remote_dir=has_remote_dir)
    assert problem in found


def test_local_retention_is_no_matter_of_other_topics() -> None:
    """The limits may be those of the brokers."""
    broker = BrokerConfig.resolve({"log.local.retention.ms": "8"})
    plain = TopicConfig.resolve({"retention.ms": "7", "local.retention.bytes": "9"}, broker)
    assert list(plain.problems()) == []
    tiered = replace(plain, remote_storage_enable=True)
    assert list(tiered.problems(has_remote_dir=True, shown=inherited_names({}, broker))) == [
        "the brokers' default log.local.retention.ms=8 is more than retention.ms=7; expected at "
        "most that, or -2 for the same"
    ]


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (
            {"log.local.retention.ms": "604800001"},
            "log.local.retention.ms=604800001 is more than log.retention.ms=604800000; expected at "
            "most that, or -2 for the same",
        ),
        (
            {"log.local.retention.ms": "3600001", "log.retention.hours": "1"},
            "log.local.retention.ms=3600001 is more than log.retention.ms=3600000; expected at "
            "most that, or -2 for the same",
        ),
        (
            {"log.local.retention.bytes": "-1", "log.retention.bytes": "7"},
            "log.local.retention.bytes=-1 is more than log.retention.bytes=7; expected at most "
            "that, or -2 for the same",
        ),
        (
            {"log.cleaner.min.compaction.lag.ms": "2", "log.cleaner.max.compaction.lag.ms": "1"},
            "log.cleaner.min.compaction.lag.ms=2 is more than log.cleaner.max.compaction.lag.ms=1; "
            "expected at most that",
        ),
    ],
)
def test_defaults_that_contradict_each_other_are_refused(
    settings: dict[str, str], problem: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        BrokerConfig.resolve({"remote.dir": "s3://bucket/log", **settings})
    assert str(refused.value) == problem


@pytest.mark.parametrize(
    "settings",
    [
        {"log.local.retention.ms": "604800000"},
        {"log.local.retention.ms": "-2", "log.retention.ms": "1"},
        {"log.local.retention.ms": "-1", "log.retention.ms": "-1"},
        {"log.local.retention.bytes": "99"},
        {"log.local.retention.ms": "604800001", "remote.dir": ""},
    ],
)
def test_a_local_retention_by_default_is_at_most_that_of_the_whole_log(
    settings: dict[str, str],
) -> None:
    """Without a remote_dir it has no effect."""
    assert BrokerConfig.resolve({"remote.dir": "s3://bucket/log", **settings})


@pytest.mark.parametrize(
    ("enable", "delete", "leaves", "may_be_remote"),
    [
        ("false", "false", False, False),
        ("false", "true", True, True),
        ("true", "false", False, True),
        ("true", "true", False, True),
    ],
)
def test_a_topic_that_was_switched_off_leaves_the_remote_dir(
    enable: str, delete: str, leaves: bool, may_be_remote: bool
) -> None:
    overrides = {"remote.storage.enable": enable, "remote.log.delete.on.disable": delete}
    config = TopicConfig.resolve(overrides, BrokerConfig())
    assert list(config.problems(has_remote_dir=True)) == []
    assert (config.leaves_remote_storage, config.may_be_remote) == (leaves, may_be_remote)


@pytest.mark.parametrize("setting", ["remote.storage.enable", "remote.log.delete.on.disable"])
def test_a_tiered_topic_deletes_also_where_brokers_compact_by_default(setting: str) -> None:
    for policy in ("compact", "compact,delete"):
        broker = BrokerConfig.resolve({"log.cleanup.policy": policy})
        tiered = TopicConfig.resolve({setting: "true"}, broker)
        assert (tiered.compacts, tiered.deletes) == (False, True)
        plain = TopicConfig.resolve({setting: "false"}, broker)
        assert (plain.compacts, plain.deletes) == (True, "delete" in policy)
    for overrides in ({}, {setting: "true"}):
        kept = TopicConfig.resolve({"cleanup.policy": "", **overrides}, BrokerConfig())
        assert (kept.compacts, kept.deletes) == (False, False)


@pytest.mark.parametrize(
    ("overrides", "local"),
    [
        ({}, (7 * 86_400_000, -1)),
        ({"local.retention.ms": "5", "local.retention.bytes": "6"}, (5, 6)),
        ({"retention.ms": "-1", "local.retention.ms": "-1"}, (-1, -1)),
        ({"remote.log.copy.disable": "true", "local.retention.bytes": "-1"}, (7 * 86_400_000, -1)),
        ({"retention.ms": "-1", "local.retention.ms": "9", "retention.bytes": "3"}, (9, 3)),
    ],
)
def test_local_retention_is_that_of_the_whole_log_unless_it_is_given(
    overrides: dict[str, str], local: tuple[int, int]
) -> None:
    tiered = overrides | {"remote.storage.enable": "true"}
    config = TopicConfig.resolve(tiered, BrokerConfig())
    assert list(config.problems(has_remote_dir=True)) == []
    assert config.local_retention == local
