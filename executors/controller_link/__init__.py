"""A broker's link to the controller.

Owns: the connection, the broker's lifecycle (registration and heartbeats) and blocks of producer
ids.  Must not know partitions or clients.
"""

from sparklog.executors.controller_link.connection import ControlLink, retry_pauses
from sparklog.executors.controller_link.lifecycle import BrokerIdentity, Registration
from sparklog.executors.controller_link.producer_ids import Allocate, ProducerIds

__all__ = [
    "Allocate",
    "BrokerIdentity",
    "ControlLink",
    "ProducerIds",
    "Registration",
    "retry_pauses",
]
