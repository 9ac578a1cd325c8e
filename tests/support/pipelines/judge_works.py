"""Functions that tests give to the judging process, which takes them by their names."""

import os
import sys
from pathlib import Path
from typing import Any


def pid(_: Any) -> int:
    return os.getpid()


def folds_a_gigabyte(session: Any) -> None:
    """Make a text of 1 GB, as no document may: Spark makes it while it plans, without any event."""
    session.sql("SELECT length(repeat('x', 1000000000))").collect()


def never_ends(session: Any) -> None:
    """Cast a number that no document may use: Java writes out its digits."""
    session.sql("SELECT CAST('1e-400000000' AS DECIMAL(10,2))").collect()


def fails(_: Any) -> None:
    raise OSError("the disk is full")


def main() -> None:
    """Ask, and die silently before the answer arrives."""
    import asyncio  # noqa: PLC0415 - the judging process needs none of it

    from pipelines.judging.apart.judge_client import JudgeClient  # noqa: PLC0415
    from pipelines.judging.apart.judge_process import JudgeQuestion  # noqa: PLC0415
    from tests.support.pipelines import judge_works  # noqa: PLC0415 - they are known by this name there

    async def ask() -> None:
        client = JudgeClient(Path(sys.argv[1]), None)
        asked = await client.ask("acme", JudgeQuestion(judge_works.pid), within_s=60)
        print(asked, flush=True)  # noqa: T201 - to the test
        await client.ask("acme", JudgeQuestion(judge_works.never_ends), within_s=600, cpu_s=600)

    asyncio.run(ask())


if __name__ == "__main__":
    main()
