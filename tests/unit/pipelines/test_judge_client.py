"""A document whose judging ends badly is refused, unless somebody else may be at fault."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from pipelines.judging.apart.judge_client import JudgeClient, JudgeDiedError, JudgeTookTooLongError
from pipelines.judging.judge import Refusal
from shared.config.pipeline import Pipeline

DOCUMENT = Pipeline.of({"name": "sales", "from": {"stream": "a"}, "to": [{"stream": "b"}]})


def judged(monkeypatch: pytest.MonkeyPatch, *ends: Any) -> tuple[Refusal | None, int]:
    """Return the judgement of a document, and the number of tries, when asking ends like this."""
    client, left = JudgeClient(Path("unused"), None), [*ends]

    async def ask(*_: Any, **__: float) -> Any:
        if isinstance(end := left.pop(0), Exception):
            raise end
        return end

    monkeypatch.setattr(client, "ask", ask)
    found = asyncio.run(client.judge(DOCUMENT, ()))
    return found, len(ends) - len(left)


def test_a_document_that_ends_its_judge_twice_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    died = JudgeDiedError()
    too_large = "judging it takes more memory than there is for that: make its steps simpler"
    assert judged(monkeypatch, died, died, None) == (Refusal(too_large, "/steps"), 2)
    assert judged(monkeypatch, died, None) == (None, 2)
    assert judged(monkeypatch, None) == (None, 1)


def test_a_document_that_takes_too_long_is_refused_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    late = JudgeTookTooLongError("more than 40 s of a processor")
    found, count = judged(monkeypatch, late, None)
    assert found == Refusal(f"judging it takes {late}: make its steps simpler", "/steps")
    assert count == 1
