"""IncrementalAlterConfigs (key 44) v0-1: SET, DELETE, APPEND and SUBTRACT (KIP-339).

Topics accept every topic setting.  Brokers (one broker, or all of them with an empty name) accept
only the few settings that can change while they run.
"""

from sparklog.driver.control_plane.handlers.node import Decide
from sparklog.driver.control_plane.handlers.request_parts import decide_config_parts
from sparklog.service.error_responses import refuse_alter_configs
from sparklog.service.handler import MANY_ITEMS, ApiHandler, Handled, RequestContext
from sparklog.slices import Slices
from sparklog.wire.protocol.messages.incremental_alter_configs import IncrementalAlterConfigsRequest


def handler(decide: Decide) -> ApiHandler:
    def handle(
        _context: RequestContext, request: IncrementalAlterConfigsRequest
    ) -> Slices[Handled]:
        return decide_config_parts(decide, request)

    return ApiHandler(
        api_key=IncrementalAlterConfigsRequest.API_KEY,
        min_version=IncrementalAlterConfigsRequest.MIN_VERSION,
        max_version=IncrementalAlterConfigsRequest.MAX_VERSION,
        items_max=MANY_ITEMS,
        handle=handle,
        error_response=refuse_alter_configs,
    )
