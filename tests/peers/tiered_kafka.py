"""Settings of a real Kafka whose old segments lie in a folder: its plugin ``LocalTieredStorage``.

Owns: the plugin and the topic of its metadata.  Must not know what is copied, nor when.  The class
is in the jars of ``KAFKA_TIERED``.
"""

from pathlib import Path

_MANAGER = "org.apache.kafka.server.log.remote"


def local_tiered_storage(folder: Path) -> dict[str, str]:
    """Settings of a single node that keeps remote segments in ``folder``.

    Kafka begins to look for old segments half a minute after its start by default; here it begins
    after half a second.
    """
    return {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": f"{_MANAGER}.storage.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": str(folder),
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "rlmm.config.remote.log.metadata.topic.replication.factor": "1",
        "rlmm.config.remote.log.metadata.topic.num.partitions": "1",
        "log.initial.task.delay.ms": "500",
    }
