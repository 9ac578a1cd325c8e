"""The reference library of Standard Webhooks accepts our signatures."""

import base64
import json
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook
from standardwebhooks.webhooks import WebhookVerificationError

from shared.config.signing import signatures, signing_key, signing_secret

OLD, NEW = signing_secret(b"o" * 24), signing_secret(b"n" * 64)


def headers(body: bytes, *secrets: str) -> dict[str, str]:
    timestamp_s = str(int(datetime.now(tz=UTC).timestamp()))  # noqa: TID251 - the library reads the clock
    keys = [signing_key(secret) for secret in secrets]
    signed = signatures(keys, message_id="msg_1", timestamp_s=timestamp_s, body=body)
    return {"webhook-id": "msg_1", "webhook-timestamp": timestamp_s, "webhook-signature": signed}


@given(st.lists(st.text(max_size=5)))
def test_a_receiver_can_check_a_signature(events: list[str]) -> None:
    body = json.dumps(events, ensure_ascii=False).encode()
    assert Webhook(OLD).verify(body, headers(body, OLD)) == events


def test_both_secrets_are_good_during_a_rotation() -> None:
    body = b"[1]"
    for secret in (OLD, NEW):
        assert Webhook(secret).verify(body, headers(body, NEW, OLD)) == [1]
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(body, headers(body, NEW))


def test_another_body_is_not_what_was_signed() -> None:
    with pytest.raises(WebhookVerificationError):
        Webhook(OLD).verify(b"[2]", headers(b"[1]", OLD))


def test_a_signature_looks_like_this() -> None:
    key = signing_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    body = b'{"test": 2432232314}'
    message_id = "msg_p5jXN8AQM9LWM0D4loKWxJek"
    assert signatures([key], message_id=message_id, timestamp_s="1614265330", body=body) == (
        "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="
    )


@pytest.mark.parametrize(
    "secret",
    [
        "",
        "whsec_",
        base64.b64encode(b"x" * 24).decode(),
        "whsec_" + base64.b64encode(b"x" * 23).decode(),
        "whsec_" + base64.b64encode(b"x" * 65).decode(),
        "whsec_hunter2!",
        "whsec_\u00fc",
    ],
)
def test_what_is_no_secret_is_refused_without_a_word_of_it(secret: str) -> None:
    with pytest.raises(ValueError, match="a signing secret is whsec_ and 24 to 64") as caught:
        signing_key(secret)
    assert "hunter2" not in str(caught.value)
