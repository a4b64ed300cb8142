"""The handlers of the requests about groups.

Owns: the list.  Must not know what any handler does.
"""

from sparklog.executors.handlers import (
    delete_groups,
    describe_groups,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
    txn_offset_commit,
)
from sparklog.executors.handlers.group_requests import GroupRequests
from sparklog.executors.replica_manager import VerifyTransaction
from sparklog.service.handler import ApiHandler

_APIS = (
    offset_commit,
    offset_fetch,
    join_group,
    heartbeat,
    leave_group,
    sync_group,
    describe_groups,
    list_groups,
    delete_groups,
    offset_delete,
)


def handlers(groups: GroupRequests, verify: VerifyTransaction) -> list[ApiHandler]:
    """``verify`` confirms the transactions of commits."""
    apis = [api.handler(groups) for api in _APIS]
    return [*apis, txn_offset_commit.handler(groups, verify)]
