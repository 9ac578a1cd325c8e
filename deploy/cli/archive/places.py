"""Finds an archive: by the file of stores, in a store, of a stream."""

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

# The life of archives that were kept before lives had names.
_UNNAMED = "unnamed"


class StoreError(OperatorError):
    """A store does not answer, or not as it should."""


@contextmanager
def store_errors() -> Iterator[None]:
    """Turn errors of a store, or of its contents, into a sentence."""
    try:
        yield
    except (StoreAwayError, DamagedObjectError, UnreadableError) as error:
        raise StoreError(f"{error}.") from error


@dataclass(frozen=True, slots=True)
class ArchiveChoice:
    """Where to look."""

    data: Path
    stores: Path | None
    folders: Path | None
    store: str | None
    archive: str | None
    tenant: str
    keys: str | None
    life: str | None = None

    def open(self, stream: str) -> tuple[OpenStore, list[ArchiveId]]:
        """The store, and the lives of the one archive of the stream there, the newest last."""
        stores = read_stores(self.stores or self.data / STORES)
        name = self.store or (next(iter(stores)) if len(stores) == 1 else None)
        if name not in stores:
            there = ", ".join(sorted(stores)) or "none"
            raise UsageError(f"Name one of the stores with --store; there are: {there}.")
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
                    f"Name one archive of {stream} with --archive; in {name} there are: {there}."
                )
            lives = lives_of(bucket, ArchiveId(self.tenant, stream, chosen))
        wanted = [each for each in lives if self.life in {None, life_name(each)}]
        if not wanted:
            there = ", ".join(map(life_name, lives))
            raise UsageError(f"{chosen} has no life {self.life!r}; there are: {there}.")
        return bucket, wanted


def life_name(archive: ArchiveId) -> str:
    """As --life takes it."""
    return archive.life or _UNNAMED


def archive_choice(  # noqa: PLR0917 - typer makes an option of each
    store: Annotated[
        str | None, typer.Option("--store", help="The store; else the only one there is.")
    ] = None,
    archive: Annotated[
        str | None,
        typer.Option("--archive", help="The archive's pipeline; else the stream's only one."),
    ] = None,
    tenant: Annotated[str, typer.Option("--tenant", help="Whose stream it is.")] = DEFAULT_TENANT,
    stores: Annotated[
        Path | None,
        typer.Option(
            "--stores", envvar=STORES_VARIABLE, help="The file of stores; else that of DATA."
        ),
    ] = None,
    folders: Annotated[
        Path | None,
        typer.Option(
            envvar=FOLDERS_VARIABLE, help="Below which folder stores may be; else DATA's."
        ),
    ] = None,
    keys: Annotated[
        str | None,
        typer.Option("--secret-keys", envvar=VARIABLE, help="Open secrets; else those of DATA."),
    ] = None,
    life: Annotated[
        str | None,
        typer.Option(
            help="The id of the stream's topic, if it was deleted and made again; see `verify`."
        ),
    ] = None,
    data: options.Data = options.DATA_DEFAULT,
) -> ArchiveChoice:
    """Makes one of the options that all commands about archives have."""
    return ArchiveChoice(data, stores, folders, store, archive, tenant, keys, life)
