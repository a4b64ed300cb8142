"""The description of a Python interpreter: its version, missing modules, and sparklog's code.

Owns: ``describe_interpreter``.  The source text of this module is sent to interpreters that may be
old or lack sparklog.  Therefore the module uses only the standard library and the syntax of Python
3.8.  Must not know which code sends the text.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from typing import Any, Sequence  # noqa: UP035 - of collections.abc only since Python 3.9


def describe_interpreter(needed: Sequence[str]) -> dict[str, Any]:
    """Describe this interpreter.

    Args:
        needed: the names of top-level modules that must be there.
    """
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "host": platform.node(),
        "missing": [name for name in needed if not is_there(name)],
        "sparklog": sparklog_fingerprint(),
    }


def is_there(name: str) -> bool:
    """Whether a module can be found.  The module is not imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def sparklog_fingerprint() -> str | None:
    """The fingerprint of the sparklog that is installed here; None without sparklog."""
    before = set(sys.modules)
    try:
        from sparklog.driver.launcher.shipping import fingerprint

        return fingerprint()
    except Exception:
        return None
    finally:
        # Spark may reuse this worker after another version of sparklog was sent to it.
        for name in [name for name in sys.modules if name.partition(".")[0] == "sparklog"]:
            if name not in before:
                del sys.modules[name]
