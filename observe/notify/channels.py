"""Reads the operator's file of channels: where notices go, about what, and whose."""

import re
import tomllib
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from observe.notify.notices import Concern, Notice
from shared.config.addresses import host_class, read_host
from shared.config.signing import signing_key
from shared.runtime.resolver import ascii_host
from shared.runtime.setup_error import SetupError

_RUNBOOKS = "docs/runbooks"
# Each has a task and what it knows; a file of tenants' channels beyond that wants another way.
_CHANNELS_MAX = 200
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}")


class _FilePart(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class Channel(_FilePart):
    """Where notices go. Its address is a secret: who knows a Slack address may post there."""

    name: str
    kind: Literal["webhook", "slack"]
    url: str = Field(repr=False)
    # Signs webhooks; a Slack address is proof enough.
    secret: str = Field(default="", repr=False)
    # Whose destinations it hears of; none: the operator's channel, which hears of all.
    tenant: str = ""
    about: tuple[Concern, ...] = tuple(Concern)
    # Addresses of one's own network, as for destinations.
    allow_private: bool = False

    def wants(self, notice: Notice) -> bool:
        is_ours = not self.tenant or notice.tenant == self.tenant
        return is_ours and notice.concern in self.about

    @field_validator("name")
    @classmethod
    def _is_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("a name is of a to z, 0 to 9, dot, dash and underscore")
        return name

    @field_validator("url")
    @classmethod
    def _is_address(cls, url: str) -> str:
        try:
            parts = urlsplit(url)
            host, _ = read_host(ascii_host(parts.hostname or "")), parts.port
        except ValueError:
            # Without what stands there.
            raise ValueError("it is no URL") from None
        if parts.scheme not in {"http", "https"} or parts.username or not url.isascii():
            raise ValueError("it is a URL with http or https, without a user, in ASCII")
        if host_class(host) == "never" or any(sign <= " " for sign in url):
            raise ValueError("nothing is sent there")
        return url

    @model_validator(mode="after")
    def _is_signed(self) -> Self:
        if self.kind == "slack" and self.secret:
            raise ValueError("slack: takes no secret, its address is one")
        if self.kind == "webhook":
            if not self.secret:
                raise ValueError("webhook: needs a secret (`hifi secrets new-signing-secret`)")
            signing_key(self.secret)
        return self


class Channels(_FilePart):
    """All channels, and where links in messages lead."""

    # Where people reach the console; none: messages have no link there.
    console: str = ""
    runbooks: str = _RUNBOOKS
    channels: Annotated[tuple[Channel, ...], Field(max_length=_CHANNELS_MAX)] = ()

    @model_validator(mode="after")
    def _are_several(self) -> Self:
        names = [channel.name for channel in self.channels]
        if len({*names}) < len(names):
            raise ValueError("two channels have the same name")
        return self


def read_channels(path: Path | None) -> Channels:
    """What the file says; SetupError, with no word of what stands there, if it is wrong."""
    if path is None:
        return Channels()
    try:
        return Channels.model_validate(tomllib.loads(path.read_text()))
    except OSError as error:
        wrong = f"cannot be read ({error.strerror})"
    except UnicodeDecodeError:
        wrong = "is no text"
    except tomllib.TOMLDecodeError as error:
        wrong = f"is no TOML: {error}"
    except ValidationError as error:
        first = error.errors(include_input=False, include_url=False)[0]
        where = ".".join(map(str, first["loc"])) or "the file"
        wrong = f"is wrong: {where}: {first['msg'].removeprefix('Value error, ')}"
    raise SetupError(f"The file of notifications, {path}, {wrong}.")
