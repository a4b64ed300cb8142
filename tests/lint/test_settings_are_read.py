"""A setting that nothing reads would be a promise that nobody keeps."""

import ast
from pathlib import Path

from sparklog.config import BROKER_SETTINGS, TOPIC_SETTINGS

ROOT = Path(__file__).resolve().parents[2]
ROOMS = ("driver", "executors", "sparklog/service")

#: Read by nobody, and why.
UNREAD = {
    "compression_type": "there is one value, and batches are never compressed anew",
    "preallocate": "its document says that it has no effect",
}


def attributes_read() -> set[str]:
    """The names of all attributes that the rooms read."""
    return {
        node.attr
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
    }


def test_every_setting_is_read_somewhere() -> None:
    fields = {setting.field for setting in (*TOPIC_SETTINGS, *BROKER_SETTINGS)}
    # Read where the config of a broker or a topic is checked and made ready.
    ready = {
        "max_connections_per_ip_overrides",
        "message_timestamp_type",
        "cleanup_policy",
        "local_retention_ms",
        "local_retention_bytes",
        "remote_log_copy_disable",
        "remote_log_delete_on_disable",
    }
    assert fields - attributes_read() - ready == UNREAD.keys()
