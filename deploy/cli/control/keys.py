"""`hifi keys`: makes, lists, rotates and revokes the API keys of a gateway, and makes links.

Only a key's text goes to standard output, once, so that `KEY=$(hifi keys create shop)` works, and
so does a link; all other messages go to standard error.
"""

import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.printing import Form, harmless, out, print_list, print_one, talk
from shared.event.times import DAY_MS
from shared.runtime.control_client import ControlClient

app = typer.Typer(name="keys", no_args_is_help=True)

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's name; it is in its text too.")]


@options.control_command(app)
def create(
    *,
    key_id: KeyId,
    scope: Annotated[
        list[str] | None, typer.Option(help="Permission: admin, read, write; repeat for more.")
    ] = None,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help="A stream that it is for; repeat for more. Default: all streams of the tenant."
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a web page: makes a key for browsers, which can only write."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Tenant that owns the key.")] = None,
    days: Annotated[
        float | None, typer.Option(help="Days until it expires. Default: never.", min=0.001)
    ] = None,
    must_sign: Annotated[
        bool, typer.Option("--must-sign", help="Requests must also carry a signature.")
    ] = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Make a key. Its text is printed now and never again: only its hash is kept.

    A gateway that asks for keys takes no new one from somebody who has none. The first one is made
    with the operator key, which is HIFI_GATEWAY_OPERATOR_KEY of the gateway; `hifi up` keeps one in
    its data folder:

        export HIFI_API_KEY=$(cat data/operator-key)

        hifi keys create root --scope admin

    From then on:

        export HIFI_API_KEY=hifisk_root_...

        hifi keys create shop --scope write --stream orders

        hifi keys create page --origin https://shop.example --stream clicks
    """
    fields: dict[str, Any] = {
        "scopes": sorted(scope or ["write"]),
        "streams": sorted(stream or []),
        "origins": sorted(origin or []),
        "kind": "browser" if origin else "secret",
        "must_sign": must_sign,
    }
    if tenant is not None:
        fields["tenant"] = tenant
    if days is not None:
        fields["expires_at_ms"] = round(time.time() * 1000 + days * DAY_MS)
    shown = client.call("PUT", "keys", key_id, body=fields)
    _show_text(shown, form=form)


@app.command("new-operator-key")
def print_operator_key() -> None:
    """Print a new HIFI_GATEWAY_OPERATOR_KEY: a gateway that has it takes it as an administrator's.

    export HIFI_GATEWAY_OPERATOR_KEY=$(hifi keys new-operator-key)
    """
    from deploy.local.secret_keys import new_operator_key  # noqa: PLC0415 - only here

    out.print(new_operator_key())


@options.control_command(app, "list")
def list_keys(*, form: Form | None, client: ControlClient) -> None:
    """List the keys there are; never their texts, which nobody has."""
    keys = client.call("GET", "keys")["keys"]
    heads = ("key", "tenant", "kind", "scopes", "streams", "origins", "expires", "last used",
             "active secrets")  # fmt: skip
    print_list(form, keys, heads, _cells, lambda key: key["id"], numbers=1)


@options.control_command(app, "get", alias="show")
def show(key_id: KeyId, form: Form | None, client: ControlClient) -> None:
    """Show what a key allows, as JSON."""
    print_one(form, client.call("GET", "keys", key_id), name=key_id)


@options.control_command(app)
def rotate(
    *,
    key_id: KeyId,
    finish: Annotated[
        bool, typer.Option("--finish", help="End a rotation: only the newest text stays good.")
    ] = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Issue a second secret for a key; the old one stays valid until --finish revokes it.

    NEW=$(hifi keys rotate shop)    # put it where the old one was, then:

    hifi keys rotate shop --finish
    """
    if finish:
        client.call("POST", "keys", key_id, "retire")
        talk.print(f"{harmless(key_id)}: only its newest text is good now.")
        return
    _show_text(client.call("POST", "keys", key_id, "rotate"), form=form)


@options.control_command(app)
def link(
    *,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help="A stream that it shows; repeat for more. Default: all streams of the tenant."
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(
            help="Origin of a page that may show it in a frame; repeat for more. Default: none."
        ),
    ] = None,
    tenant: Annotated[
        str | None, typer.Option(help="Tenant to show. Default: the key's own.")
    ] = None,
    hours: Annotated[float, typer.Option(help="Hours until it ends.", min=0.001, max=24)] = 1.0,
    console: options.Console = options.CONSOLE_DEFAULT,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Make a link that shows the console, as a key with the scope read sees it, to who opens it.

    It is signed by your key, which has the scope admin, and ends with it. Nothing is stored.

        hifi keys link --tenant acme --origin https://portal.example
    """
    given = {"streams": stream, "origins": origin, "tenant": tenant}
    fields = {name: value for name, value in given.items() if value}
    shown = client.call("POST", "links", body={**fields, "lasts_s": hours * 3_600})
    url = console.rstrip("/") + shown["path"]
    if form is not None:
        print_one(form, {**shown, "url": url}, name=url)
        return
    until = f"{datetime.fromtimestamp(shown['expires_at_ms'] / 1000, UTC):%F %H:%M}"
    talk.print(f"Everybody with this link sees {harmless(shown['tenant'])} until {until} UTC:")
    out.out(url)


@options.control_command(app, "revoke", alias="delete")
def revoke(key_id: KeyId, client: ControlClient) -> None:
    """Remove a key: within 2 s no gateway takes any of its texts."""
    client.call("DELETE", "keys", key_id)
    talk.print(f"{harmless(key_id)} is revoked.")


def _show_text(shown: dict[str, Any], *, form: Form | None) -> None:
    if form is not None:
        print_one(form, shown, name=shown["id"])
        return
    talk.print("The key's text, shown this once; send it as `Authorization: Bearer ...`:")
    out.print(shown["key"])


def _last_use(key: dict[str, Any]) -> str:
    # A gateway of an earlier release does not say.
    if "last_used_at_ms" not in key:
        return "-"
    used_ms = key["last_used_at_ms"]
    return "not within a year" if used_ms is None else _minute(used_ms)


def _minute(at_ms: int) -> str:
    return f"{datetime.fromtimestamp(at_ms / 1000, UTC):%F %H:%M}"


def _cells(key: dict[str, Any]) -> list[str]:
    expires = key["expires_at_ms"]
    return [
        harmless(key["id"]),
        harmless(key["tenant"]),
        key["kind"],
        " ".join(key["scopes"]),
        " ".join(key["streams"]) or "all",
        " ".join(map(harmless, key["origins"])) or "-",
        "never" if expires is None else _minute(expires),
        _last_use(key),
        str(key["live_texts"]),
    ]
