"""`hifi secrets`: makes keys and signing secrets, and seals stored secrets with the newest key."""

import os
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import Form, out, print_one, talk
from deploy.local.secret_keys import VARIABLE, secret_keys
from deploy.local.stores import reseal
from shared.config.signing import signing_secret
from shared.runtime.archive.stores import STORES_VARIABLE
from shared.runtime.control_client import ControlClient
from shared.runtime.secret_box import SecretBox, new_key
from shared.runtime.setup_error import UsageError

app = typer.Typer(name="secrets", no_args_is_help=True)

# Shorter than SHA-256's block, and half as long as the specification allows.
_SIGNING_BYTES = 32


@app.command("new-key")
def print_key() -> None:
    """Print a new key for HIFI_SECRET_KEYS. Keep it: only this key opens what it has sealed.

    export HIFI_SECRET_KEYS=$(hifi secrets new-key)
    """
    out.print(new_key())


@app.command()
def new_signing_secret() -> None:
    """Print a new secret that signs requests; give it to the destination and to its owner.

    hifi destinations update orders shop --set signing_secrets='["whsec_..."]'
    """
    out.print(signing_secret(os.urandom(_SIGNING_BYTES)))


@options.control_command(app)
def rotate(
    *,
    stores: Annotated[
        Path | None,
        typer.Option(envvar=STORES_VARIABLE, help="A file of stores, to seal its secrets too."),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Keys; default: in --data."),
    ] = None,
    data: options.Data = options.DATA_DEFAULT,
    form: Form | None,
    client: ControlClient,
) -> None:
    """Seal every secret again with the first of HIFI_SECRET_KEYS, so that you can drop the others.

    1. Put a new key in front: HIFI_SECRET_KEYS=NEW,OLD for every service that has it.

    2. Run `hifi secrets rotate`; if you have a file of stores, with --stores FILE.

    3. Remove the old key: HIFI_SECRET_KEYS=NEW.
    """
    done = client.call("POST", "secrets:rotate")
    if stores is not None:
        box = SecretBox.of(secret_keys(data, {VARIABLE: keys} if keys else {}))
        for name, added in reseal(stores, box)._asdict().items():
            done[name] += added
    if form is not None:
        print_one(form, done, name="")
    else:
        talk.print(
            f"{done['sealed_anew']} sealed again,"
            f" {done['already_newest']} were already sealed with the newest key."
        )
    if done["not_opened"]:
        raise UsageError(
            f"None of the keys opens {', '.join(done['not_opened'])}: add the key that sealed them"
            " to HIFI_SECRET_KEYS and rotate again, or set these secrets again."
        )
