"""What a fuzzing target is: a decoder, what it may raise, and inputs to begin with.

Owns: the rule that every decoder keeps: whatever comes in, a value or one of its documented errors
comes out, in bounded time and memory.  Must not know any decoder, nor where inputs come from.
"""

import tracemalloc
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from sparklog.errors import DecodeError

CORPUS = Path(__file__).parent / "corpus"
#: Beside what an input of the largest size may decode to.
PEAK_BYTES_MAX = 8 * 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """``decode`` takes one input and asserts what must hold of the outcome.

    ``errors`` are what it may raise; ``seeds`` makes valid inputs.
    """

    name: str
    decode: Callable[[bytes], object]
    seeds: Callable[[], Iterable[bytes]]
    errors: tuple[type[Exception], ...] = (DecodeError,)
    input_bytes_max: int = 4096

    def feed(self, data: bytes) -> bool:
        """Whether the input was taken.  Raises what the decoder must not raise."""
        try:
            self.decode(data)
        except self.errors:
            return False
        return True

    def feed_measured(self, data: bytes) -> int:
        """Feed, and give the most bytes that were allocated meanwhile."""
        tracemalloc.start()
        try:
            self.feed(data)
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    def corpus(self) -> list[bytes]:
        """The seeds, and the inputs that are kept in a file, one a line, in hexadecimal."""
        kept = CORPUS / f"{self.name}.txt"
        lines = kept.read_text().split() if kept.exists() else []
        return [*self.seeds(), *map(bytes.fromhex, lines)]
