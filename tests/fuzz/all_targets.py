"""Every fuzzing target, by name."""

from target import Target
from targets import batches, compression, files, framing, messages

TARGETS: dict[str, Target] = {
    target.name: target
    for module in (framing, messages, batches, compression, files)
    for target in module.TARGETS
}
