"""Asks a token service for a token by client credentials (RFC 6749, 4.4), and reads its answer.

Others send the request: delivery for destinations, and Kafka's clients for their login.
"""

import base64
import json
import math
from urllib.parse import quote_plus, urlencode

# The share of a token's lifetime after which the next one is fetched (clocks and delays differ).
RENEW_AT = 0.8
# The wait after a failed fetch: more requests do not help a service that is down or refuses us.
PAUSE_S = 5.0
# The lifetime of a token if the service gives none (RFC 6749 only recommends that it does).
_LIFE_S = 300.0
# A token is replaced after a day, even if the service gives it a longer lifetime.
_LIFE_S_MAX = 86_400.0
_OK = 200


def token_request(client_id: str, secret: str, *, scope: str) -> tuple[dict[str, str], bytes]:
    """Return headers and body of the request."""
    credentials = f"{quote_plus(client_id)}:{quote_plus(secret)}"
    headers = {
        "content-type": "application/x-www-form-urlencoded",
        "accept": "application/json",
        "authorization": "Basic " + base64.b64encode(credentials.encode()).decode(),
    }
    form = {"grant_type": "client_credentials"} | ({"scope": scope} if scope else {})
    return headers, urlencode(form).encode()


def token_in(status: int, body: bytes) -> tuple[str, float]:
    """Return the token in the service's answer, and its lifetime; ValueError if there is none."""
    if status != _OK:
        raise ValueError(f"the token service answers {status}")
    try:
        fields = json.loads(body)
        token, life_s = fields["access_token"], float(fields.get("expires_in") or _LIFE_S)
    except (
        ArithmeticError,
        KeyError,
        ValueError,
        TypeError,
        AttributeError,
        RecursionError,
    ) as error:
        raise ValueError("the token service's answer has no token") from error
    is_text = isinstance(token, str) and token.isascii() and token.isprintable()
    if not is_text or not token or math.isnan(life_s):
        raise ValueError("the token service's answer has no valid token")
    return token, min(max(life_s, 1.0), _LIFE_S_MAX)
