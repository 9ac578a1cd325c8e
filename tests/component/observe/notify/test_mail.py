"""Mail through a real mail server: its form, TLS, and limits on time and number."""

import asyncio
import os
from collections.abc import Callable, Coroutine
from functools import wraps
from pathlib import Path
from typing import Any

import pytest

from shared.runtime.channels import mail as mailing
from shared.runtime.channels.mail import MailAllowance, Mailer, MailError
from shared.runtime.channels.message import Message
from shared.runtime.channels.settings import ChannelSettings
from shared.runtime.clock import now_ms
from shared.runtime.setup_error import SetupError
from tests.support.servers.authority import Authority
from tests.support.servers.mail_server import SENDER, MailBox, mail_server

OPS = ("ops@shop.example", "boss@shop.example")
MESSAGE = Message("ntf_1", "Hifi: 1 thing needs a look", "• orders/crm: 503 · naïve\n".encode())


def in_a_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*given: Any, **named: Any) -> None:
        asyncio.run(test(*given, **named))

    return run


def mailer(box: MailBox, day_max: int = 100, **settings: Any) -> Mailer:
    return Mailer(box.server(**settings), MailAllowance(day_max))


async def send(by: Mailer, *to: str, tenant: str = "shop") -> str:
    try:
        return await by.send(MESSAGE, to or OPS, tenant=tenant, now_ms=now_ms())
    except MailError as error:
        return f"not: {error}"


@in_a_loop
async def test_a_mail_names_its_notices_and_goes_to_all() -> None:
    with mail_server() as box:
        assert await send(mailer(box)) == "the mail server accepted it"
        (taken,) = box.taken
        assert taken.to == [*OPS]
        shown = {name: taken.mail[name] for name in ("from", "to", "subject", "message-id")}
        assert shown == {
            "from": SENDER,
            "to": ", ".join(OPS),
            "subject": MESSAGE.title,
            "message-id": "<ntf_1@hifi.example>",
        }
        assert taken.mail["auto-submitted"] == "auto-generated"
        assert taken.mail["content-transfer-encoding"] in {"base64", "quoted-printable"}
        assert taken.mail.get_content().strip() == MESSAGE.body.decode().strip()


@in_a_loop
async def test_what_the_server_refuses_is_told_without_its_words() -> None:
    with mail_server() as box:
        box.refused = {OPS[1]}
        said = "the mail server accepted it for 1 of 2 recipients"
        assert await send(mailer(box)) == said
        box.refused = {*OPS}
        assert await send(mailer(box)) == "not: the mail server refused all recipients (550)"
    said = await send(mailer(box))
    assert said == "not: the mail server cannot be used (ConnectionRefusedError)"
    off = Mailer(None, MailAllowance(1))
    assert "sets HIFI_MAIL_HOST" in await send(off)


@in_a_loop
async def test_nobody_can_put_a_header_or_a_recipient_into_a_mail() -> None:
    with mail_server() as box:
        broken = Message("ntf_1", "Hifi:\r\nBcc: all@bank.example", b"")
        with pytest.raises(MailError):
            await mailer(box).send(broken, OPS, tenant="shop", now_ms=now_ms())
        assert not box.taken


@in_a_loop
async def test_it_goes_over_tls_as_who_we_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority(tmp_path)
    with mail_server(authority.sign("mail")) as box:
        as_us: dict[str, Any] = {"tls": "starttls", "user": "hifi", "password": "hunter2"}
        # This machine does not trust the server's certificate authority.
        assert "cannot be used (SSLCertVerificationError)" in await send(mailer(box, **as_us))
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert await send(mailer(box, **as_us)) == "the mail server accepted it"
        assert box.logins == [(b"hifi", b"hunter2")]
        wrong = mailer(box, **(as_us | {"password": "wrong"}))
        assert await send(wrong) == "not: the mail server answered 535"
        # Without TLS the server takes no mail, and gets no password.
        assert (await send(mailer(box))).startswith("not: the mail server answered 530")
        assert len(box.taken) == 1


@in_a_loop
async def test_a_tenant_has_so_many_a_day_and_pays_for_none_that_did_not_go() -> None:
    with mail_server() as box:
        by = mailer(box, day_max=4)
        box.refused = {*OPS}
        for _ in range(3):
            assert "refused" in await send(by)
        box.refused = set()
        assert [await send(by) for _ in range(3)] == [
            *["the mail server accepted it"] * 2,
            "not: the tenant has reached its limit of mails for today",
        ]
        assert await send(by, tenant="bank") == "the mail server accepted it"
    allowance = MailAllowance(2)
    assert allowance.use("shop", 2, now_ms=now_ms())
    assert not allowance.use("shop", 1, now_ms=now_ms())
    assert allowance.use("shop", 2, now_ms=now_ms() + 86_400_000)


@in_a_loop
async def test_a_server_that_says_nothing_is_left_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mailing, "WITHIN_S", 0.5)
    with mail_server() as box:
        by, box.delay_s = mailer(box), 30.0
        # More mails than are sent at once.
        said = await asyncio.gather(*(send(by) for _ in range(8)))
        assert set(said) == {"not: the mail server did not answer in 0.5 s"}
        box.delay_s = 0.0
        assert await send(by) == "the mail server accepted it"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"HIFI_MAIL_FROM": "hifi"}, "HIFI_MAIL_FROM"),
        ({"HIFI_MAIL_HOST": "m"}, "HIFI_MAIL_FROM is not"),
        ({"HIFI_MAIL_HOST": "m", "HIFI_MAIL_FROM": SENDER, "HIFI_MAIL_USER": "a"}, "Set both"),
        (
            {
                "HIFI_MAIL_HOST": "m",
                "HIFI_MAIL_FROM": SENDER,
                "HIFI_MAIL_USER": "a",
                "HIFI_MAIL_PASSWORD_FILE": "/no/such/file",
                "HIFI_MAIL_TLS": "off",
            },
            "only over TLS",
        ),
        (
            {
                "HIFI_MAIL_HOST": "m",
                "HIFI_MAIL_FROM": SENDER,
                "HIFI_MAIL_USER": "a",
                "HIFI_MAIL_PASSWORD_FILE": "/no/such/file",
            },
            "cannot be read",
        ),
    ],
)
def test_a_wrong_setting_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, given: dict[str, str], says: str
) -> None:
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(SetupError, match=says):
        _ = ChannelSettings().mail_server


def test_the_password_comes_out_of_its_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "password").write_text("hunter2\n")
    given = {"HOST": "m", "FROM": SENDER, "USER": "a", "PASSWORD_FILE": str(tmp_path / "password")}
    for name, value in given.items():
        monkeypatch.setenv(f"HIFI_MAIL_{name}", value)
    server = ChannelSettings().mail_server
    assert server is not None
    assert (server.password, server.port, server.tls) == ("hunter2", 587, "starttls")
    assert "hunter2" not in repr(server)
    assert not [name for name in os.environ if "hunter2" in os.environ[name]]
