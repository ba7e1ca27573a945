"""Sealing with AWS KMS: each secret has its own data key, which only KMS can unwrap.

The secret itself never leaves this process. The purpose is the encryption context, so a wrapped key is useless for
anything else, and the AWS audit trail records each unwrapping with its purpose.
"""

import base64
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import aiohttp
import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from postroom.errors import ConfigurationError
from postroom.runtime.aws import CredentialSource, sign
from postroom.runtime.secrets import does_not_open
from postroom.senders.seal import decoded, split

_NONCE = 12  # bytes (AES-GCM, NIST SP 800-38D)
_TIMEOUT_S = 10.0  # KMS responds within milliseconds; a claim waits for it
_OK = 200  # HTTP status


@dataclass(frozen=True, slots=True, kw_only=True)
class KmsSealer:
    """Seals with one AWS KMS key; opens secrets sealed with any key of that account."""

    key_id: str
    region: str
    credentials: CredentialSource
    endpoint_url: str | None = None  # absent: that of the region
    scheme: str = "kms"

    async def seal(self, secret: bytes, *, purpose: str) -> tuple[str, str]:
        answer = await self._ask("GenerateDataKey", {"KeyId": self.key_id, "KeySpec": "AES_256"}, purpose)
        nonce = secrets.token_bytes(_NONCE)
        key = AESGCM(base64.b64decode(answer["Plaintext"]))
        data = base64.b64encode(nonce + key.encrypt(nonce, secret, purpose.encode())).decode()
        return answer["KeyId"], f"{self.scheme}:{answer['KeyId']}:{answer['CiphertextBlob']}:{data}"

    async def open(self, text: str, *, purpose: str) -> bytes:
        _, key_id, wrapped, data = split(text, 4)
        answer = await self._ask("Decrypt", {"KeyId": key_id, "CiphertextBlob": wrapped}, purpose)
        sealed = decoded(data)
        try:
            return AESGCM(base64.b64decode(answer["Plaintext"])).decrypt(
                sealed[:_NONCE], sealed[_NONCE:], purpose.encode()
            )
        except InvalidTag as error:
            raise does_not_open(purpose) from error

    async def _ask(self, action: str, question: dict[str, Any], purpose: str) -> dict[str, Any]:
        """Make one call of the JSON API. Errors repeat only the code of KMS: its texts may contain the request."""
        url = self.endpoint_url or f"https://kms.{self.region}.amazonaws.com"
        body = msgspec.json.encode({**question, "EncryptionContext": {"purpose": purpose}})
        headers = {"Content-Type": "application/x-amz-json-1.1", "X-Amz-Target": f"TrentService.{action}"}
        headers |= sign(
            "POST",
            f"{url}/",
            headers,
            body,
            credentials=await self.credentials.current(),
            region=self.region,
            service="kms",
            now=datetime.now(UTC),
        )
        try:
            async with (
                aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_TIMEOUT_S), trust_env=False) as session,
                session.post(f"{url}/", data=body, headers=headers, allow_redirects=False) as response,
            ):
                status, said = response.status, await response.read()
        except (aiohttp.ClientError, OSError, TimeoutError) as error:
            raise ConfigurationError(f"AWS KMS cannot be reached: {type(error).__name__}.") from error
        return _answer(status, said)


def _answer(status: int, said: bytes) -> dict[str, Any]:
    try:
        answer = msgspec.json.decode(said, type=dict[str, Any])
    except msgspec.MsgspecError:
        answer = {}
    if status != _OK:
        kind = str(answer.get("__type", "")).rpartition("#")[2] or f"status {status}"
        raise ConfigurationError(f"AWS KMS rejected the request: {kind}.")
    return answer
