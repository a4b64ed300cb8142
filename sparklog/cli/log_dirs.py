"""``sparklog log-dirs``: the log directories of nodes, their sizes and their errors.

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

if TYPE_CHECKING:
    from sparklog.client.admin import LogDirDescription


def log_dirs(bootstrap: BootstrapOption = DEFAULT_BOOTSTRAP, as_json: JsonOption = False) -> None:
    """Show where brokers keep their logs, how large these are, and which disks have failed."""
    described = with_admin(bootstrap, lambda admin: admin.describe_log_dirs())
    rows = [_row(node_id, each) for node_id, found in described.items() for each in found]
    columns = ("node", "directory", "partitions", "bytes", "disk_bytes", "usable_bytes")
    print_rows((*columns, "error"), rows, as_json)


def _row(node_id: int, found: "LogDirDescription") -> dict[str, Any]:
    return {
        "node": node_id,
        "directory": found.path,
        "partitions": len(found.sizes),
        "bytes": sum(found.sizes.values()),
        "disk_bytes": None if found.total_bytes < 0 else found.total_bytes,
        "usable_bytes": None if found.usable_bytes < 0 else found.usable_bytes,
        "error": found.error.name if found.error else None,
    }
