"""Opens stores: buckets of S3, Google and Azure, and folders, all by one API.

An object is there whole or not at all, and a name is used once: a second write of it reports that
it is there. Errors are in words for people, without secrets.
"""

import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any, TypeVar

from obstore import store as kinds
from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError

from shared.config.model import ConfigError
from shared.config.outside.store import Store, store_of
from shared.runtime.secret_box import SecretBox, SecretUnavailableError
from shared.runtime.setup_error import SetupError

# Where the file of stores is, and the folder that must contain stores which are folders.
STORES_VARIABLE = "HIFI_STORES"
FOLDERS_VARIABLE = "HIFI_STORE_FOLDERS"
# A bucket that takes longer for 64 MiB is too slow for us; a handshake takes no more.
_REQUEST_S, _CONNECT_S = 60, 5
_TRIES = 2
_WORDS_MAX = 200
# The address of the request, which no tenant may see; and the server's error, as XML.
_ASKED = re.compile(r"(?:Error performing [a-z ]+: )?Error performing [A-Z]+ \S+ in .*? - ")
_SAID = re.compile(r"<(?:Code|Message)>([^<]*)")

T = TypeVar("T")


class StoreAwayError(Exception):
    """A store fails a request; the text says why, in words for people."""


class OpenStore:
    """A store that is open."""

    def __init__(self, store: Store, box: SecretBox, *, folders: Path | None) -> None:
        self._store = store
        self._folder: Path | None = None
        if store.kind == "file":
            self._folder = _checked_folder(store, folders)
        try:
            self._held = _opened(store, box)
        except (SecretUnavailableError, BaseError, OSError, ValueError) as error:
            raise StoreAwayError(
                f"the store {store.name} cannot be opened: {_words(error)}"
            ) from None

    def put_new(self, path: str, data: bytes) -> bool:
        """Write an object; return False if the name is taken, and leave that object as it is."""

        def put() -> bool:
            try:
                self._held.put(path, data, mode="create", use_multipart=False)
            except (AlreadyExistsError, PreconditionError):
                return False
            return True

        is_new = self._asked(put)
        if is_new and self._folder is not None:
            _keep(self._folder / path)
        return is_new

    def get(self, path: str) -> bytes | None:
        """Read an object; None if there is none of that name."""

        def get() -> bytes | None:
            try:
                return bytes(self._held.get(path).bytes())
            except FileNotFoundError:
                return None

        return self._asked(get)

    def names(self, prefix: str) -> Iterator[str]:
        """The names of all objects below a prefix, in no order."""
        try:
            for some in self._held.list(prefix):
                yield from (str(each["path"]) for each in some)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise StoreAwayError(f"the store {self._store.name}: {_words(error)}") from None

    def folders(self, prefix: str) -> list[str]:
        """The folders right below a prefix, those that are not empty."""
        listing = self._asked(lambda: self._held.list_with_delimiter(prefix))
        return [str(each) for each in listing["common_prefixes"]]

    def _asked(self, what: Callable[[], T]) -> T:
        try:
            return what()
        except (BaseError, OSError) as error:
            raise StoreAwayError(f"the store {self._store.name}: {_words(error)}") from None


def _opened(store: Store, box: SecretBox) -> Any:
    secret = None if store.secret_key is None else box.unseal(store.secret_key, owner=store.owner)
    options = {
        "timeout": f"{_REQUEST_S}s",
        "connect_timeout": f"{_CONNECT_S}s",
        "allow_http": (store.endpoint or "").startswith("http://"),
    }
    common: dict[str, Any] = {
        "prefix": store.path or None,
        "client_options": options,
        "retry_config": {
            "max_retries": _TRIES - 1,
            "retry_timeout": timedelta(seconds=_REQUEST_S),
        },
    }
    match store.kind:
        case "file":
            return kinds.LocalStore(store.path, mkdir=True)
        case "s3":
            named = {
                "endpoint": store.endpoint,
                "region": store.region or "us-east-1",
                "access_key_id": store.access_key or None,
                "secret_access_key": secret,
            }
            return kinds.S3Store(store.bucket, **common, **_given(named))
        case "gs":
            return kinds.GCSStore(store.bucket, **common, **_given({"service_account_key": secret}))
        case _:
            named = {
                "account_name": store.access_key or None,
                "account_key": secret,
                "endpoint": store.endpoint,
            }
            return kinds.AzureStore(store.bucket, **common, **_given(named))


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


def _checked_folder(store: Store, folders: Path | None) -> Path:
    """Check that a folder is below the one that the operator has named for such stores."""
    folder = Path(store.path)
    if folders is None:
        raise StoreAwayError(
            f"the store {store.name} is a folder: name the one that all such are in with"
            f" {FOLDERS_VARIABLE}"
        )
    if not folder.resolve().is_relative_to(folders.resolve()):
        raise StoreAwayError(
            f"the store {store.name} is in {folder}, which is not below {folders}"
            f" ({FOLDERS_VARIABLE})"
        )
    return folder


def _keep(path: Path) -> None:
    """Bring it to the disk before anybody goes on: the client leaves that to the system."""
    for each in (path, path.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _words(error: Exception) -> str:
    """Keep only the reason: the client puts its address before it, and its internals after it."""
    reason = _ASKED.sub("", str(error).partition("\n\nDebug source:")[0].strip())
    reason, _, page = reason.partition("<")
    reason += ": ".join(_SAID.findall(page))
    return reason.split("\n", 1)[0][:_WORDS_MAX] or type(error).__name__


def read_stores(path: Path | None) -> dict[str, Store]:
    """Read the stores of a file, by name; SetupError says what is wrong with it."""
    if path is None:
        return {}
    try:
        settings = tomllib.loads(path.read_text())
        return {name: store_of(name, each) for name, each in settings.items()}
    except OSError as error:
        raise SetupError(
            f"The file of stores {path} cannot be read ({error.strerror}): {STORES_VARIABLE} names"
            " it."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ConfigError) as error:
        raise SetupError(f"The file of stores {path}: {error}.") from error
