"""GiveWork (key 20021): the launcher gives a spare supervisor a broker to run."""

from sparklog.driver.control_plane.handlers.node import member_handler
from sparklog.driver.control_plane.spare_supervisors import SpareSupervisors
from sparklog.service.handler import ApiHandler, Handled, RequestContext
from sparklog.wire.protocol.private import GiveWorkRequest


def handler(spare_supervisors: SpareSupervisors) -> ApiHandler:
    def handle(_context: RequestContext, request: GiveWorkRequest) -> Handled:
        return spare_supervisors.give_work(request)

    return member_handler(GiveWorkRequest, handle)
