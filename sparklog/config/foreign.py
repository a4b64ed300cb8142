"""Kafka's settings that have no meaning here, and the messages when they are given.

Owns: the list of these settings.  Settings that only tune Kafka's own implementation are ignored
(with a warning when a broker starts), so that a ``server.properties`` can be reused.  Settings that
promise a behaviour which sparklog does not have are refused.  Must not know sparklog's settings.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignSetting:
    """Settings without a meaning here; ``names`` may end in ``*``.

    A setting that is ``ignored`` is accepted at a broker's start only.
    """

    names: tuple[str, ...]
    reason: str
    ignored: bool = False

    def covers(self, name: str) -> bool:
        return any(
            name.startswith(known[:-1]) if known.endswith("*") else name == known
            for known in self.names
        )


def _names(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FOREIGN_SETTINGS: tuple[ForeignSetting, ...] = (
    ForeignSetting(
        names=_names(
            """
            background.threads num.io.threads
            num.network.threads queued.max.requests
            num.replica.alter.log.dirs.threads
            fetch.purgatory.purge.interval.requests log.initial.task.delay.ms
            producer.purgatory.purge.interval.requests request.timeout.ms
            delete.records.purgatory.purge.interval.requests
            socket.connection.setup.timeout.ms socket.connection.setup.timeout.max.ms
            controlled.shutdown.* server.max.startup.time.ms
            initial.broker.registration.timeout.ms log.dir.failure.timeout.ms
            """
        ),
        reason="it tunes threads, queues and timers that a broker here does not have",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            metric.reporters metrics.* auto.include.jmx.reporter telemetry.*
            """
        ),
        reason="there are no JVM metrics; sparklog status shows a node's counters",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            replica.selector.class replica.fetch.min.bytes replica.socket.*
            replica.high.watermark.checkpoint.interval.ms num.replica.fetchers
            replication.quota.*
            """
        ),
        reason="a follower has one connection to each leader, asks for whatever there is, and "
        "consumers with a rack read from the replica in it",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            group.coordinator.* group.consumer.* group.share.* group.streams.* share.* consumer.*
            """
        ),
        reason="groups use the classic protocol; there are no consumer groups of KIP-848, no share "
        "groups and no streams groups",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            transaction.state.log.compression.codec transaction.two.phase.commit.enable
            """
        ),
        reason="the transaction coordinator writes small records without compression, and has no "
        "two-phase commits (KIP-939)",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            log.cleaner.io.buffer.load.factor
            """
        ),
        reason="the log cleaner keeps whole keys and not a table of their hashes",
        ignored=True,
    ),
    ForeignSetting(
        names=_names(
            """
            remote.log.metadata.* remote.log.storage.* remote.log.index.* remote.log.reader.*
            remote.log.manager.thread.* remote.log.manager.copier.*
            remote.log.manager.expiration.* remote.log.manager.follower.*
            remote.log.manager.task.retry.* remote.list.*
            """
        ),
        reason="the remote tier is that of remote_dir, without plugins or threads to tune",
    ),
    ForeignSetting(
        names=_names(
            """
            compression.gzip.level compression.lz4.level compression.zstd.level
            """
        ),
        reason="batches are stored as the producer compressed them, so the producer sets the level",
    ),
    ForeignSetting(
        names=_names(
            """
            zookeeper.* inter.broker.* control.plane.listener.name
            offsets.commit.required.acks
            log.message.format.version message.format.version
            log.message.downconversion.enable message.downconversion.enable
            log.message.timestamp.difference.max.ms message.timestamp.difference.max.ms
            broker.id.generation.enable reserved.broker.max.id
            """
        ),
        reason="Kafka 4 has removed it",
    ),
    ForeignSetting(
        names=_names(
            """
            process.roles node.id broker.id controller.* metadata.*
            eligible.leader.replicas.enable unstable.*
            """
        ),
        reason="the control plane gives brokers their ids and keeps the cluster's state in the "
        "journal; see journal_dir",
    ),
    ForeignSetting(
        names=_names(
            """
            listeners advertised.listeners listener.* early.start.listeners port host.name
            """
        ),
        reason="a broker listens at its executor's host; see listen_host and advertised_host "
        "of start()",
    ),
    ForeignSetting(
        names=_names(
            """
            ssl.* sasl.* security.* principal.* authorizer.* super.users password.*
            delegation.* allow.everyone.* connection.failed.authentication.delay.ms
            connections.max.reauth.ms
            """
        ),
        reason="clients are neither authenticated nor encrypted; keep the listeners in a "
        "network that you trust",
    ),
    ForeignSetting(
        names=_names(
            """
            quota.* client.quota.* alter.log.dirs.* max.connection.creation.rate
            """
        ),
        reason="there are no quotas",
    ),
    ForeignSetting(
        names=("replica.alter.log.dirs.io.max.bytes.per.second",),
        reason="replicas are not moved from one directory of a broker to another",
    ),
    ForeignSetting(
        names=_names(
            """
            log.dir log.dirs cordoned.log.dirs
            """
        ),
        reason="data directories are given to start() or serve, as data_dir; give several of them "
        "for several disks",
    ),
    ForeignSetting(
        names=_names(
            """
            create.topic.policy.class.name alter.config.policy.class.name
            """
        ),
        reason="Java classes cannot be loaded",
    ),
)


def find_foreign(name: str) -> ForeignSetting | None:
    """The entry of a setting of Kafka's; None if it is not in the list."""
    return next((foreign for foreign in FOREIGN_SETTINGS if foreign.covers(name)), None)
