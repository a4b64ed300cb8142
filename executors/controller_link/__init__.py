"""A broker's link to the controller.

Owns: the connection, the broker's lifecycle (registration, heartbeats, metadata), blocks of
producer ids and the creation of internal topics.  Must not know partitions or clients.
"""

from sparklog.executors.controller_link.connection import ControllerConnection, retry_pauses
from sparklog.executors.controller_link.lifecycle import BrokerIdentity, BrokerLifecycle
from sparklog.executors.controller_link.producer_ids import Allocate, ProducerIds

__all__ = [
    "Allocate",
    "BrokerIdentity",
    "BrokerLifecycle",
    "ControllerConnection",
    "ProducerIds",
    "retry_pauses",
]
