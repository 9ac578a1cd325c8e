"""Sends events to Hifi and receives them. Every accepted event is in the log."""

from hifi_client.errors import (
    ClosedError,
    DeliveryError,
    FullError,
    GatewayError,
    HifiError,
    NotAnEventError,
    RefusedError,
    SetupError,
    SpoolError,
)
from hifi_client.receiving.receiver import Delivery, Receiver, Reply
from hifi_client.receiving.seen import Seen, SeenInMemory
from hifi_client.receiving.web import AsgiReceiver, WsgiReceiver
from hifi_client.sending.async_sender import AsyncSender
from hifi_client.sending.fates import Fate, Outcome, Sent, SentMany
from hifi_client.sending.sender import Options, Sender

__all__ = [
    "AsgiReceiver",
    "AsyncSender",
    "ClosedError",
    "Delivery",
    "DeliveryError",
    "Fate",
    "FullError",
    "GatewayError",
    "HifiError",
    "NotAnEventError",
    "Options",
    "Outcome",
    "Receiver",
    "RefusedError",
    "Reply",
    "Seen",
    "SeenInMemory",
    "Sender",
    "Sent",
    "SentMany",
    "SetupError",
    "SpoolError",
    "WsgiReceiver",
]
