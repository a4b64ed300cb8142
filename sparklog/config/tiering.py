"""The settings of tiered storage (KIP-405).

Owns: their rows in the tables of settings.  Must not know where a setting is used.
"""

from typing import Final

from sparklog.config.setting import Setting, Synonym
from sparklog.types import MAX_INT32, MAX_INT64

#: The value of a local retention that is the same as the retention of the whole log.
LIKE_WHOLE_LOG: Final = -2

TIERING_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="remote.storage.enable",
        kind="BOOLEAN",
        default=False,
        doc="Whether sealed segments are copied to the cluster's remote_dir. retention.ms and "
        "retention.bytes then count both tiers.",
    ),
    Setting(
        name="remote.log.copy.disable",
        kind="BOOLEAN",
        default=False,
        doc="Whether a tiered topic is copied no more. What is in the remote_dir can be read until "
        "it is too old; new records stay on the brokers' disks (KIP-950).",
    ),
    Setting(
        name="remote.log.delete.on.disable",
        kind="BOOLEAN",
        default=False,
        doc="Whether remote.storage.enable may be switched off. The records that some replica does "
        "not have in files are then deleted, and with them everything in the remote_dir (KIP-950).",
    ),
    Setting(
        name="local.retention.ms",
        kind="LONG",
        default=LIKE_WHOLE_LOG,
        minimum=-2,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.local.retention.ms"),),
        doc="Age by record timestamp after which segments that are in the remote_dir are deleted "
        "from the brokers' disks; -1 for never, -2 for retention.ms.",
    ),
    Setting(
        name="local.retention.bytes",
        kind="LONG",
        default=LIKE_WHOLE_LOG,
        minimum=-2,
        maximum=MAX_INT64,
        synonyms=(Synonym(name="log.local.retention.bytes"),),
        doc="Largest size of a partition on a broker's disk before segments that are in the "
        "remote_dir are deleted there; -1 for none, -2 for retention.bytes.",
    ),
)

REMOTE_LOG_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="remote.dir",
        kind="STRING",
        default="",
        dynamic=False,
        doc="Where the segments of tiered topics are kept: s3://BUCKET/FOLDER, or a folder that "
        "all brokers see. start(remote_dir=...) sets it for all nodes. Empty: no topic can be "
        "tiered.",
    ),
    Setting(
        name="remote.log.manager.task.interval.ms",
        kind="LONG",
        default=30_000,
        minimum=1,
        maximum=MAX_INT64,
        doc="Time between two looks of a leader for segments to copy, and for old ones to delete.",
    ),
    Setting(
        name="remote.log.manager.copy.max.bytes.per.second",
        kind="LONG",
        default=MAX_INT64,
        minimum=1024,
        maximum=MAX_INT64,
        doc="Bytes a second that a broker copies to the remote_dir, on average.",
    ),
    Setting(
        name="remote.fetch.max.wait.ms",
        kind="INT",
        default=500,
        minimum=1,
        maximum=MAX_INT32,
        doc="How long a fetch waits for records from the remote_dir, even if the client allows a "
        "shorter wait; then it is answered without them, and the client asks again.",
    ),
    Setting(
        name="remote.signed.url.lifetime.ms",
        kind="LONG",
        default=3_600_000,
        minimum=0,
        maximum=7 * 24 * 3_600_000,
        doc="How long a URL is good with which a Spark task reads a segment from the remote_dir "
        "itself; tasks ask for new URLs. 0: there are no such URLs, and tasks read through the "
        "brokers.",
    ),
    Setting(
        name="remote.cache.bytes",
        kind="LONG",
        default=1024 * 1024 * 1024,
        minimum=16 * 1024 * 1024,
        maximum=MAX_INT64,
        dynamic=False,
        doc="Disk space of a broker for parts of remote segments that clients read.",
    ),
    Setting(
        name="remote.object.delete.delay.ms",
        kind="LONG",
        default=4 * 3_600_000,
        minimum=0,
        maximum=MAX_INT64,
        doc="Time between the moment that a segment leaves the log and the deletion of its "
        "objects: queries that run may still read them.",
    ),
)
