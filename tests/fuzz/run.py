"""``python -m tests.fuzz.run --seconds N``: every decoder against inputs that nobody meant.

Each target runs in a process of its own for its share of the time, by atheris (coverage-guided)
where that is installed, else by seeded mutations.  Prints executions and finds; a find is kept as a
file, whose name is printed, and makes the exit code 1.  ``--only NAME`` runs one target.
``--collect`` instead writes the corpus anew: of the inputs that mutations make, the shortest for
each thing that a decoder says.
"""

import argparse
import os
import random
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.fuzz.target import Target

ROOT = Path(__file__).resolve().parents[2]
HERE = Path(__file__).parent
#: Where inputs that broke a decoder are put.
FINDS = ROOT / ".cache" / "fuzz"
#: One input that takes longer hangs.
INPUT_SECONDS_MAX = 10
#: Address space beyond what a process begins with.
MEMORY_BYTES_MAX = 1 << 30
INPUTS_PER_LOOK = 500
#: Inputs that a corpus keeps, and bytes of each.
KEPT_MAX = 24
KEPT_BYTES_MAX = 400
_EXECUTED = re.compile(r"stat::number_of_executed_units:\s*(\d+)")


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.run", description=__doc__)
    parser.add_argument("--seconds", type=float, default=60, help="for all targets together")
    parser.add_argument(
        "--executions", type=int, default=2**31 - 1, help="of one target, after which it ends"
    )
    parser.add_argument("--only", action="append", help="a target; may be repeated")
    parser.add_argument("--engine", choices=("atheris", "mutations"), help="default: what is there")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--collect", action="store_true", help="write the corpus anew")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    options = parser.parse_args()
    engine = options.engine or ("atheris" if find_spec("atheris") else "mutations")
    if options.collect:
        return _collect(options)
    if options.child:
        return _ENGINES[engine](options)
    return _run_all(options, engine)


def _run_all(options: argparse.Namespace, engine: str) -> int:
    from tests.fuzz.all_targets import TARGETS

    names = options.only or list(TARGETS)
    share = max(1.0, options.seconds * options.jobs / len(names))
    if engine == "mutations":
        print(f"without atheris: mutations from seed {options.seed}, not guided by coverage")
    with ThreadPoolExecutor(options.jobs) as pool:
        results = list(pool.map(lambda name: _in_a_process(name, share, engine, options), names))
    for result in results:
        print(
            f"{result['name']:20} {result['executions']:>10,} executions "
            f"{result['executions'] / share:>9,.0f}/s  {result['find'] or 'nothing found'}"
        )
    print(f"{sum(result['executions'] for result in results):,} executions by {engine}")
    return 1 if any(result["find"] for result in results) else 0


def _in_a_process(
    name: str, seconds: float, engine: str, options: argparse.Namespace
) -> dict[str, Any]:
    FINDS.mkdir(parents=True, exist_ok=True)
    command = [sys.executable, "-m", "tests.fuzz.run", "--child", name, "--engine", engine]
    command += ["--seconds", str(seconds), "--seed", str(options.seed)]
    command += ["--executions", str(options.executions)]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, cwd=ROOT)
    executed = _EXECUTED.search(done.stderr)
    found = ""
    if done.returncode:
        told = done.stdout + done.stderr
        (FINDS / f"{name}.log").write_text(told)
        kept = re.search(r"(?:Test unit written to|kept in) (\S+)", told)
        found = f"FOUND: {kept[1] if kept else 'no input'}; see {FINDS / f'{name}.log'}"
    return {"name": name, "executions": int(executed[1]) if executed else 0, "find": found}


def _collect(options: argparse.Namespace) -> int:
    from tests.fuzz.all_targets import TARGETS
    from tests.fuzz.mutations import mutated
    from tests.fuzz.target import CORPUS

    names = options.only or list(TARGETS)
    for name in names:
        target, stream = TARGETS[name], random.Random(f"{options.seed} {name}")
        shortest: dict[str, bytes] = {}
        end = time.monotonic() + options.seconds / len(names)
        while time.monotonic() < end:
            data = mutated(stream, target.corpus(), target.input_bytes_max)
            said = _said(target, data)
            if len(data) < len(shortest.get(said, bytes(KEPT_BYTES_MAX))):
                shortest[said] = data
        kept = sorted(data.hex() for data in shortest.values() if data)
        (CORPUS / f"{name}.txt").write_text("".join(f"{line}\n" for line in kept[:KEPT_MAX]))
        print(f"{name:20} {len(kept[:KEPT_MAX])} inputs")
    return 0


def _said(target: "Target", data: bytes) -> str:
    """The outcome in words, without its numbers and quotations."""
    try:
        target.decode(data)
    except target.errors as error:
        return re.sub(r"'.*'|\".*\"|\d+", "#", f"{type(error).__name__} {error}")
    return "taken"


# -- the engines, each in a child process


def _by_mutations(options: argparse.Namespace) -> int:
    from tests.fuzz.all_targets import TARGETS
    from tests.fuzz.mutations import mutated

    name, seed = options.child, options.seed
    target = TARGETS[name]
    corpus, stream = target.corpus(), random.Random(f"{seed} {name}")
    _limit_memory(target, corpus)
    signal.signal(signal.SIGALRM, _on_alarm)
    executions, end, data = 0, time.monotonic() + options.seconds, b""
    try:
        while time.monotonic() < end and executions < options.executions:
            signal.alarm(INPUT_SECONDS_MAX)
            for _ in range(INPUTS_PER_LOOK):
                data = mutated(stream, corpus, target.input_bytes_max)
                target.feed(data)
            executions += INPUTS_PER_LOOK
        signal.alarm(0)
    except BaseException:
        traceback.print_exc()
        kept = FINDS / f"{name}-{seed}-{executions}"
        kept.write_bytes(data)
        print(f"kept in {kept}")
        return 1
    finally:
        print(f"stat::number_of_executed_units: {executions}", file=sys.stderr)
    return 0


def _by_atheris(options: argparse.Namespace) -> int:
    import atheris

    with atheris.instrument_imports(include=["sparklog"]):
        from tests.fuzz.all_targets import TARGETS

    name = options.child
    target = TARGETS[name]
    with tempfile.TemporaryDirectory() as folder:
        for number, data in enumerate(target.corpus()):
            (Path(folder) / f"seed-{number}").write_bytes(data)
        arguments = [
            *("fuzz", folder, f"-max_total_time={max(1, round(options.seconds))}"),
            *(f"-seed={options.seed}", f"-runs={options.executions}"),
            *(f"-max_len={target.input_bytes_max}", f"-timeout={INPUT_SECONDS_MAX}"),
            *("-rss_limit_mb=2048", "-print_final_stats=1", "-verbosity=0"),
            f"-artifact_prefix={FINDS}/{name}-",
        ]
        _limit_memory(target, target.corpus())
        atheris.Setup(arguments, target.feed)
        atheris.Fuzz()
    return 0


def _limit_memory(target: "Target", corpus: Sequence[bytes]) -> None:
    """After the libraries have reserved theirs, at their first use."""
    for data in corpus:
        target.feed(data)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (size + MEMORY_BYTES_MAX,) * 2)


def _on_alarm(*_: object) -> None:
    raise TimeoutError(f"one of {INPUTS_PER_LOOK} inputs takes more than {INPUT_SECONDS_MAX} s")


_ENGINES = {"atheris": _by_atheris, "mutations": _by_mutations}

if __name__ == "__main__":
    sys.exit(main())
