"""Impossible types are refused before they are parsed, however deep they are."""

from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock

import pytest

from pipelines.judging import judge as judge_module
from pipelines.judging.judge import Refusal, judge
from pipelines.members import check_type, members_of
from shared.config.model import ConfigError


@pytest.mark.parametrize(
    ("opens", "closes"), [("ARRAY<", ">"), ("STRUCT<a: ", ">"), ("MAP<STRING, ", ">")]
)
def test_types_within_hundreds_of_types_are_refused_without_being_read(
    opens: str, closes: str
) -> None:
    deep = f"{opens * 500}INT{closes * 500}"
    with pytest.raises(ConfigError, match="nested deeper than 16 levels"):
        members_of(f"a {deep}")
    with pytest.raises(ConfigError, match="nested deeper than 16 levels"):
        check_type(deep)


def test_what_python_has_no_stack_for_is_the_documents_own_fault(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Such a document was once tried again and again, in a new process each time."""

    def typed(*_: Any) -> None:
        raise RecursionError

    monkeypatch.setattr(judge_module, "typed", typed)
    pipeline: Any = SimpleNamespace(name="deep")
    assert judge(Mock(), pipeline) == Refusal("it is nested too deeply to be read", "/steps")
