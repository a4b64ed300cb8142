"""The broker settings about replication: fetching, lag, leader elections and replacement.

Owns: their rows in the table of settings.  Must not know where a setting is used.
"""

from sparklog.config.setting import Setting
from sparklog.types import MAX_INT32, MAX_INT64

REPLICATION_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="broker.rack",
        kind="STRING",
        default=None,
        dynamic=False,
        doc="Where this broker stands; replicas of a partition go to different racks, and a "
        "consumer with that client.rack reads from it (KIP-392). Empty: its host. "
        "start(racks=...) gives each broker that of its host.",
    ),
    Setting(
        name="replica.lag.time.max.ms",
        kind="LONG",
        default=30_000,
        minimum=1,
        maximum=MAX_INT64,
        dynamic=False,
        doc="A follower that has not reached its leader's log end for so long leaves the in-sync "
        "replicas.",
    ),
    Setting(
        name="replica.fetch.max.bytes",
        kind="INT",
        default=1_048_576,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Most bytes of one partition that a follower asks for at once; a larger batch comes "
        "nevertheless.",
    ),
    Setting(
        name="replica.fetch.response.max.bytes",
        kind="INT",
        default=10_485_760,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Most bytes that a follower asks of one leader at once.",
    ),
    Setting(
        name="replica.fetch.wait.max.ms",
        kind="INT",
        default=500,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How long a leader keeps a follower's fetch that finds nothing new; less than "
        "replica.lag.time.max.ms.",
    ),
    Setting(
        name="replica.fetch.backoff.ms",
        kind="INT",
        default=1_000,
        minimum=0,
        maximum=MAX_INT32,
        dynamic=False,
        doc="Longest pause of a follower before it asks again about a partition, or a leader, that "
        "gave an error.",
    ),
    Setting(
        name="auto.leader.rebalance.enable",
        kind="BOOLEAN",
        default=True,
        dynamic=False,
        doc="Give partitions back to their preferred leaders when a broker leads too few of its "
        "own.",
    ),
    Setting(
        name="leader.imbalance.check.interval.seconds",
        kind="LONG",
        default=300,
        minimum=1,
        maximum=MAX_INT32,
        dynamic=False,
        doc="How often that is looked at.",
    ),
    Setting(
        name="leader.imbalance.per.broker.percentage",
        kind="INT",
        default=10,
        minimum=0,
        maximum=100,
        dynamic=False,
        doc="A broker may lack so many of a hundred partitions that prefer it before they are "
        "given back.",
    ),
    Setting(
        name="unclean.recovery.timeout.ms",
        kind="LONG",
        default=30_000,
        minimum=0,
        maximum=MAX_INT64,
        dynamic=False,
        doc="When every replica that is known to be complete has stopped uncleanly: how long the "
        "others of them are waited for once one is back, before the best log leads.",
    ),
    Setting(
        name="broker.replacement.delay.ms",
        kind="LONG",
        default=600_000,
        minimum=0,
        maximum=MAX_INT64,
        dynamic=False,
        doc="How long the host of a lost broker may take to come back before its id is given a "
        "new, empty directory on another one, and before replicas that a draining broker was to "
        "give it go elsewhere.",
    ),
    Setting(
        name="leader.replication.throttled.rate",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        doc="Bytes a second that a broker sends to followers of throttled replicas.",
    ),
    Setting(
        name="follower.replication.throttled.rate",
        kind="LONG",
        default=MAX_INT64,
        minimum=0,
        maximum=MAX_INT64,
        doc="Bytes a second that a broker fetches for throttled replicas of its own.",
    ),
)
