"""The settings of tiered storage (KIP-405).

Owns: their rows in the tables of settings.  Must not know where a setting is used.
"""

from typing import Final

from sparklog.config.setting import Setting, Synonym
from sparklog.types import MAX_INT32, MAX_INT64

#: The value of a local retention that is the same as the retention of the whole log.
LIKE_WHOLE_LOG: Final = -2
#: The shortest lifetime of a signed URL, in ms.
URL_LIFETIME_MS_MIN: Final = 1000


def quota_burst_ms(windows: int, window_s: int) -> int:
    """The time in ms whose bytes a quota saves up: that of all windows but the present one."""
    return max(windows - 1, 1) * window_s * 1000


def _check_lifetime(milliseconds: int) -> str | None:
    """What is expected in place of this lifetime of URLs, which signatures count in seconds."""
    fits = milliseconds == 0 or milliseconds >= URL_LIFETIME_MS_MIN
    return None if fits else f"0, for no URLs, or at least {URL_LIFETIME_MS_MIN} (one second)"


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
        "not have in files are then deleted, and with them everything in the remote_dir (KIP-950). "
        "true is refused for a topic that was never tiered (not in Kafka).",
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


def _windows(work: str, what: str) -> tuple[Setting, ...]:
    """The windows of Kafka over which the rate of ``work`` is averaged; ``what`` they limit."""
    prefix = f"remote.log.manager.{work}.quota.window"
    limit = f"remote.log.manager.{work}.max.bytes.per.second"
    return (
        Setting(
            name=f"{prefix}.num",
            kind="INT",
            default=11,
            minimum=1,
            maximum=MAX_INT32,
            dynamic=False,
            doc=f"Windows over which the rate of {limit} is averaged, with the present one. {what} "
            "the bytes of all windows but the present one, of one window at least.",
        ),
        Setting(
            name=f"{prefix}.size.seconds",
            kind="INT",
            default=1,
            minimum=1,
            maximum=MAX_INT32,
            dynamic=False,
            doc=f"Length of each window over which the rate of {limit} is averaged.",
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
    *_windows("copy", "A copy that was slowed down by the remote_dir catches up"),
    Setting(
        name="remote.log.manager.fetch.max.bytes.per.second",
        kind="LONG",
        default=MAX_INT64,
        minimum=1024,
        maximum=MAX_INT64,
        doc="Bytes a second that a broker reads from the remote_dir for fetches, on average "
        "(KIP-956). What its cache has does not count. Above it, a fetch is answered without "
        "these records, and the client asks again.",
    ),
    *_windows("fetch", "A broker that was asked for less saves up"),
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
        default=4 * 3_600_000,
        minimum=0,
        maximum=7 * 24 * 3_600_000,
        check=_check_lifetime,
        doc="How long a URL is good with which a Spark task reads a segment from the remote_dir "
        "itself, in whole seconds; tasks ask for new URLs of what is in the log still. Objects are "
        "kept for remote.object.delete.delay.ms after they left it, so a URL that is good for as "
        "long can be used until then. 0: there are no such URLs, and tasks read through the "
        "brokers. 1 to 999 is refused.",
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
