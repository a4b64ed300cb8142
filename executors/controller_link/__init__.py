"""A broker's link to the controller.

Owns: the connection, the broker's lifecycle (registration, heartbeats, metadata), blocks of
producer ids, the creation of internal topics and questions about transactions.  Must not know
partitions or clients.
"""

from sparklog.executors.controller_link.connection import ControllerConnection, retry_pauses
from sparklog.executors.controller_link.lifecycle import BrokerIdentity, BrokerLifecycle
from sparklog.executors.controller_link.producer_ids import Allocate, ProducerIds
from sparklog.executors.controller_link.transaction_verifier import TransactionVerifier

__all__ = [
    "Allocate",
    "BrokerIdentity",
    "BrokerLifecycle",
    "ControllerConnection",
    "ProducerIds",
    "TransactionVerifier",
    "retry_pauses",
]
