"""Calls the gateway's control API; a failed request becomes an error with one sentence.

The client changes an object only if it has not changed since the client read it: it keeps the ETag
of each GET and sends it with the next change of the same object.
"""

import json
import re
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import quote, urlencode

from shared.runtime.http_client import HttpAnswer, HttpClient, NoHttpAnswerError
from shared.runtime.setup_error import NoAnswerError, NotFoundError, OperatorError, UsageError

# A change waits for Kafka (10 s at most) and for the gateway to read it back (2 s); a redrive takes
# 20 s.
_TIMEOUT_S = 30.0


_LISTING = re.compile(r"GET /v1/(?:streams/(\S+)/)?(\w+) lists")


def in_commands(detail: str) -> str:
    """Replace requests in a gateway's text by the commands that make them."""
    return _LISTING.sub(
        lambda match: f"`hifi {match[2]} list{f' {match[1]}' * bool(match[1])}` lists", detail
    )


class RefusedError(UsageError):
    """The gateway refused a request."""

    def __init__(self, response: HttpAnswer) -> None:
        self.status = response.status
        says = f"The gateway answered {self.status}"
        try:
            problem = response.json()
            self.code, self.detail = str(problem["code"]), str(problem["detail"])
            # The place of the mistake, if it is in the request's body.
            self.pointer = str(problem.get("pointer") or "")
            says += f" {self.code}: {in_commands(self.detail)}"
        except (ValueError, KeyError, TypeError):
            elsewhere = response.headers.get("location", "")
            says += (
                f" and redirects to {elsewhere}: use the address of the gateway itself."
                if elsewhere
                else ", but not in Hifi's format: is this the address of a Hifi gateway?"
            )
            self.code, self.detail, self.pointer = "", says, ""
        if self.code and self.status in {401, 403}:
            says += (
                " Set a key with --api-key or HIFI_API_KEY; `hifi keys create --help` makes one."
            )
        super().__init__(says)
        is_missing = self.status == HTTPStatus.NOT_FOUND
        self.exit_code = (NotFoundError if is_missing else OperatorError).exit_code


class ControlClient:
    """The control API of one gateway, for one caller; `setting` names the gateway in errors."""

    def __init__(
        self, gateway: str, api_key: str | None, *, setting: str = "--gateway URL"
    ) -> None:
        self._setting = setting
        self._gateway = gateway.rstrip("/")
        self._headers = {} if not api_key else {"authorization": f"Bearer {api_key}"}
        self._etags: dict[tuple[str, ...], str] = {}
        self._new: set[tuple[str, ...]] = set()

    def call(
        self,
        method: str,
        *path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str | Sequence[str]] | None = None,
    ) -> dict[str, Any]:
        """Return the JSON answer of `/v1/` and the path; raise an error if it is not a success."""
        response = self.send(method, *path, body=body, query=query)
        return response.json() if response.content else {}

    def send(
        self,
        method: str,
        *path: str,
        body: dict[str, Any] | None = None,
        query: Mapping[str, str | Sequence[str]] | None = None,
        accept: str = "application/json",
    ) -> HttpAnswer:
        """Send a request like `call`, for answers that are not JSON objects."""
        headers = {**self._headers, "accept": accept}
        content = None
        if body is not None:
            content = _json(body)
            headers["content-type"] = "application/json"
        # An action such as `resume` changes the object above it in the path.
        changed = path[:-1] if method == "POST" else path
        if method != "GET" and (etag := self._etags.get(changed)):
            headers["if-match"] = etag
        if method != "GET" and changed in self._new:
            headers["if-none-match"] = "*"
        try:
            with HttpClient(self._gateway, timeout_s=_TIMEOUT_S) as server:
                response = server.ask(method, _place(path, query), headers=headers, body=content)
        except NoHttpAnswerError as error:
            raise NoAnswerError(
                f"No gateway answers at {self._gateway} ({error}):"
                f" start one with `hifi up`, or set another with {self._setting}."
            ) from error
        if not response.is_success:
            raise RefusedError(response)
        if method == "GET":
            self._etags[path] = response.headers.get("etag", "")
        return response

    def etag(self, *path: str) -> str:
        """Return the version of an object when it was last read; empty if it was not read."""
        return self._etags.get(path, "")

    def expect(self, etag: str, *path: str) -> None:
        """Let the next change of an object succeed only if it still has this ETag."""
        self._etags[path] = etag

    def expect_none(self, *path: str) -> None:
        """Let the next change of an object succeed only if it does not exist yet."""
        self._new.add(path)


def _place(path: Sequence[str], query: Mapping[str, str | Sequence[str]] | None) -> str:
    for name in path:
        if not name or "/" in name:
            raise UsageError(f"{name!r} is not a name{': it has a / in it' * bool(name)}.")
    # Send even bytes that are not text unchanged: the gateway reports what is wrong with them.
    names = (quote(part, safe="", errors="surrogateescape") for part in path)
    asked = f"?{urlencode(query, doseq=True, errors='surrogateescape')}" if query else ""
    return f"/v1/{'/'.join(names)}{asked}"


def _json(body: dict[str, Any]) -> bytes:
    try:
        text = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    except ValueError as error:
        raise UsageError("NaN and Infinity are not JSON: write a number.") from error
    return text.encode(errors="surrogateescape")
