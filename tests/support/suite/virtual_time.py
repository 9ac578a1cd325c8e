"""Time that passes only while all wait: for code that asks a clock and sleeps in one event loop."""

import asyncio
import selectors
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import ModuleType, SimpleNamespace
from typing import Any, TypeVar

import pytest

from tests.support.suite.samples import NOW_MS

_Result = TypeVar("_Result")


@dataclass
class VirtualTime:
    now_s: float = 0.0

    def monotonic(self) -> float:
        return self.now_s

    def now_ms(self) -> int:
        return NOW_MS + int(self.now_s * 1_000)

    def run(self, main: Coroutine[Any, Any, _Result]) -> _Result:
        """Run like asyncio.run; instead of waiting, the time jumps to the end of the wait."""
        with asyncio.Runner(loop_factory=lambda: _Loop(self)) as runner:
            return runner.run(main)

    @contextmanager
    def seen_by(self, *modules: ModuleType) -> Iterator[None]:
        """Give these modules this time in place of the machine's clocks."""
        with pytest.MonkeyPatch.context() as patch:
            for module in modules:
                patch.setattr(module, "time", SimpleNamespace(monotonic=self.monotonic))
                if hasattr(module, "now_ms"):
                    patch.setattr(module, "now_ms", self.now_ms)
            yield


class _Selector(selectors.DefaultSelector):
    def __init__(self, clock: VirtualTime) -> None:
        super().__init__()
        self._time = clock

    def select(self, timeout: float | None = None) -> Any:
        if timeout is None:
            return super().select()
        self._time.now_s += max(0.0, timeout)
        return super().select(0)


class _Loop(asyncio.SelectorEventLoop):
    def __init__(self, clock: VirtualTime) -> None:
        super().__init__(_Selector(clock))
        self._time = clock

    def time(self) -> float:
        return self._time.now_s
