"""A provider that is down or lies signs nobody in, and the page says what is wrong."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest

import console.oidc.provider as asking
import console.oidc.sign_in as signing_in
from gateway.settings import Settings
from tests.support.console.console_fixtures import (
    RunningConsole,
    configure,
    overview,
    served_console,
)
from tests.support.console.providers import (
    CLIENT,
    SECRET,
    LyingProvider,
    console_settings,
    free_port,
    lying_provider,
)


@pytest.fixture(scope="module")
def provider() -> Iterator[LyingProvider]:
    with lying_provider() as provider:
        yield provider


@pytest.fixture
def console(
    provider: LyingProvider, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[RunningConsole]:
    provider.be_honest()
    settings = console_settings(provider.issuer, free_port(), tmp_path_factory.mktemp("oidc"))
    with served_console(settings, Settings(auth="keys")) as running:
        configure(running)
        running.show(overview())
        yield running


@pytest.fixture
def visitor(console: RunningConsole) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=console.url) as client:
        yield client


def begin(visitor: httpx.Client, next_path: str = "/") -> dict[str, str]:
    """Start a sign-in, and return the parameters for the provider."""
    answer = visitor.get("/sign-in/with", params={"next": next_path})
    assert answer.status_code == 303, answer.text
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    return {name: values[0] for name, values in query.items()}


def come_back(visitor: httpx.Client, provider: LyingProvider, **claims: Any) -> httpx.Response:
    """Return from the provider with a code for a token of this sign-in, and the given claims."""
    asked = begin(visitor)
    provider.claims = {**provider.claims, "nonce": asked["nonce"], **claims}
    return visitor.get("/sign-in/back", params={"state": asked["state"], "code": "c"})


def assert_refused(visitor: httpx.Client, answer: httpx.Response, says: str) -> None:
    assert answer.status_code in {400, 502}
    assert says in answer.text, answer.text
    assert "Sign in with Example" in answer.text
    assert visitor.get("/").status_code == 303, "somebody is signed in"


def test_a_provider_is_asked_as_openid_has_it(
    console: RunningConsole, visitor: httpx.Client, provider: LyingProvider
) -> None:
    asked = begin(visitor)
    assert asked["by"] == "us"
    assert asked["redirect_uri"] == f"{console.url}/sign-in/back"
    assert (asked["response_type"], asked["scope"]) == ("code", "openid hifi")
    assert asked["code_challenge_method"] == "S256"
    provider.claims["nonce"] = asked["nonce"]
    answer = visitor.get("/sign-in/back", params={"state": asked["state"], "code": "the code"})
    assert answer.status_code == 200, answer.text
    (form,) = provider.forms
    assert form["code"] == ["the code"]
    assert SECRET not in str(form), "the secret goes by Basic unless the provider wants another way"
    assert len(form["code_verifier"][0]) >= 43
    assert visitor.get("/streams/orders").status_code == 200
    # The code's cookie is gone, so a second use of the code fails.
    again = visitor.get("/sign-in/back", params={"state": asked["state"], "code": "the code"})
    assert again.status_code == 400


def test_a_session_ends_with_its_token(
    visitor: httpx.Client, provider: LyingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert come_back(visitor, provider).status_code == 200
    assert visitor.get("/").status_code == 200
    at_ms = provider.claims["exp"] * 1000
    monkeypatch.setattr("console.authentication.now_ms", lambda: at_ms - 1)
    assert visitor.get("/").status_code == 200
    monkeypatch.setattr("console.authentication.now_ms", lambda: at_ms)
    assert visitor.get("/").status_code == 303


@pytest.mark.parametrize(
    "next_path", ["//evil.example", "https://evil.example", "/\\evil.example", "/sign-out"]
)
def test_it_leads_nowhere_else(
    visitor: httpx.Client, provider: LyingProvider, next_path: str
) -> None:
    asked = begin(visitor, next_path)
    provider.claims["nonce"] = asked["nonce"]
    answer = visitor.get("/sign-in/back", params={"state": asked["state"], "code": "c"})
    assert answer.headers["refresh"] == "0; url=/"


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        ({"iss": "https://evil.example"}, "issuer"),
        ({"aud": "another"}, "udience"),
        ({"aud": [CLIENT, "another"]}, "azp"),
        ({"azp": "another"}, "azp"),
        ({"exp": 1_000_000_000}, "expired"),
        ({"exp": None}, "exp"),
        ({"iat": 32_000_000_000}, "iat"),
        ({"nonce": "another"}, "nonce"),
        ({"nonce": None}, "nonce"),
        ({"sub": 7}, "ubject"),
        ({"company": None}, "claim company"),
        ({"company": "../orders"}, "claim company"),
        ({"groups": []}, "neither"),
        ({"groups": "admin"}, "neither"),
        ({"groups": {"hifi-admin": 1}}, "neither"),
        ({"groups": ["hifi-read"], "filler": "x" * 4_000}, "too long"),
    ],
)
def test_a_token_of_other_claims_is_refused(
    visitor: httpx.Client, provider: LyingProvider, claims: dict[str, Any], says: str
) -> None:
    answer = come_back(visitor, provider, **claims)
    assert_refused(visitor, answer, says)


def _unsigned(provider: LyingProvider) -> str:
    return jwt.encode(provider.claims, "", algorithm="none", headers={"kid": "k1"})


def _by_public_key(provider: LyingProvider) -> str:
    secret = base64.urlsafe_b64decode(provider.public()["x"] + "=")
    return jwt.encode(provider.claims, secret, algorithm="HS256", headers={"kid": "k1"})


def _tampered(provider: LyingProvider) -> str:
    head, _, sign = provider.signed().split(".")
    claims = json.dumps(provider.claims | {"groups": ["hifi-admin"]}).encode()
    return f"{head}.{base64.urlsafe_b64encode(claims).rstrip(b'=').decode()}.{sign}"


def _list_as_kid(provider: LyingProvider) -> str:
    _, claims, sign = provider.signed().split(".")
    head = json.dumps({"alg": "EdDSA", "kid": ["k1"]}).encode()
    return f"{base64.urlsafe_b64encode(head).rstrip(b'=').decode()}.{claims}.{sign}"


@pytest.mark.filterwarnings("ignore::jwt.warnings.InsecureKeyLengthWarning")
@pytest.mark.parametrize(
    "make", [_unsigned, _by_public_key, _tampered, _list_as_kid, lambda _: "no token"]
)
def test_a_token_that_nobody_has_signed_is_refused(
    visitor: httpx.Client, provider: LyingProvider, make: Callable[[LyingProvider], str]
) -> None:
    asked = begin(visitor)
    provider.claims["nonce"] = asked["nonce"]
    provider.token = make(provider)
    answer = visitor.get("/sign-in/back", params={"state": asked["state"], "code": "c"})
    assert_refused(visitor, answer, "The token is not valid")


def test_a_new_key_is_asked_for_once(
    visitor: httpx.Client, provider: LyingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin(visitor)
    provider.kid = "k2"
    assert_refused(visitor, come_back(visitor, provider), "not in the key set")
    assert provider.asked.count("/keys") == 1, "the keys were fetched just now"
    monkeypatch.setattr(asking, "_AGAIN_S", 0.0)
    assert_refused(visitor, come_back(visitor, provider), "not in the key set")
    assert provider.asked.count("/keys") == 2
    provider.keys = [provider.public()]
    assert come_back(visitor, provider).status_code == 200
    assert provider.asked.count("/keys") == 3
    assert come_back(visitor, provider).status_code == 200
    assert provider.asked.count("/keys") == 3


@pytest.mark.parametrize(
    "query", [{}, {"code": "c"}, {"code": "c", "state": "another"}, {"state": "é", "code": "c"}]
)
def test_who_has_begun_nothing_comes_back_to_nothing(
    visitor: httpx.Client, provider: LyingProvider, query: dict[str, str]
) -> None:
    assert_refused(visitor, visitor.get("/sign-in/back", params=query), "began in another")
    begin(visitor)
    assert_refused(visitor, visitor.get("/sign-in/back", params=query), "began in another")
    assert provider.forms == [], "no code may be redeemed"


def test_what_was_begun_long_ago_is_begun_again(
    visitor: httpx.Client, provider: LyingProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signing_in, "_BEGUN_MS", 0)
    answer = visitor.get("/sign-in/with")
    cookie = answer.headers["set-cookie"].partition(";")[0]
    state = parse_qs(urlsplit(answer.headers["location"]).query)["state"][0]
    back = visitor.get(
        "/sign-in/back", params={"state": state, "code": "c"}, headers={"cookie": cookie}
    )
    assert_refused(visitor, back, "10 minutes ago")
    assert provider.forms == []


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ({"error": "access_denied<script>"}, "access_denied&lt;script&gt;"),
        ({"iss": "https://evil.example", "code": "c"}, "Another provider"),
    ],
)
def test_what_comes_instead_of_a_code_is_said(
    visitor: httpx.Client, provider: LyingProvider, query: dict[str, str], says: str
) -> None:
    asked = begin(visitor)
    answer = visitor.get("/sign-in/back", params={"state": asked["state"], **query})
    assert_refused(visitor, answer, says)
    assert provider.forms == []


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        ((400, b'{"error": "invalid_grant"}'), "/token answered 400, invalid_grant"),
        ((200, b"<html>"), "without JSON"),
        ((200, b"[]"), "answered 200"),
        ((200, b"{}"), "no ID token"),
        ((200, b'{"id_token": 7}'), "no ID token"),
        ((302, b""), "answered 302"),
        ((200, b'{"filler": "' + b"x" * 1_100_000 + b'"}'), "without JSON"),
    ],
)
def test_a_code_that_is_not_taken_is_said(
    visitor: httpx.Client, provider: LyingProvider, answer: tuple[int, bytes], says: str
) -> None:
    provider.answer = answer
    assert_refused(visitor, come_back(visitor, provider), says)


@pytest.mark.parametrize(
    ("about", "says"),
    [
        ({"issuer": "https://evil.example"}, "calls itself"),
        ({"token_endpoint": None}, "token_endpoint"),
        ({"authorization_endpoint": "javascript:alert(1)"}, "authorization_endpoint"),
        ({"jwks_uri": "file:///etc/passwd"}, "jwks_uri"),
        ({"jwks_uri": "http://127.0.0.1:1/keys"}, "does not work as it should"),
    ],
)
def test_a_provider_that_is_none_is_said_and_asked_again_later(
    visitor: httpx.Client, provider: LyingProvider, about: dict[str, Any], says: str
) -> None:
    provider.about |= about
    assert_refused(visitor, visitor.get("/sign-in/with"), says)
    asked = len(provider.asked)
    provider.be_honest()
    assert_refused(visitor, visitor.get("/sign-in/with"), says)
    assert len(provider.asked) == 0 < asked, "an absent provider must not be asked each time"


def test_a_secret_is_posted_where_the_provider_wants_it_so(
    visitor: httpx.Client, provider: LyingProvider
) -> None:
    provider.about["token_endpoint_auth_methods_supported"] = ["client_secret_post"]
    assert come_back(visitor, provider).status_code == 200
    assert provider.forms[0]["client_secret"] == [SECRET]


def test_a_crowd_is_asked_to_wait(visitor: httpx.Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "_ASKED_AT_ONCE_MAX", 0)
    assert_refused(visitor, visitor.get("/sign-in/with"), "Many people")


def test_a_console_without_a_provider_has_no_such_door(locked_console: RunningConsole) -> None:
    assert httpx.get(f"{locked_console.url}/sign-in/with").status_code == 404
    assert "Sign in with" not in httpx.get(f"{locked_console.url}/sign-in").text
