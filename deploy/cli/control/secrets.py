"""`hifi secrets`: makes keys and signing secrets, and seals what is kept with the newest key."""

import asyncio
import os
from typing import Annotated

import typer

from deploy.cli import options
from deploy.cli.printing import out, print_json, talk
from deploy.local.secret_keys import VARIABLE, secret_keys
from shared.config.credentials import change_secrets, secrets_of
from shared.config.destination import Destination
from shared.config.signing import signing_secret
from shared.config.values import Sealed
from shared.runtime.kafka.config_topic import read_config, write_config
from shared.runtime.secret_box import SecretBox, SecretUnavailableError, new_key
from shared.runtime.settings import SecretSettings, read_settings
from shared.runtime.setup_error import SetupError

app = typer.Typer(no_args_is_help=True, help="Secrets: new-key, new-signing-secret, rotate.")

# As long as SHA-256's block needs no more, and half as long as the specification allows.
_SIGNING_BYTES = 32


@app.command("new-key")
def print_key() -> None:
    """Print a new key for HIFI_SECRET_KEYS. Keep it: what it has sealed opens with it alone.

    export HIFI_SECRET_KEYS=$(hifi secrets new-key)
    """
    out.print(new_key())


@app.command()
def new_signing_secret() -> None:
    """Print a new secret to sign requests with; give it to the destination, and to its owner.

    hifi destinations change orders shop --set signing_secrets='["whsec_..."]'
    """
    out.print(signing_secret(os.urandom(_SIGNING_BYTES)))


@app.command()
def rotate(
    is_local: Annotated[
        bool, typer.Option("--local", help="With the keys of `hifi up`, in its data folder.")
    ] = False,
    folder: options.Data = options.DATA_DEFAULT,
    kafka: options.Kafka = options.KAFKA_DEFAULT,
    as_json: options.AsJson = False,
) -> None:
    """Seal every secret anew with the first of HIFI_SECRET_KEYS, so that the others can go.

    1. Put a new key in front: HIFI_SECRET_KEYS=NEW,OLD for gateway, delivery and retrier.

    2. HIFI_SECRET_KEYS=NEW,OLD hifi secrets rotate

    3. Take the old key away: HIFI_SECRET_KEYS=NEW.
    """
    given = read_settings(SecretSettings, program="hifi").secret_keys
    keys = secret_keys(folder.absolute(), {VARIABLE: given}) if is_local else given
    box = SecretBox.of(keys)
    if not box.has_keys:
        raise SetupError(
            f"{VARIABLE} is not set: give the keys that Hifi runs with, the newest first,"
            " or say --local for those of `hifi up`."
        )
    done, fine, lost = asyncio.run(_rotate(kafka, box))
    if as_json:
        print_json({"sealed_anew": done, "already_newest": fine, "not_opened": lost})
    else:
        talk.print(f"{done} sealed anew, {fine} were already sealed with the newest key.")
    if lost:
        listed = ", ".join(lost)
        raise SetupError(
            f"None of the keys opens {listed}: rotate with the key that sealed them as well,"
            " or set these secrets again."
        )


async def _rotate(kafka: str, box: SecretBox) -> tuple[int, int, list[str]]:
    """How many secrets were sealed anew, how many need not be, and which could not be opened."""
    done, fine, lost = 0, 0, []
    for destination in (await read_config(kafka)).destinations.values():
        found = list(secrets_of(destination.to_fields()))
        old = {sealed for _, sealed in found if not box.is_newest(sealed)}
        fine += len(found) - len(old)
        try:
            anew = {sealed: _anew(sealed, destination, box) for sealed in old}
        except SecretUnavailableError:
            lost.append(destination.id)
            continue
        if anew:
            fields = change_secrets(
                destination.to_fields(),
                lambda _, sealed, anew=anew: anew.get(sealed, sealed),  # type: ignore[misc]  # bound now
            )
            await write_config(kafka, [Destination.of(fields)])
            done += len(anew)
    return done, fine, sorted(lost)


def _anew(sealed: Sealed, destination: Destination, box: SecretBox) -> Sealed:
    return box.seal(box.unseal(sealed, owner=destination.id), owner=destination.id)
