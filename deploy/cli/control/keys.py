"""`hifi keys`: makes, lists, rotates and revokes the API keys of a gateway.

A key's text goes to standard output alone, once, so that `KEY=$(hifi keys create shop)` works;
everything else that is said goes to standard error.
"""

import asyncio
import os
import time
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from deploy.cli import options
from deploy.cli.control.control_client import ControlClient
from deploy.cli.printing import harmless, out, print_json, print_table, talk
from shared.config.access import ENTROPY_BYTES, SCOPES, ApiKey, new_text, secret_from
from shared.config.model import ConfigError
from shared.event.times import DAY_MS
from shared.runtime.kafka.config_topic import read_config, write_config
from shared.runtime.setup_error import UsageError

app = typer.Typer(no_args_is_help=True, help="API keys: create, list, show, rotate, revoke.")

KeyId = Annotated[str, typer.Argument(metavar="ID", help="The key's name; it is in its text too.")]


@app.command()
def create(  # noqa: PLR0917 - typer makes an option of each
    key_id: KeyId,
    scope: Annotated[
        list[str] | None, typer.Option(help=f"What it allows: {', '.join(sorted(SCOPES))}.")
    ] = None,
    stream: Annotated[
        list[str] | None, typer.Option(help="A stream it is for; without any: all of the tenant.")
    ] = None,
    origin: Annotated[
        list[str] | None,
        typer.Option(help="A web page's origin: makes a key for browsers, which only writes."),
    ] = None,
    tenant: Annotated[str | None, typer.Option(help="Whose key it is.")] = None,
    days: Annotated[
        float | None, typer.Option(help="It expires after so many days.", min=0.001)
    ] = None,
    must_sign: Annotated[
        bool, typer.Option("--must-sign", help="Requests must also carry a signature.")
    ] = False,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    bootstrap: Annotated[
        bool,
        typer.Option("--bootstrap", help="Write it straight into Kafka: for the very first key."),
    ] = False,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Make a key. Its text is printed now and never again: only its hash is kept.

    A gateway that asks for keys takes no new one from somebody who has none. The first key goes
    past it, straight into Kafka's config topic; who can write there owns Hifi anyway:

        hifi keys create root --scope admin --bootstrap --kafka 127.0.0.1:9092

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
    if bootstrap:
        shown = asyncio.run(_bootstrap(kafka, key_id, fields))
    else:
        shown = ControlClient(gateway, api_key).call("PUT", "keys", key_id, body=fields)
    _show_text(shown, as_json=as_json)


@app.command("list")
def list_keys(
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """List the keys there are; never their texts, which nobody has."""
    keys = ControlClient(gateway, api_key).call("GET", "keys")["keys"]
    if as_json:
        print_json(keys)
        return
    heads = ("key", "tenant", "kind", "scopes", "streams", "origins", "expires", "live texts")
    print_table(heads, [_cells(key) for key in keys], numbers=1)


@app.command()
def show(
    key_id: KeyId,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Show what a key allows, as JSON."""
    print_json(ControlClient(gateway, api_key).call("GET", "keys", key_id))


@app.command()
def rotate(
    key_id: KeyId,
    finish: Annotated[
        bool, typer.Option("--finish", help="End a rotation: only the newest text stays good.")
    ] = False,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
    as_json: options.AsJson = False,
) -> None:
    """Give a key a second text; the old one stays good until you say --finish.

    NEW=$(hifi keys rotate shop)    # put it where the old one was, then:

    hifi keys rotate shop --finish
    """
    client = ControlClient(gateway, api_key)
    if finish:
        client.call("POST", "keys", key_id, "retire")
        talk.print(f"{harmless(key_id)}: only its newest text is good now.")
        return
    _show_text(client.call("POST", "keys", key_id, "rotate"), as_json=as_json)


@app.command()
def revoke(
    key_id: KeyId,
    gateway: options.Gateway = options.GATEWAY_DEFAULT,
    api_key: options.ApiKey = None,
) -> None:
    """Remove a key: within 2 s no gateway takes any of its texts."""
    ControlClient(gateway, api_key).call("DELETE", "keys", key_id)
    talk.print(f"{harmless(key_id)} is revoked.")


async def _bootstrap(kafka: str, key_id: str, fields: dict[str, Any]) -> dict[str, Any]:
    """Make a key without asking any gateway: whoever can write the config topic may do so."""
    known = (await read_config(kafka)).keys
    if key_id in known:
        raise UsageError(f"There is a key {key_id!r} already: choose another name.")
    text = new_text(kind=fields["kind"], key_id=key_id, entropy=os.urandom(ENTROPY_BYTES))
    secret = secret_from(text, signs=fields["must_sign"])
    secrets = [{"hash": secret.hash, "signing_key": secret.signing_key}]
    try:
        key = ApiKey.of({**fields, "id": key_id, "secrets": secrets})
    except ConfigError as error:
        raise UsageError(f"This is no key: {error}.") from error
    await write_config(kafka, [key])
    return {**fields, "id": key_id, "tenant": key.tenant, "key": text}


def _show_text(shown: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        print_json(shown)
        return
    talk.print("The key's text, shown this once; send it as `Authorization: Bearer ...`:")
    out.print(shown["key"])


def _cells(key: dict[str, Any]) -> list[str]:
    expires = key["expires_at_ms"]
    return [
        harmless(key["id"]),
        harmless(key["tenant"]),
        key["kind"],
        " ".join(key["scopes"]),
        " ".join(key["streams"]) or "all",
        " ".join(map(harmless, key["origins"])) or "-",
        "never" if expires is None else f"{datetime.fromtimestamp(expires / 1000, UTC):%F %H:%M}",
        str(key["live_texts"]),
    ]
