"""The survey of a journal: its last good image, and the commits after the damage.

Owns: which files are damaged or missing, which checkpoint and which commits are good, and the
readable content of commits after the damage.  It only reads.  Must not know how a repair changes
the journal.

The last good image comes from the good checkpoint and the commits after it that together reach
furthest without a gap.  Every later commit is lost to a start from that image, even if the commit
is readable: its changes depend on a commit that is not known.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from math import inf

from sparklog.commit_log import (
    COMMITS_PER_READ,
    FILE_BYTES_MAX,
    checkpoint_name,
    checkpoint_numbers,
    commit_name,
    commit_numbers,
)
from sparklog.driver.control_plane.journal import SECRET_BYTES, SECRET_NAME
from sparklog.driver.control_plane.journal_files import CommitHeader
from sparklog.driver.control_plane.journal_repair.salvage import FileContent, read_content
from sparklog.errors import DecodeError, StorageError
from sparklog.metadata import ClusterImage, Record
from sparklog.storage_backends.base import FileHalf, MissingPathError, StorageBackend

#: A file whose number is further than this above all others does not belong to this journal.
#: Otherwise a file with a wrong name would make every number below it a missing commit.
GAP_MAX = 1_000_000
#: How often a survey is tried when files vanish meanwhile, as they do while a cluster runs.
SURVEYS_MAX = 3


class State(StrEnum):
    """The state of a commit after the last good commit."""

    DAMAGED = "damaged"
    MISSING = "missing"
    READABLE = "readable"


@dataclass(frozen=True, slots=True, kw_only=True)
class DamagedFile:
    """A file that cannot be read completely.

    ``needed`` says that the image cannot be continued beyond the last good commit without this
    file.  Otherwise an image newer than the file is known.
    """

    name: str
    reason: str
    needed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LostCommit:
    """A commit after the last good commit.  ``records`` are its readable records."""

    number: int
    state: State
    records: tuple[Record, ...] = ()
    controller_epoch: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """The result of a survey.

    ``image`` is the last good image, or None when no image can be built.  ``checkpoint`` is the
    number of the checkpoint that the image was built from, 0 if there was none.  ``highest`` is the
    highest number of any file.
    """

    url: str
    image: ClusterImage | None
    checkpoint: int
    checkpoints: tuple[int, ...]
    commits: tuple[int, ...]
    highest: int
    header: CommitHeader | None = None
    damaged: tuple[DamagedFile, ...] = ()
    lost: tuple[LostCommit, ...] = field(default=(), repr=False)

    @property
    def is_empty(self) -> bool:
        """Whether the journal has no file at all."""
        return not (self.checkpoints or self.commits or self.damaged)

    @property
    def is_sound(self) -> bool:
        """Whether nothing is damaged or missing."""
        return not self.damaged and not self.lost and self.image is not None

    @property
    def starts(self) -> bool:
        """Whether a control plane can start from this journal as it is."""
        return (
            self.image is not None
            and not self.lost
            and not any(each.needed for each in self.damaged)
        )

    @property
    def version(self) -> int:
        """The number of the last good commit; 0 if there is none."""
        return self.image.version if self.image is not None else 0


def survey_journal(backend: StorageBackend) -> Survey:
    """Read every file of a journal.

    Raises:
        StorageError: the store does not answer, or files vanish again and again.
    """
    for attempt in range(1, SURVEYS_MAX + 1):
        try:
            return _survey(backend)
        except MissingPathError:
            if attempt == SURVEYS_MAX:
                raise
    raise AssertionError("unreachable")


def _survey(backend: StorageBackend) -> Survey:
    names = backend.list("")
    files = _Files(backend, commit_numbers(names))
    found = {n: files.read(checkpoint_name(n), n) for n in checkpoint_numbers(names)}
    far = _first_foreign_number(commit_numbers(names), found)
    commits = [n for n in commit_numbers(names) if n < far]
    checkpoints = {n: content for n, content in found.items() if n < far or not content.damage}
    base, image = _best_image(files, checkpoints, commits)
    version = image.version if image is not None else 0
    highest = max((*commits, *checkpoints), default=0)
    lost = _lost_commits(files, set(commits), version, highest) if image is not None else ()
    damaged = [
        DamagedFile(
            name=checkpoint_name(number),
            reason=content.damage,
            needed=image is None or number > version,
        )
        for number, content in checkpoints.items()
        if content.damage
    ]
    damaged += _damaged_commits(files, commits, version, needed=image is None)
    damaged += [
        DamagedFile(name=name, reason="its number is far behind all others", needed=True)
        for name in (
            *(checkpoint_name(n) for n in found if n not in checkpoints),
            *(commit_name(n) for n in commit_numbers(names) if n >= far),
        )
    ]
    damaged += _damaged_secret(backend, names)
    return Survey(
        url=backend.url,
        image=image,
        checkpoint=base,
        checkpoints=tuple(n for n, content in checkpoints.items() if not content.damage),
        commits=tuple(commits),
        highest=highest,
        header=files.header_of(version, base),
        damaged=tuple(damaged),
        lost=lost,
    )


class _Files:
    """The journal's files, with a cache of the commits that were read."""

    def __init__(self, backend: StorageBackend, commits: Sequence[int]) -> None:
        self._backend = backend
        self._numbers = list(commits)
        self._commits: dict[int, FileContent] = {}
        self._headers: dict[str, CommitHeader | None] = {}
        #: Why a readable commit does not fit the image of the commits before it, by number.
        self.misfits: dict[int, str] = {}

    def read(self, name: str, number: int) -> FileContent:
        """Read one file; damage is part of the result.  Raises StorageError if the store fails."""
        try:
            if self._backend.size(name) > FILE_BYTES_MAX:
                content = _unreadable(f"it is larger than {FILE_BYTES_MAX} bytes")
            else:
                content = read_content(self._backend.read(name), number)
        except MissingPathError:
            raise
        except StorageError as error:
            if not isinstance(self._backend, FileHalf):
                raise  # the failure of an object store tells nothing about the file
            content = _unreadable(str(error))
        self._headers[name] = content.header
        return content

    def commit(self, number: int) -> FileContent:
        if number not in self._commits:
            if isinstance(self._backend, FileHalf):
                self._commits[number] = self.read(commit_name(number), number)
            else:
                self._read_together(number)
        return self._commits[number]

    def forget(self, number: int) -> None:
        """Drop the records of a good commit from memory."""
        self._commits.pop(number, None)

    def damage_of(self, number: int) -> str:
        """The damage of a commit, in words; empty for a good commit."""
        return self.commit(number).damage or self.misfits.get(number, "")

    def header_of(self, version: int, checkpoint: int) -> CommitHeader | None:
        name = commit_name(version) if version > checkpoint else checkpoint_name(checkpoint)
        return self._headers.get(name)

    def _read_together(self, first: int) -> None:
        """Read several commits of an object store, where every request takes a round trip."""
        start = bisect_left(self._numbers, first)
        numbers = self._numbers[start : start + COMMITS_PER_READ]
        found = self._backend.read_many([commit_name(number) for number in numbers])
        for number, data in zip(numbers, found, strict=True):
            content = self._commits[number] = read_content(data, number)
            self._headers[commit_name(number)] = content.header


def _unreadable(reason: str) -> FileContent:
    return FileContent(header=None, records=(), controller_epoch=-1, damage=reason)


def _first_foreign_number(commits: Sequence[int], checkpoints: Mapping[int, FileContent]) -> float:
    """The first number that is too far above the others for a file of this journal.

    The result is infinity if there is no such number.  A readable checkpoint belongs to this
    journal, whatever its number.  In a journal without checkpoints any number may be the first,
    because the commits before it may be missing.
    """
    good = [number for number, content in checkpoints.items() if not content.damage]
    numbers = sorted({*commits, *checkpoints})
    last = max(good, default=numbers[0] if numbers else 0)
    for number in numbers:
        if number > last + GAP_MAX:
            return number
        last = max(last, number)
    return inf


def _best_image(
    files: _Files, checkpoints: Mapping[int, FileContent], commits: Sequence[int]
) -> tuple[int, ClusterImage | None]:
    """The checkpoint of the image that reaches furthest, and that image.

    The newest readable checkpoint reaches furthest: commits after an older checkpoint either reach
    the newest one, or end before it.
    """
    present = set(commits)
    good = [number for number, content in checkpoints.items() if not content.damage]
    for base in (*sorted(good, reverse=True), 0):
        image = _image_from(files, base, checkpoints, present) if base or 1 in present else None
        if image is not None:
            return base, image
    return 0, None


def _image_from(
    files: _Files, base: int, checkpoints: Mapping[int, FileContent], present: set[int]
) -> ClusterImage | None:
    """The image of a checkpoint and the commits that follow it without a gap.

    The result is None when the checkpoint's records build no image.
    """
    end: int | None = None
    while True:
        image = ClusterImage()
        try:
            if base:
                image.replay_commit(base, checkpoints[base].records)
        except LookupError:
            return None
        failed = _replay_commits(files, image, present, end)
        if failed is None:
            return image if image.version else None
        end = failed  # half of that commit was replayed: build the image again without it


def _replay_commits(
    files: _Files, image: ClusterImage, present: set[int], end: int | None
) -> int | None:
    """Replay the commits that follow without a gap, up to ``end``.

    Returns:
        The number of a commit that failed half-way; None when all were replayed.
    """
    number = image.version + 1
    while number in present and number != end and not files.damage_of(number):
        try:
            image.replay_commit(number, files.commit(number).records)
        except (LookupError, DecodeError) as error:
            files.misfits[number] = f"it does not fit the commits before it: {error}"
            return number
        number += 1
    return None


def _lost_commits(
    files: _Files, present: set[int], version: int, highest: int
) -> tuple[LostCommit, ...]:
    lost: list[LostCommit] = []
    for number in range(version + 1, highest + 1):
        if number not in present:
            lost.append(LostCommit(number=number, state=State.MISSING))
            continue
        content = files.commit(number)
        lost.append(
            LostCommit(
                number=number,
                state=State.DAMAGED if files.damage_of(number) else State.READABLE,
                records=content.records,
                controller_epoch=content.controller_epoch,
            )
        )
    return tuple(lost)


def _damaged_commits(
    files: _Files, commits: Sequence[int], version: int, *, needed: bool
) -> list[DamagedFile]:
    damaged: list[DamagedFile] = []
    for number in commits:
        reason = files.damage_of(number)
        if reason:
            is_needed = needed or number > version
            damaged.append(DamagedFile(name=commit_name(number), reason=reason, needed=is_needed))
        elif number <= version:
            files.forget(number)
    return damaged


def _damaged_secret(backend: StorageBackend, names: Sequence[str]) -> list[DamagedFile]:
    if SECRET_NAME not in names:
        return []
    try:
        sound = len(bytes.fromhex(backend.read(SECRET_NAME).decode())) == SECRET_BYTES
    except ValueError:
        sound = False
    if sound:
        return []
    reason = "it is not the secret of a cluster; a new one is made when it is gone"
    return [DamagedFile(name=SECRET_NAME, reason=reason, needed=True)]
