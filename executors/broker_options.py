"""What a broker process is started with.

Owns: the options and their defaults.  Must not know what the broker makes of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """What a broker process is told; ``settings`` by Kafka's names.

    ``more_data_dirs`` are on other disks: logs are spread over all of them.
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
