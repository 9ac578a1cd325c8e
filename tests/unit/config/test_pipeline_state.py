"""States that pipelines report about their documents, and how they are parsed."""

import pytest

from shared.config.pipeline_state import PipelineState, with_state


def test_the_newest_state_of_each_pipeline_counts_and_an_empty_one_removes_it() -> None:
    first = PipelineState("f1", "refused", "no such column", "/steps/0/where", 5)
    known = with_state({}, b"p", first.to_json())
    known = with_state(known, b"q", PipelineState("f2", "checking").to_json())
    assert known == {"p": first, "q": PipelineState("f2", "checking")}
    newer = PipelineState("f3", "running")
    assert with_state(known, b"p", newer.to_json())["p"] == newer
    assert with_state(known, b"p", None).keys() == {"q"}


@pytest.mark.parametrize("value", [b"{", b"[]", b'{"fingerprint":"f","standing":"odd"}'])
def test_what_is_no_state_is_told_and_changes_nothing(value: bytes) -> None:
    with pytest.raises(ValueError, match="not a pipeline's state"):
        with_state({}, b"p", value)


def test_members_of_a_newer_hifi_are_passed_over() -> None:
    value = b'{"fingerprint":"f","standing":"running","more":[1]}'
    assert with_state({}, b"p", value)["p"] == PipelineState("f", "running")
