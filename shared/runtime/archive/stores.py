"""Opens stores: buckets of S3, Google and Azure, and folders, all with one API.

An object exists whole or not at all. A name is used once: a second write reports that the object
exists. Errors are sentences for people, without secrets.
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

# The variables with the file of stores, and with the folder that must contain all folder stores.
STORES_VARIABLE = "HIFI_STORES"
FOLDERS_VARIABLE = "HIFI_STORE_FOLDERS"
# A bucket that needs longer for 64 MiB is too slow; a handshake needs at most 5 s.
_REQUEST_S, _CONNECT_S = 60, 5
_TRIES = 2
_WORDS_MAX = 200
# Matches the address of the request, which no tenant may see, and the server's error in XML.
_ASKED = re.compile(r"(?:Error performing [a-z ]+: )?Error performing [A-Z]+ \S+ in .*? - ")
_SAID = re.compile(r"<(?:Code|Message)>([^<]*)")

T = TypeVar("T")


class StoreAwayError(Exception):
    """A store failed a request; the text explains it to people."""


class OpenStore:
    """An open store."""

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
        """Write an object; if the name is taken, leave that object unchanged and return False."""

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
        """Read an object; return None if it does not exist."""

        def get() -> bytes | None:
            try:
                return bytes(self._held.get(path).bytes())
            except FileNotFoundError:
                return None

        return self._asked(get)

    def names(self, prefix: str) -> Iterator[str]:
        """Yield the names of all objects below a prefix, in no order."""
        try:
            for some in self._held.list(prefix):
                yield from (str(each["path"]) for each in some)
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise StoreAwayError(f"the store {self._store.name}: {_words(error)}") from None

    def folders(self, prefix: str) -> list[str]:
        """Return the non-empty folders directly below a prefix."""
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
    """Check that a folder is below the operator's folder for such stores."""
    folder = Path(store.path)
    if folders is None:
        raise StoreAwayError(
            f"the store {store.name} is a folder: set the folder that contains all such stores in"
            f" {FOLDERS_VARIABLE}"
        )
    if not folder.resolve().is_relative_to(folders.resolve()):
        raise StoreAwayError(
            f"the store {store.name} is in {folder}, which is not below {folders}"
            f" ({FOLDERS_VARIABLE})"
        )
    return folder


def _keep(path: Path) -> None:
    """Flush a file and its name to the disk now; the client leaves that to the system."""
    for each in (path, path.parent):
        handle = os.open(each, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _words(error: Exception) -> str:
    """Return only the reason in an error, without the client's address and internals around it."""
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
            f"The file of stores {path} cannot be read ({error.strerror}): set {STORES_VARIABLE} to"
            " another file."
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ConfigError) as error:
        raise SetupError(f"The file of stores {path}: {error}.") from error
