"""The options of a broker process.

Owns: the options and their defaults.  Must not know how the broker uses them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerOptions:
    """The options of a broker process, as its supervisor sends them.

    Args:
        data_dir: the folder or file URL below which the broker has its log directory.
        controller: the control plane's address, ``host:port``.
        secret: the cluster secret, in hexadecimal.
        more_data_dirs: further data folders, on other disks; logs are spread over all of them.
        new: whether the broker may create its log directory.
        port: the port to listen on; 0 takes any free port.
        advertised_host: the address that clients are given; empty for ``listen_host``.
        settings: broker settings by Kafka's names.
        remote_options: options of the store of ``remote.dir``; they may hold a secret.
        lock_wait_s: seconds to wait for the lock of the log directory.
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
    remote_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    lock_wait_s: float = 15.0
