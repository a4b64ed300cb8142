"""The cluster image, shared by control plane, brokers and clients.

Owns: the values, the records and ``ClusterImage.replay``.  Must not know how records are decided
on, stored or sent.
"""

from sparklog.metadata.image import ClusterImage, TopicImage
from sparklog.metadata.records import (
    BrokerDraining,
    BrokerFenced,
    BrokerIdAssigned,
    BrokerRegistered,
    BrokerRemoved,
    BrokerUnfenced,
    ClusterCreated,
    ConfigChanged,
    ControllerChanged,
    PartitionChanged,
    PartitionsAdded,
    ProducerIdsAllocated,
    Record,
    RemoteDeleteFinished,
    RemoteDeleteMarked,
    ReplicationFactorDeferred,
    TopicCreated,
    TopicDeleted,
    decode_records,
    encode_records,
    from_json,
    to_json,
)
from sparklog.metadata.values import BrokerImage, ControllerImage, PartitionImage

__all__ = [
    "BrokerDraining",
    "BrokerFenced",
    "BrokerIdAssigned",
    "BrokerImage",
    "BrokerRegistered",
    "BrokerRemoved",
    "BrokerUnfenced",
    "ClusterCreated",
    "ClusterImage",
    "ConfigChanged",
    "ControllerChanged",
    "ControllerImage",
    "PartitionChanged",
    "PartitionImage",
    "PartitionsAdded",
    "ProducerIdsAllocated",
    "Record",
    "RemoteDeleteFinished",
    "RemoteDeleteMarked",
    "ReplicationFactorDeferred",
    "TopicCreated",
    "TopicDeleted",
    "TopicImage",
    "decode_records",
    "encode_records",
    "from_json",
    "to_json",
]
