"""Logs in to Amazon MSK as an AWS identity: each token is a signed address (AWS_MSK_IAM).

For MSK's brokers this is the mechanism OAUTHBEARER. The AWS SDK finds the identity where its users
expect it: in variables, a profile, a web identity, or the role of the container or the machine.
"""

import base64
import re
from functools import cache

import botocore.session
from botocore.auth import SigV4QueryAuth
from botocore.awsrequest import AWSRequest
from botocore.exceptions import BotoCoreError, ClientError

from shared.runtime.kafka.logins.tokens import LoginTokens, NoTokenError

# MSK accepts no longer validity.
_VALID_S = 900
# A token also ends with the credentials that signed it. The SDK renews those ten minutes before
# their end, so a token that is replaced after a minute is always good. Signing needs no request.
_KEPT_S = 60.0
_REGION = re.compile(r"\.kafka(?:-serverless)?\.([a-z]+(?:-[a-z]+)+-[0-9]+)\.")


class MskTokens(LoginTokens):
    """Signs tokens for the brokers of a region."""

    def __init__(self, region: str) -> None:
        super().__init__()
        self._region = region
        self._session = botocore.session.get_session()

    def _fetched(self) -> tuple[str, float]:
        if not self._region:
            raise NoTokenError(
                "The address of Kafka names no AWS region, which a token for Amazon MSK needs:"
                " set AWS_REGION."
            )
        try:
            credentials = self._session.get_credentials()
            frozen = None if credentials is None else credentials.get_frozen_credentials()
        # ClientError: AWS does not let us have the role.
        except (BotoCoreError, ClientError) as error:
            raise NoTokenError(
                f"AWS gives this process no credentials ({error}): check its role or profile."
            ) from error
        if frozen is None:
            raise NoTokenError(
                "This process has no AWS credentials: give it a role or a profile, or set"
                " AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY."
            )
        host = f"kafka.{self._region}.amazonaws.com"
        request = AWSRequest("GET", f"https://{host}/", params={"Action": "kafka-cluster:Connect"})
        SigV4QueryAuth(frozen, "kafka-cluster", self._region, expires=_VALID_S).add_auth(request)
        signed = f"{request.url}&User-Agent=hifi".encode()
        return base64.urlsafe_b64encode(signed).rstrip(b"=").decode(), _KEPT_S


@cache
def tokens_for(region: str) -> MskTokens:
    """Return the source of tokens that all connections to a region share."""
    return MskTokens(region)


def region_in(bootstrap_servers: str) -> str:
    """Return the region in the names of MSK's brokers; empty if there is none."""
    match = _REGION.search(bootstrap_servers)
    return match[1] if match else ""
