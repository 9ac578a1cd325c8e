"""Routes to set up and test the channels that notify a tenant of trouble."""

from urllib.parse import urlsplit

import msgspec
import structlog
from fastapi import APIRouter, Response
from pydantic import BaseModel

from gateway.control.destinations import check_target
from gateway.control.requests import (
    Admin,
    ChangingPlane,
    ControlPlane,
    JsonObject,
    PathName,
    Plane,
    Reader,
    When,
    also,
    as_json,
    named,
    strictly,
)
from gateway.control.sealing import sealed_fields, shown
from gateway.problems import Problem
from shared.config.model import ConfigError
from shared.config.outside.channel import Channel
from shared.config.values import is_web_address
from shared.event.topics import config_key
from shared.event.trial import ChannelAsked

log = structlog.get_logger()
router = APIRouter()

_PATH = "/v1/channels/{channel}"


class ChannelList(BaseModel):
    channels: list[Channel]


class ChannelTest(BaseModel):
    """The channel's answer to a test message."""

    is_taken: bool
    says: str


@router.get("/v1/channels", response_model=ChannelList)
async def list_channels(caller: Reader, plane: Plane) -> Response:
    channels = sorted(plane.configuration.channels.values(), key=lambda each: each.name)
    ours = [shown(each) for each in channels if caller.sees_channel(each)]
    return as_json({"channels": ours})


@router.get(_PATH, response_model=Channel)
async def show_channel(channel: PathName, caller: Reader, plane: Plane) -> Response:
    item = caller.channel(channel, plane.configuration)
    return as_json(shown(item), item=item)


@router.put(
    _PATH,
    response_model=Channel,
    responses={201: {"model": Channel}},
    openapi_extra=also("target_forbidden", "secrets_off", "secret_changed", "bound_reached"),
)
async def put_channel(
    channel: PathName, caller: Admin, given: JsonObject, *, plane: ChangingPlane, when: When
) -> Response:
    caller.check_channels()
    key = config_key("channel", f"{caller.tenant}/{channel}")
    await _check_address(plane, given, caller.tenant)

    async def edit(before: Channel | None) -> Channel:
        fields = named(given, name=channel, tenant=caller.tenant)
        if fields.get("url") is not None:
            # The new address replaces a stored secret one.
            fields.setdefault("secret_url", None)
        is_same_way = before is not None and before.via == fields.get("via")
        kept = before if is_same_way else None
        sealed = sealed_fields(fields, before=kept, owner=key.decode(), box=plane.box)
        wanted = strictly(Channel.of(sealed), before)
        if wanted.via == "mail" and not plane.settings.mail_host:
            raise ConfigError("via", "this Hifi sends no mail: its operator sets HIFI_MAIL_HOST")
        plane.check_bounds(caller.tenant, {"channels": int(before is None)})
        return wanted

    before, after = await plane.change(key, edit, by=caller.author, when=when)
    plane.note("channel.written", channel=after.name, tenant=caller.tenant)
    return as_json(shown(after), item=after, is_new=before is None)


@router.delete(_PATH, status_code=204, response_class=Response)
async def delete_channel(channel: PathName, caller: Admin, plane: Plane, when: When) -> None:
    """Delete the channel: Hifi stops sending notices there."""
    item = caller.channel(channel, plane.configuration)
    await plane.change(
        item.config_key,
        None,
        by=caller.author,
        when=when,
        check=lambda _: caller.channel(channel, plane.configuration),
    )
    log.info("channel.removed", channel=channel, tenant=caller.tenant)


@router.post(
    f"{_PATH}/test",
    response_model=ChannelTest,
    openapi_extra=also("channel_test_rate", "not_tried"),
)
async def test_channel(channel: PathName, caller: Admin, plane: Plane) -> Response:
    """Send a test message from the process that sends all messages; return the channel's answer."""
    item = caller.channel(channel, plane.configuration)
    plane.charge_channel_test(caller.tenant)
    answer = await plane.try_channel(ChannelAsked(msgspec.Raw(item.to_json())))
    if answer is None:
        raise Problem(
            "not_tried",
            "No observer answered in time: it may be starting or down. Ask again.",
            headers=((b"retry-after", b"5"),),
        )
    return as_json({"is_taken": answer.is_taken, "says": answer.says})


async def _check_address(plane: ControlPlane, given: JsonObject, tenant: str) -> None:
    """Refuse an address that Hifi may not send to; a placeholder's address was checked before."""
    for setting in ("url", "secret_url"):
        if isinstance(url := given.get(setting), str) and is_web_address(url):
            if urlsplit(url).username is not None:
                raise ConfigError(setting, "Hifi does not sign in there: omit user and password")
            await check_target(plane, tenant, setting, url)
