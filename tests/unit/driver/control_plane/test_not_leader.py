"""Node 0 serves the APIs of partition leaders, but leads no partition."""

import pytest

from sparklog.wire.protocol.codec import decode_response, encode_request
from sparklog.wire.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from sparklog.wire.protocol.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    TopicRequest,
)
from sparklog.wire.protocol.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from sparklog.wire.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from sparklog.wire.protocol.messages.metadata import (
    MetadataRequest,
)
from sparklog.wire.protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from sparklog.wire.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from sparklog.wire.protocol.schema import Request, Response
from tests.unit.driver.control_plane.control_plane_fakes import UnderTest, run


def test_it_leads_nothing(request: pytest.FixtureRequest) -> None:
    """Requests with topic names and with topic ids, in the oldest and the newest version."""

    async def story(under_test: UnderTest) -> None:
        asked: list[tuple[Request, type[Response]]] = [
            (
                ProduceRequest(
                    acks=1,
                    topic_data=(
                        TopicProduceData(
                            name="a", partition_data=(PartitionProduceData(index=3, records=b"x"),)
                        ),
                    ),
                ),
                ProduceResponse,
            ),
            (
                FetchRequest(
                    topics=(FetchTopic(topic="a", partitions=(FetchPartition(partition=3),)),)
                ),
                FetchResponse,
            ),
            (
                ListOffsetsRequest(
                    topics=(
                        ListOffsetsTopic(
                            name="a", partitions=(ListOffsetsPartition(partition_index=3),)
                        ),
                    )
                ),
                ListOffsetsResponse,
            ),
            (
                DeleteRecordsRequest(
                    topics=(
                        DeleteRecordsTopic(
                            name="a", partitions=(DeleteRecordsPartition(partition_index=3),)
                        ),
                    )
                ),
                DeleteRecordsResponse,
            ),
            (
                OffsetForLeaderEpochRequest(
                    topics=(
                        OffsetForLeaderTopic(
                            topic="a", partitions=(OffsetForLeaderPartition(partition=3),)
                        ),
                    )
                ),
                OffsetForLeaderEpochResponse,
            ),
            (
                DescribeProducersRequest(topics=(TopicRequest(name="a", partition_indexes=(3,)),)),
                DescribeProducersResponse,
            ),
        ]
        for message, answer in asked:
            assert message.API_KEY in under_test.client.versions
            for version in (message.MIN_VERSION, message.MAX_VERSION):
                payload = encode_request(message, version, 9, "test")
                reply = await under_test.client.exchange(message.API_KEY, (payload,))
                _, response = decode_response(answer, version, reply)
                assert "error_code=6" in repr(response), response
        assert under_test.client.versions[0] == (0, ProduceRequest.MAX_VERSION)
        without_acks = encode_request(ProduceRequest(acks=0), 3, 9, "test")
        await under_test.client.send((without_acks,))
        with pytest.raises(Exception, match=r"lost|closed|reset"):
            await under_test.ask(MetadataRequest())

    run(request, story)
