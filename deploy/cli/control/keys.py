"""`hifi keys`: creates, lists, rotates and revokes a gateway's API keys, and creates links.

Only a key's text or a link goes to standard output, so that `KEY=$(hifi keys create shop)` works.
All other messages go to standard error.
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

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's name; it is part of its text.")]


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
            help="Stream that it may use; repeat for more. Default: all streams of the tenant."
        ),
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="Origin of a web page, for a browser key, which can only write."),
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
    """Create a key. Its text is printed now and never again: only its hash is stored.

    On a gateway that requires keys, you need a key to create one. Create the first one with the
    operator key, which is the gateway's HIFI_GATEWAY_OPERATOR_KEY; `hifi up` keeps one in its data
    folder:

        export HIFI_API_KEY=$(cat data/operator-key)

        hifi keys create root --scope admin

    After that:

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
    """Print a new HIFI_GATEWAY_OPERATOR_KEY, which a gateway accepts as an administrator's key.

    export HIFI_GATEWAY_OPERATOR_KEY=$(hifi keys new-operator-key)
    """
    from deploy.local.secret_keys import new_operator_key  # noqa: PLC0415 - used only here

    out.print(new_operator_key())


@options.control_command(app, "list")
def list_keys(*, form: Form | None, client: ControlClient) -> None:
    """List all keys; not their texts, which are not stored."""
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
        bool, typer.Option("--finish", help="End a rotation: only the newest text stays valid.")
    ] = False,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Issue a second secret for a key; the old one stays valid until --finish revokes it.

    NEW=$(hifi keys rotate shop)    # replace the old text everywhere, then:

    hifi keys rotate shop --finish
    """
    if finish:
        client.call("POST", "keys", key_id, "retire")
        talk.print(f"{harmless(key_id)}: only its newest text is valid now.")
        return
    _show_text(client.call("POST", "keys", key_id, "rotate"), form=form)


@options.control_command(app)
def link(
    *,
    stream: Annotated[
        list[str] | None,
        typer.Option(
            help="Stream that it shows; repeat for more. Default: all streams of the tenant."
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
    hours: Annotated[float, typer.Option(help="Hours until it expires.", min=0.001, max=24)] = 1.0,
    console: options.Console = options.CONSOLE_DEFAULT,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Create a link to the console, which lets anyone who opens it see what a read key may see.

    Your key, which needs the scope admin, signs it; it expires with the key. Nothing is stored.

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
    talk.print(f"Anyone with this link sees {harmless(shown['tenant'])} until {until} UTC:")
    out.out(url)


@options.control_command(app, "revoke", alias="delete")
def revoke(key_id: KeyId, client: ControlClient) -> None:
    """Revoke a key: within 2 s no gateway accepts any of its texts."""
    client.call("DELETE", "keys", key_id)
    talk.print(f"{harmless(key_id)} is revoked.")


def _show_text(shown: dict[str, Any], *, form: Form | None) -> None:
    if form is not None:
        print_one(form, shown, name=shown["id"])
        return
    talk.print("The key's text, shown this once; send it as `Authorization: Bearer ...`:")
    out.print(shown["key"])


def _last_use(key: dict[str, Any]) -> str:
    # A gateway of an earlier release does not report it.
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
