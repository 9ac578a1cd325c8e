"""A trial's questions and answers pass through its topic unchanged."""

import msgspec
import pytest

from shared.event.trial import (
    ChannelAnswer,
    ChannelAsked,
    TrialAnswer,
    TrialAsked,
    TrialRow,
    read_trial,
)


def test_what_is_asked_and_what_is_answered_are_told_apart() -> None:
    asked = TrialAsked("acme", msgspec.Raw(b'{"name": "sales"}'), (msgspec.Raw(b"[1]"),), 3)
    answer = TrialAnswer(
        given=("{}",), rows=(TrialRow(1, "passed", "", "eu", None, "{}"),), left_out=2
    )
    read = read_trial(asked.to_bytes())
    assert isinstance(read, TrialAsked)
    assert (bytes(read.document), read.tenant, read.newest) == (b'{"name": "sales"}', "acme", 3)
    assert [bytes(event) for event in read.events] == [b"[1]"]
    assert read_trial(answer.to_bytes()) == answer
    channel = read_trial(ChannelAsked(msgspec.Raw(b'{"name": "ops"}')).to_bytes())
    assert isinstance(channel, ChannelAsked)
    assert bytes(channel.document) == b'{"name": "ops"}'
    said = ChannelAnswer(is_taken=False, says="it answered 404")
    assert read_trial(said.to_bytes()) == said
    for wrong in (b"", b"{}", b'{"type":"asked"}', b"nonsense"):
        with pytest.raises(ValueError, match=r"."):
            read_trial(wrong)
