"""Finds the archive of a stream, in one of the stores that the file of stores names."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from deploy.cli import options
from deploy.local.secret_keys import VARIABLE, secret_keys
from deploy.local.stack_settings import FOLDERS, STORES
from shared.config.access import DEFAULT_TENANT
from shared.proof.archived import ArchiveId
from shared.runtime.archive.archived_log import DamagedObjectError
from shared.runtime.archive.files import UnreadableError
from shared.runtime.archive.reading import archives_of, lives_of
from shared.runtime.archive.stores import (
    FOLDERS_VARIABLE,
    STORES_VARIABLE,
    OpenStore,
    StoreAwayError,
    read_stores,
)
from shared.runtime.secret_box import SecretBox
from shared.runtime.setup_error import OperatorError, UsageError

# The name that we show for a life without a name, in archives of earlier releases.
_UNNAMED = "unnamed"


class StoreError(OperatorError):
    """A store does not answer, or its contents are damaged."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn errors of a store, or of its contents, into a StoreError with one sentence."""
    try:
        yield
    except (StoreAwayError, DamagedObjectError, UnreadableError) as error:
        raise StoreError(f"{error}.") from error


@dataclass(frozen=True, slots=True)
class ArchiveChoice:
    """The options that choose an archive, and the store to find it in."""

    data: Path
    stores: Path | None
    folders: Path | None
    store: str | None
    archive: str | None
    tenant: str
    keys: str | None
    life: str | None = None

    def open(self, stream: str) -> tuple[OpenStore, list[ArchiveId]]:
        """Return the store, and the lives of the stream's chosen archive, the newest last."""
        stores = read_stores(self.stores or self.data / STORES)
        name = self.store or (next(iter(stores)) if len(stores) == 1 else None)
        if name not in stores:
            there = ", ".join(sorted(stores)) or "none"
            raise UsageError(f"Name a store with --store; the stores are: {there}.")
        folders = self.folders
        if folders is None:
            known = self.data / FOLDERS
            folders = Path(known.read_text().strip()) if known.exists() else None
        box = SecretBox.of(
            secret_keys(self.data, {VARIABLE: self.keys} if self.keys else {})
            if stores[name].secret_key
            else ""
        )
        with store_errors():
            bucket = OpenStore(stores[name], box, folders=folders)
            names = archives_of(bucket, self.tenant, stream)
            chosen = self.archive or (names[0] if len(names) == 1 else None)
            if chosen not in names:
                there = ", ".join(names) or "none"
                raise UsageError(
                    f"Name an archive of {stream} with --archive; {name} has: {there}."
                )
            lives = lives_of(bucket, ArchiveId(self.tenant, stream, chosen))
        wanted = [each for each in lives if self.life in {None, life_name(each)}]
        if not wanted:
            there = ", ".join(map(life_name, lives))
            raise UsageError(f"{chosen} has no life {self.life!r}; its lives are: {there}.")
        return bucket, wanted


def life_name(archive: ArchiveId) -> str:
    """Return the life's name, as --life takes it."""
    return archive.life or _UNNAMED


def archive_choice(  # noqa: PLR0917 - typer makes an option of each
    store: Annotated[
        str | None, typer.Option("--store", help="The store; not needed if there is only one.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option(
            "--archive", help="The archive's pipeline; not needed if the stream has only one."
        ),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="The stream's tenant.")] = DEFAULT_TENANT,
    stores: Annotated[
        Path | None,
        typer.Option(
            "--stores", envvar=STORES_VARIABLE, help="The file of stores; default: in --data."
        ),
    ] = None,
    folders: Annotated[
        Path | None,
        typer.Option(envvar=FOLDERS_VARIABLE, help="Folder that may hold stores."),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Keys of secrets; default: in --data."),
    ] = None,
    life: Annotated[
        str | None,
        typer.Option(
            help="Id of the stream's topic, if it was recreated; `hifi archive verify` shows it."
        ),
    ] = None,
    data: options.Data = options.DATA_DEFAULT,
) -> ArchiveChoice:
    """Return the choice that the options common to all archive commands describe."""
    return ArchiveChoice(data, stores, folders, store, archive, tenant, keys, life)
