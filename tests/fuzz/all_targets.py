"""Every fuzzing target, by name."""

from tests.fuzz.target import Target
from tests.fuzz.targets import batches, compression, files, framing, messages, texts

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (framing, messages, batches, compression, files, texts)
    for target in module.TARGETS
}
