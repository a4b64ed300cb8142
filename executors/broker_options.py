"""The options with which a broker process is started.

Owns: the options and their defaults.  Must not know how the broker uses them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of a broker process.

    ``settings`` have Kafka's names.  ``more_data_dirs`` are on other disks: logs are spread
    over all of them.  ``lock_wait_s`` is the longest wait for the lock of a data directory.
    """

    cluster_id: str
    broker_id: int
    data_dir: str
    controller: str
    secret: str = field(repr=False)
    more_data_dirs: Sequence[str] = ()
    new: bool = False
    listen_host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str = ""
    executor_host: str = ""
    executor_id: str = ""
    job: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    lock_wait_s: float = 15.0
