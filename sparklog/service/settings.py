"""How a node's settings take effect: at its server, and when they change while it runs.

Owns: settings as limits of a server, and what becomes of a change that does not fit.  Must not know
who connects or who changes settings.
"""

import logging
from collections.abc import Mapping
from typing import Final

from sparklog.config import BrokerConfig
from sparklog.errors import ConfigError
from sparklog.transport import ServerLimits

logger = logging.getLogger(__name__)

#: Descriptors that are neither a connection's nor a log file's.
_OTHER_DESCRIPTORS: Final = 128
#: While a socket is full, a duplicate of its descriptor is watched.
_DESCRIPTORS_PER_CONNECTION: Final = 2
_CONNECTIONS_MIN: Final = 16


def server_limits(config: BrokerConfig, descriptors: int) -> ServerLimits:
    """``descriptors`` is how many the process may have open.

    Clients must not be able to take those that logs need: a log that cannot open a file goes
    offline.
    """
    left = descriptors - config.log_open_files_max - _OTHER_DESCRIPTORS
    affordable = max(left // _DESCRIPTORS_PER_CONNECTION, _CONNECTIONS_MIN)
    return ServerLimits(
        frame_bytes_max=config.socket_request_max_bytes,
        queued_bytes_max=config.queued_max_request_bytes,
        backlog=config.socket_listen_backlog_size,
        receive_buffer_bytes=config.socket_receive_buffer_bytes,
        send_buffer_bytes=config.socket_send_buffer_bytes,
        connections_max=min(config.max_connections, affordable),
        connections_per_address_max=config.max_connections_per_ip,
        connections_max_by_address=config.connections_max_by_address,
        idle_ms_max=config.connections_max_idle_ms,
    )


def changed_config(start: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """A node's settings after changes at run time.

    The controller has checked them; but against the settings that it was started with, which may
    have become others since.  Then the changes do not count, and the log says so.
    """
    try:
        return start.overlay(changes)
    except ConfigError as error:
        logger.error("what was set at run time does not count: %s", error)
        return start
