"""The Spark session of these tests, which is a process of its own.

Owns: the process.  Must not know Spark or what is compared.

The jars have to be on the class path of the JVM from its start, and a process that tested something
else before has a JVM already.
"""

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.compat.spark_outcomes import Job, Outcome, Stream

WORKER = Path(__file__).with_name("spark_worker.py")
STOP_SECONDS_MAX = 60.0


class SparkProcess:
    """``run`` gives what a job came to, for each of its formats."""

    def __init__(self, jars: Path, errors: Path) -> None:
        self._errors = errors
        names = ",".join(str(path) for path in sorted(jars.glob("*.jar")))
        with errors.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, str(WORKER), names],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        try:
            assert self._answer() == "ready"
        except BaseException:
            self.close()
            raise

    def run(self, job: Job | Stream) -> list[Outcome]:
        assert self._process.stdin is not None
        pickle.dump(job, self._process.stdin)
        self._process.stdin.flush()
        found: list[Outcome] = self._answer()
        return found

    def close(self) -> None:
        """It ends when there are no more jobs; if it does not, it is killed."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(STOP_SECONDS_MAX)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait(STOP_SECONDS_MAX)

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        try:
            return pickle.load(self._process.stdout)
        except EOFError:
            raise AssertionError(self._errors.read_text(errors="replace")[-4000:]) from None
