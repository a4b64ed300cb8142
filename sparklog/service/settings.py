"""The effects of a node's settings on its server, and changes of settings at run time.

Owns: a server's limits as they follow from settings, and the handling of invalid changes.  Must not
know which clients connect, or how settings are changed.
"""

import logging
from collections.abc import Mapping
from typing import Final

from sparklog.config import BrokerConfig
from sparklog.errors import ConfigError
from sparklog.transport import ServerLimits

logger = logging.getLogger(__name__)

#: File descriptors that are used neither by connections nor by log files.
_OTHER_DESCRIPTORS: Final = 128
#: While a socket is full, a duplicate of its descriptor is watched.
_DESCRIPTORS_PER_CONNECTION: Final = 2
_CONNECTIONS_MIN: Final = 16
#: The percentage of all descriptors that log files may use.
_LOG_FILES_PERCENT: Final = 40


def server_limits(config: BrokerConfig, descriptors: int) -> ServerLimits:
    """The limits of a node's server.

    Connections must not use up the descriptors that logs need: a log that cannot open a file goes
    offline.

    Args:
        descriptors: the number of descriptors that the process may have open.
    """
    left = descriptors - open_files_max(config, descriptors) - _OTHER_DESCRIPTORS
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


def open_files_max(config: BrokerConfig, descriptors: int) -> int:
    """The number of log files and index maps that a broker may have open at once.

    Args:
        descriptors: the number of descriptors that the process may have open.
    """
    return min(config.log_open_files_max, descriptors * _LOG_FILES_PERCENT // 100)


def changed_config(start: BrokerConfig, changes: Mapping[str, str]) -> BrokerConfig:
    """A node's settings after changes at run time.

    The controller has checked the changes, but against its own start settings, which may differ
    from this node's.  Changes that do not fit are ignored, and an error is logged.
    """
    try:
        return start.overlay(changes)
    except ConfigError as error:
        logger.error("what was set at run time does not count: %s", error)
        return start
