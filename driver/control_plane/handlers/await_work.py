"""AwaitWork (key 20020): a spare supervisor waits until it is given a broker to run."""

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.driver.control_plane.spare_supervisors import SpareSupervisors
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import AwaitWorkRequest


def handler(spare_supervisors: SpareSupervisors) -> ApiHandler:
    def handle(_context: RequestContext, request: AwaitWorkRequest) -> Handled:
        return spare_supervisors.await_work(request)

    return member_handler(AwaitWorkRequest, handle)
