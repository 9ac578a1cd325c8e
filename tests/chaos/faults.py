"""Breaks things in a chaos run, and proves of each that it really happened.

A fault is begun and, so long after it, ended; what either did is told in a few words.
"""

import errno
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import httpx

from deploy.local.process_faults import NotHereError, ProcessFaults
from tests.chaos.actions import Action
from tests.chaos.world import World

_DISKS = {"spool": "spool", "scratch": "retrier"}
_BLOCK = bytes(1 << 20)


@dataclass
class Faults:
    """All faults of a run; `end_all` heals what is left."""

    _world: World
    _ends: dict[Action, Callable[[], None]] = field(default_factory=dict)

    def begin(self, action: Action) -> str:
        """Do it; gives the proof."""
        what, _, target = action.kind.partition(" ")
        match what:
            case "kill" | "freeze":
                return self._hurt(action, what, target)
            case "fill":
                return self._fill(action, target)
            case _:
                return self._step_clock(action, float(dict(action.settings)["seconds"]))

    def end(self, action: Action) -> None:
        undo = self._ends.pop(action, None)
        if undo is not None:
            undo()

    def end_all(self) -> None:
        for action in list(self._ends):
            self.end(action)

    def _hurt(self, action: Action, what: str, target: str) -> str:
        if target == "broker":
            # As long as it is away and until others have found it again.
            self._world.excuse(for_s=action.for_s)
        processes = ProcessFaults(self._world)
        proof, undo = (processes.kill if what == "kill" else processes.freeze)(target)
        self._ends[action] = undo
        return proof

    def _fill(self, action: Action, target: str) -> str:
        if not self._world.has_disks:
            raise NotHereError("this user may not mount a file system to fill")
        folder = self._world.folder / _DISKS[target]
        self._world.excuse(for_s=action.for_s)
        filler = folder / "filler"
        self._ends[action] = lambda: filler.unlink(missing_ok=True)
        size = _fill_up(filler)
        refused = _write_error(folder / "one-more")
        assert refused == errno.ENOSPC, f"{folder} still takes something"
        return f"{size >> 20} MB written, and not a byte more is taken"

    def _step_clock(self, action: Action, seconds: float) -> str:
        self._world.step_clock(seconds)
        self._ends[action] = lambda: self._world.step_clock(0)
        # Request ids begin with the time at which they were made, in ms.
        try:
            answer = httpx.get(f"{self._world.stack.gateway}/v1/streams", timeout=5)
            made_ms = int(answer.json()["request_id"].replace("-", "")[:12], 16)
        except (httpx.HTTPError, ValueError, KeyError) as error:
            raise NotHereError(f"the gateway does not tell its time ({error!r})") from error
        off_s = made_ms / 1_000 - time.time()
        assert abs(off_s - seconds) < 10, f"the gateway's clock is off by {off_s:.0f} s"
        return f"the gateway's clock is off by {off_s:.0f} s"


def _fill_up(filler: Path) -> int:
    size = 0
    # Smaller and smaller, so that nothing is left for the last line of a log.
    with filler.open("wb", buffering=0) as file:
        for block in (_BLOCK, _BLOCK[:4096]):
            try:
                while True:
                    size += file.write(block)
            except OSError as error:
                if error.errno != errno.ENOSPC:
                    raise
    return size


def _write_error(path: Path) -> int:
    try:
        path.write_bytes(b"x" * 8192)
    except OSError as error:
        return error.errno or 0
    finally:
        path.unlink(missing_ok=True)
    return 0
