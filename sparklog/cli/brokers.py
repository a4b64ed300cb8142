"""``sparklog brokers``: the brokers of a cluster and the replicas of each.

Owns: the command's options and output.  Must not know how the cluster is asked.
"""

from typing import TYPE_CHECKING, Any

from sparklog.cli.output import (
    DEFAULT_BOOTSTRAP,
    BootstrapOption,
    JsonOption,
    print_rows,
)
from sparklog.cli.topics import with_admin
from sparklog.types import CONTROLLER_NODE_ID

if TYPE_CHECKING:
    from sparklog.client.admin import Admin

_COLUMNS = ("broker", "endpoint", "rack", "state", "replicas", "in_sync", "leads", "prefers")


def brokers(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, as_json: JsonOption = False) -> None:
    """Show brokers: where they are, whether they live, how many replicas they have and lead.

    Prefers: partitions whose first replica it is, so that it should lead them.
    """
    rows = with_admin(bootstrap, _rows)
    print_rows(_COLUMNS, rows, as_json)


async def _rows(admin: "Admin") -> list[dict[str, Any]]:
    description = await admin.describe_cluster()
    partitions = (await admin.replicas.describe(internal=True)).values()
    return [
        {
            "broker": node.node_id,
            "endpoint": str(node.endpoint),
            "rack": node.rack,
            "state": "fenced" if node.fenced else "alive",
            "replicas": sum(node.node_id in each.replicas for each in partitions),
            "in_sync": sum(node.node_id in each.isr for each in partitions),
            "leads": sum(node.node_id == each.leader for each in partitions),
            "prefers": sum(node.node_id == each.replicas[0] for each in partitions),
        }
        for node in description.nodes
        if node.node_id != CONTROLLER_NODE_ID
    ]
