"""How much work something is, without a clock: the bytecodes that Python runs for it.

For tests of what grows with what; loops inside of C are not seen.
"""

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any


def count_operations(work: Callable[[], object]) -> int:
    """Bytecodes that ``work`` runs in this thread."""
    count = 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal count
        if event == "call":
            frame.f_trace_opcodes, frame.f_trace_lines = True, False
        elif event == "opcode":
            count += 1
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        work()
    finally:
        sys.settrace(before)
    return count
