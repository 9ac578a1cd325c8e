"""A link is accepted if an existing key has signed it, for no longer than a day."""

from dataclasses import replace
from typing import Any

import pytest

from shared.config.access import ENTROPY_BYTES, ApiKey, ViewLink, new_text, secret_from
from shared.event.times import DAY_MS, HOUR_MS
from shared.runtime.tokens.links import (
    LINK_CHARS_MAX,
    LinkError,
    link_key_of,
    read_link,
    write_link,
)

NOW_MS = 1_790_000_000_000
ORIGINS = frozenset({"https://portal.example"})
LINK = ViewLink("portal", "acme", NOW_MS + HOUR_MS, frozenset({"orders"}), ORIGINS)


def text_of(seed: bytes) -> str:
    return new_text(kind="secret", key_id="portal", entropy=seed.ljust(ENTROPY_BYTES))


TEXT, NEXT = text_of(b"one"), text_of(b"two")


def key(text: str = TEXT, **fields: Any) -> ApiKey:
    secret = replace(secret_from(text, signs=False), link_key=link_key_of(text))
    named = {"tenant": "acme", "scopes": frozenset({"admin"}), **fields}
    return ApiKey("portal", (secret,), **named)


def read(text: str, *keys: ApiKey, now_ms: int = NOW_MS) -> ViewLink:
    return read_link(text, {each.id: each for each in keys}, now_ms=now_ms)


def test_what_was_written_is_read() -> None:
    text = write_link(LINK, TEXT)
    assert text.startswith("hifilk_")
    assert read(text, key()) == LINK


def test_a_link_lives_as_long_as_its_key() -> None:
    text, rotated = write_link(LINK, TEXT), key().with_new(key(NEXT).secrets[0])
    assert read(text, rotated) == LINK
    for keys in ([], [rotated.with_newest_only()], [key(NEXT)]):
        with pytest.raises(LinkError, match="is gone, or has another secret") as refused:
            read(text, *keys)
        assert not refused.value.origins
    with pytest.raises(LinkError, match="has expired"):
        read(text, key(expires_at_ms=NOW_MS))


def test_a_link_that_has_ended_says_so_in_the_frame_that_it_was_for() -> None:
    text = write_link(LINK, TEXT)
    assert read(text, key(), now_ms=NOW_MS + HOUR_MS - 1) == LINK
    with pytest.raises(LinkError, match="has expired") as refused:
        read(text, key(), now_ms=NOW_MS + HOUR_MS)
    assert refused.value.origins == ORIGINS


def test_a_key_that_checks_no_links_makes_none() -> None:
    plain = replace(key(), secrets=(secret_from(TEXT, signs=False),))
    with pytest.raises(LinkError):
        read(write_link(LINK, TEXT), plain)


@pytest.mark.parametrize(
    "link",
    [
        replace(LINK, expires_at_ms=NOW_MS + DAY_MS + 1),
        replace(LINK, tenant="studio"),
    ],
)
def test_what_the_gateway_makes_for_nobody_is_not_believed(link: ViewLink) -> None:
    """Anybody who has a key's text can sign anything with it."""
    with pytest.raises(LinkError, match="not a link of Hifi"):
        read(write_link(link, TEXT), key())


def test_what_is_changed_or_cut_is_not_believed() -> None:
    text = write_link(LINK, TEXT)
    said, _, signature = text.partition(".")
    wider = write_link(replace(LINK, streams=frozenset()), NEXT).partition(".")[0]
    forged = [
        *("", ".", "hifilk_.", said, f"{said}.", f"{wider}.{signature}", f"{said}.{said}"),
        *(text[:-3], text[1:], f"{text}.x", f'{text}">', f"{said}.{signature[:-1]}%", f"x{text}"),
        *("hifilk_e30.e30", "hifilk_////.e30", f"{text}{'A' * LINK_CHARS_MAX}"),
        write_link(replace(LINK, key="other"), TEXT),
    ]
    for each in forged:
        with pytest.raises(LinkError):
            read(each, key())
