"""AlterConfigs (key 33) v0-2: replaces all settings of a topic or of brokers.

Settings of a resource that the request does not name are deleted.  IncrementalAlterConfigs has
replaced this API, but older tools still send it.
"""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import decide_config_parts
from sparklog.service.error_responses import refuse_alter_configs
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.alter_configs import AlterConfigsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(_context: RequestContext, request: AlterConfigsRequest) -> Slices[Handled]:
        return decide_config_parts(decide, request)

    return ApiHandler(
        api_key=AlterConfigsRequest.API_KEY,
        min_version=AlterConfigsRequest.MIN_VERSION,
        max_version=AlterConfigsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_alter_configs,
    )
