"""A token for Amazon MSK is a signed address, and is made from credentials where AWS has them."""

import asyncio
import base64
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

import pytest

from shared.runtime.kafka.logins.msk import MskTokens, region_in, tokens_for
from shared.runtime.kafka.logins.tokens import LoginTokens, NoTokenError
from tests.support.kafka.msk_signature import SIGNATURE, signature_of

KEY, SECRET, SESSION = "AKIAIOSFODNN7EXAMPLE", "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY", "a+b/c="
IDENTITY = {"AWS_ACCESS_KEY_ID": KEY, "AWS_SECRET_ACCESS_KEY": SECRET}


@pytest.fixture(autouse=True)
def _no_identity(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """Hide the credentials that this machine may have."""
    for name in (*IDENTITY, "AWS_SESSION_TOKEN", "AWS_PROFILE", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    tokens_for.cache_clear()
    yield
    tokens_for.cache_clear()


def read(token: str) -> tuple[str, dict[str, str]]:
    """Return the address in a token without its query, and the query."""
    assert "=" not in token
    parts = urlsplit(base64.urlsafe_b64decode(token + "==").decode())
    return f"{parts.scheme}://{parts.netloc}{parts.path}", dict(parse_qsl(parts.query))


def test_our_check_of_signatures_agrees_with_the_example_in_aws_documentation() -> None:
    query = {
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/20130524/us-east-1/s3/aws4_request",
        "X-Amz-Date": "20130524T000000Z",
        "X-Amz-Expires": "86400",
        "X-Amz-SignedHeaders": "host",
    }
    host = "examplebucket.s3.amazonaws.com"
    signed = signature_of(
        query, host=host, secret=SECRET, path="/test.txt", payload="UNSIGNED-PAYLOAD"
    )
    assert signed == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.parametrize("session", ["", SESSION])
def test_a_token_is_an_address_that_aws_documents_with_its_signature(
    session: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = IDENTITY | ({"AWS_SESSION_TOKEN": session} if session else {})
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    address, query = read(asyncio.run(MskTokens("eu-west-1").token()))
    assert address == "https://kafka.eu-west-1.amazonaws.com/"
    # It names our program, and is not signed.
    assert query.pop("User-Agent") == "hifi"
    signed = signature_of(query, host="kafka.eu-west-1.amazonaws.com", secret=SECRET)
    assert query.pop(SIGNATURE) == signed
    moment = query.pop("X-Amz-Date")
    assert query == {
        "Action": "kafka-cluster:Connect",
        "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
        "X-Amz-Credential": f"{KEY}/{moment[:8]}/eu-west-1/kafka-cluster/aws4_request",
        "X-Amz-Expires": "900",
        "X-Amz-SignedHeaders": "host",
        **({"X-Amz-Security-Token": session} if session else {}),
    }


def test_a_profile_is_an_identity_too(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    profile = f"[hifi]\naws_access_key_id = {KEY}\naws_secret_access_key = {SECRET}\n"
    (tmp_path / "credentials").write_text(profile)
    monkeypatch.setenv("AWS_PROFILE", "hifi")
    _, query = read(asyncio.run(MskTokens("eu-west-1").token()))
    assert query["X-Amz-Credential"].startswith(f"{KEY}/")


def test_without_a_region_or_credentials_a_sentence_says_what_to_set(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(NoTokenError, match=r"names no AWS region.*: set AWS_REGION\.$"):
        asyncio.run(MskTokens("").token())
    with pytest.raises(NoTokenError, match="has no AWS credentials: give it a role"):
        asyncio.run(MskTokens("eu-west-1").token())
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(NoTokenError, match=r"no credentials \(.*nobody.*\): check its role"):
        asyncio.run(MskTokens("eu-west-1").token())


@pytest.mark.parametrize(
    ("servers", "region"),
    [
        ("b-1.demo.abc123.c2.kafka.eu-west-1.amazonaws.com:9098", "eu-west-1"),
        ("boot-abc.c1.kafka-serverless.us-east-1.amazonaws.com:9098", "us-east-1"),
        ("b-2.demo.abc.c4.kafka.us-gov-west-1.amazonaws.com:9098,other:9098", "us-gov-west-1"),
        ("b-1.demo.abc.c2.kafka.cn-north-1.amazonaws.com.cn:9098", "cn-north-1"),
        ("kafka.internal.example:9098", ""),
        ("127.0.0.1:9092", ""),
    ],
)
def test_the_region_is_in_the_names_of_brokers(servers: str, region: str) -> None:
    assert region_in(servers) == region


def test_all_connections_to_a_region_share_their_tokens() -> None:
    assert tokens_for("eu-west-1") is tokens_for("eu-west-1")
    assert tokens_for("eu-west-1") is not tokens_for("eu-west-2")


class CountedTokens(LoginTokens):
    """Tokens with a number, each for 100 s, unless there is none."""

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0
        self.has_none = False

    def _fetched(self) -> tuple[str, float]:
        self.asked += 1
        if self.has_none:
            raise NoTokenError("nobody is there")
        return f"token {self.asked}", 100.0


def test_a_token_is_kept_until_shortly_before_its_end(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, source = [1_000.0], CountedTokens()
    monkeypatch.setattr("shared.runtime.kafka.logins.tokens.time.monotonic", lambda: now_s[0])

    async def three() -> list[str]:
        return list(await asyncio.gather(*(source.token() for _ in range(3))))

    assert asyncio.run(three()) == ["token 1"] * 3
    now_s[0] += 79
    assert asyncio.run(three()) == ["token 1"] * 3
    now_s[0] += 2
    assert asyncio.run(three()) == ["token 2"] * 3
    assert source.asked == 2


def test_after_a_failure_nobody_is_asked_for_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, source = [1_000.0], CountedTokens()
    monkeypatch.setattr("shared.runtime.kafka.logins.tokens.time.monotonic", lambda: now_s[0])
    source.has_none = True
    for _ in range(3):
        with pytest.raises(NoTokenError, match="nobody is there"):
            source._current()
    assert source.asked == 1
    source.has_none = False
    now_s[0] += 6
    assert source._current() == "token 2"
