"""The options of a control plane.

Owns: the options and their defaults.  Must not know how the control plane uses them.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlPlaneOptions:
    """The options of a control plane.

    Args:
        journal_dir: folder or URL of the journal.
        port: the port to listen on; 0 takes any free port.
        advertised_host: the address that clients are given; empty for ``listen_host``.
        expected_cluster_id: refuse a journal of another cluster; None accepts any.
        settings: broker settings by Kafka's names.
        storage_options: options of the stores of journal and remote logs; they may hold a secret.
        checks_remote_dir: refuse a remote_dir that cannot be used now.
        journal_may_be_old: skip the numbers that lost commits at the end of the journal may have
            used, because the journal may be an old copy.
    """

    journal_dir: str
    listen_host: str = "127.0.0.1"
    port: int = 0
    advertised_host: str = ""
    expected_cluster_id: str | None = None
    settings: Mapping[str, str] = field(default_factory=dict)
    storage_options: Mapping[str, Any] = field(default_factory=dict, repr=False)
    checks_remote_dir: bool = True
    journal_may_be_old: bool = False
