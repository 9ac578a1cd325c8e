"""Finds the copies of a machine's tables in their folder, with the freshness of each.

A file beside each copy has the time when the copy was last known to have its whole log. All
processes map the file into memory, because the time changes twice a second for each table.
"""

import mmap
import os
import struct
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeAlias

from shared.config.table import Table
from shared.runtime.tables.copy import DamagedError, TableCopy

# No table's folder has this name: such folders are named after a table and its generation.
LOCK = "follower"
_HEARD = "heard"
DAMAGED = "damaged"
# The file of a copy that has stopped, because its table would exceed its limit.
FULL = "full"
_NUMBER = struct.Struct(">Q")
# A table's name and generation.
_Name: TypeAlias = tuple[str, int]
# How often a reader checks whether its copy has been replaced.
_LOOK_S = 0.5


def copy_folder(folder: Path, table: Table) -> Path:
    return _folder_of(folder, _name(table))


class HeardFile:
    """The time when a copy was last known to be complete, in epoch milliseconds; 0 means never."""

    def __init__(self, folder: Path, *, is_writer: bool = False) -> None:
        flags = os.O_RDWR | os.O_CREAT if is_writer else os.O_RDONLY
        file = os.open(folder / _HEARD, flags, 0o644)
        try:
            if is_writer:
                os.ftruncate(file, _NUMBER.size)
            access = mmap.ACCESS_WRITE if is_writer else mmap.ACCESS_READ
            self._mapped = mmap.mmap(file, _NUMBER.size, access=access)
        finally:
            os.close(file)

    @property
    def at_ms(self) -> int:
        at_ms: int = _NUMBER.unpack_from(self._mapped)[0]
        return at_ms

    @at_ms.setter
    def at_ms(self, at_ms: int) -> None:
        _NUMBER.pack_into(self._mapped, 0, at_ms)

    def close(self) -> None:
        self._mapped.close()


@dataclass(frozen=True, slots=True)
class OpenCopy:
    """An open copy with its freshness."""

    copy: TableCopy
    heard: HeardFile
    # The inode number of its file, which differs for a rebuilt copy.
    number: int

    def close(self) -> None:
        self.copy.close()
        self.heard.close()


@dataclass(slots=True)
class TableCopies:
    """The copies that one process reads, opened at their first use."""

    folder: Path
    _open: dict[_Name, OpenCopy] = field(default_factory=dict)
    _looked_s: dict[_Name, float] = field(default_factory=dict)

    def of(self, table: Table) -> OpenCopy | None:
        """Return the copy of a table; None until there is one that has been complete."""
        name = _name(table)
        known, now_s = self._open.get(name), time.monotonic()
        if now_s - self._looked_s.get(name, float("-inf")) < _LOOK_S:
            return known
        self._looked_s[name] = now_s
        self._forget_former(name)
        folder = copy_folder(self.folder, table)
        number = _number_of(folder)
        # The writer may know before us that another generation replaces this one. Until we know
        # it, too, we answer from the open copy, whose freshness is known.
        if known is not None and number is not None and known.number != number:
            self._forget(name)
            known = None
        if known is None and number is not None:
            known = self._opened(table, folder, number)
            if known is not None:
                self._open[name] = known
        return known

    def is_full(self, table: Table) -> bool:
        """Return whether the copy has stopped because it has no room for the next records."""
        return (copy_folder(self.folder, table) / FULL).exists()

    def damaged(self, table: Table) -> None:
        """Report an unreadable copy, so that its writer rebuilds it."""
        self._forget(_name(table))
        report_damage(copy_folder(self.folder, table))

    def close(self) -> None:
        for name in list(self._open):
            self._forget(name)

    def _forget_former(self, name: _Name) -> None:
        """Close copies of earlier generations: while they are open, their disk space is in use."""
        former = [each for each in self._open if each[0] == name[0] and each[1] < name[1]]
        for each in former:
            if _number_of(_folder_of(self.folder, each)) is None:
                self._forget(each)

    def _forget(self, name: _Name) -> None:
        known = self._open.pop(name, None)
        if known is not None:
            known.close()

    def _opened(self, table: Table, folder: Path, number: int) -> OpenCopy | None:
        try:
            copy = TableCopy(folder, bytes_max=table.bytes_max)
        except DamagedError:
            # The copy is just being made, or the file is not a copy.
            return None
        try:
            if copy.extent().is_whole:
                return OpenCopy(copy, HeardFile(folder), number)
        except (DamagedError, OSError, ValueError):
            report_damage(folder)
        copy.close()
        return None


def _name(table: Table) -> _Name:
    return table.name, table.generation


def _folder_of(folder: Path, name: _Name) -> Path:
    return folder / f"{name[0]}.{name[1]}"


def report_damage(folder: Path) -> None:
    if folder.is_dir():
        (folder / DAMAGED).touch()


def _number_of(folder: Path) -> int | None:
    """Return the inode number of a copy's file; None if there is no file."""
    try:
        return (folder / "data.mdb").stat().st_ino
    except OSError:
        return None
