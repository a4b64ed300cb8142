"""What a Python interpreter tells about itself: version, missing modules, sparklog's code.

Owns: ``look``.  Its source text travels to interpreters that may lack sparklog or be old, so that
this module uses nothing but the standard library and syntax of Python 3.8, and must not know who
sends it.
"""

from __future__ import annotations

import platform
import sys
from importlib.util import find_spec
from typing import Any, Sequence  # noqa: UP035 - of collections.abc only since Python 3.9


def look(needed: Sequence[str]) -> dict[str, Any]:
    """Describe this interpreter; ``needed`` are names of top-level modules."""
    return {
        "version": platform.python_version(),
        "executable": sys.executable,
        "host": platform.node(),
        "missing": [name for name in needed if not is_there(name)],
        "sparklog": sparklog_fingerprint(),
    }


def is_there(name: str) -> bool:
    """Whether a module can be found; it is not imported."""
    try:
        return find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def sparklog_fingerprint() -> str | None:
    """The fingerprint of the sparklog that is installed here; None without one."""
    before = set(sys.modules)
    try:
        from sparklog.driver.launcher.shipping import fingerprint

        return fingerprint()
    except Exception:
        return None
    finally:
        # A Spark worker may be used again, after another version was sent.
        for name in [name for name in sys.modules if name.partition(".")[0] == "sparklog"]:
            if name not in before:
                del sys.modules[name]
