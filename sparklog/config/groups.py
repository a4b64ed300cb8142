"""The broker settings about consumer groups, their committed offsets and ``__consumer_offsets``.

Owns: their rows in the table of settings, with Kafka's names, defaults and ranges
(``GroupCoordinatorConfig``).  Must not know where a setting is used.
"""

from sparklog.config.setting import Setting
from sparklog.types import MAX_INT16, MAX_INT32, MAX_INT64

GROUP_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="group.initial.rebalance.delay.ms",
        kind="INT",
        default=3_000,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How long the coordinator waits for more members before the first rebalance of an "
        "empty group. Each new member extends the wait by this time, up to the rebalance timeout.",
    ),
    Setting(
        name="group.min.session.timeout.ms",
        kind="INT",
        default=6_000,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Shortest session timeout that a member of a group may ask for.",
    ),
    Setting(
        name="group.max.session.timeout.ms",
        kind="INT",
        default=1_800_000,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Longest session timeout that a member of a group may ask for.",
    ),
    Setting(
        name="group.max.size",
        kind="INT",
        default=MAX_INT32,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Most members of one group.",
    ),
    Setting(
        name="offset.metadata.max.bytes",
        kind="INT",
        default=4_096,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Longest metadata text of a committed offset.",
    ),
    Setting(
        name="offsets.retention.minutes",
        kind="INT",
        default=10_080,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How long committed offsets are kept after their group lost its last member, or after "
        "the commit if the group has no members of its own or no longer subscribes to the topic.",
    ),
    Setting(
        name="offsets.retention.check.interval.ms",
        kind="LONG",
        default=600_000,
        minimum=1,
        maximum=MAX_INT64,
        dynamic=False,
        doc="Time between two looks for committed offsets and groups to expire.",
    ),
    Setting(
        name="offsets.commit.timeout.ms",
        kind="INT",
        default=5_000,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How long the response to a request of a group waits for its records to be replicated.",
    ),
    Setting(
        name="offsets.load.buffer.size",
        kind="INT",
        default=5_242_880,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Bytes of a partition of __consumer_offsets that a new coordinator reads at once; a "
        "larger batch comes nevertheless.",
    ),
    Setting(
        name="offsets.topic.num.partitions",
        kind="INT",
        default=50,
        minimum=1,
        maximum=10_000,
        dynamic=False,
        doc="Partitions of __consumer_offsets; a change has no effect on a topic that exists.",
    ),
    Setting(
        name="offsets.topic.replication.factor",
        kind="SHORT",
        default=3,
        minimum=1,
        maximum=MAX_INT16,
        dynamic=False,
        doc="Replicas of each partition of __consumer_offsets; with fewer brokers there are as "
        "many replicas as brokers.",
    ),
    Setting(
        name="offsets.topic.segment.bytes",
        kind="INT",
        default=104_857_600,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Size at which a segment of __consumer_offsets is rolled.",
    ),
    Setting(
        name="offsets.topic.compression.codec",
        kind="INT",
        default=0,
        minimum=0,
        maximum=4,
        dynamic=False,
        doc="Compression of the records in __consumer_offsets: 0 none, 1 gzip, 2 snappy, 3 lz4, "
        "4 zstd.",
    ),
)
