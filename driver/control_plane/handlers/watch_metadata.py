"""WatchMetadata (key 20004): the commits after a version, or a snapshot; a long poll."""

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.driver.control_plane.metadata_feed import MetadataFeed
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import WatchMetadataRequest


def handler(feed: MetadataFeed) -> ApiHandler:
    def handle(_context: RequestContext, request: WatchMetadataRequest) -> Handled:
        return feed.watch(request)

    return member_handler(WatchMetadataRequest, handle)
