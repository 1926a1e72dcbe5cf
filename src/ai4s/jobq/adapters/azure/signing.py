"""The policies that prove to Azure Tables who sends a transaction; the SDK has such ones, but keeps them private."""

from __future__ import annotations

import base64
import hashlib
import hmac
from email.utils import formatdate
from typing import Any
from urllib.parse import urlsplit

from azure.core.credentials import AzureNamedKeyCredential
from azure.core.credentials_async import AsyncTokenCredential
from azure.core.pipeline import AsyncPipeline, PipelineRequest
from azure.core.pipeline.policies import AsyncBearerTokenCredentialPolicy, SansIOHTTPPolicy
from azure.core.pipeline.transport import AsyncHttpTransport
from azure.core.rest import HttpRequest

STORAGE_SCOPE = "https://storage.azure.com/.default"


class SharedKeyLitePolicy(SansIOHTTPPolicy[HttpRequest, Any]):
    """Signs with the account's key
    (https://learn.microsoft.com/rest/api/storageservices/authorize-with-shared-key, read 2026-11)."""

    def __init__(self, key: AzureNamedKeyCredential) -> None:
        super().__init__()
        self._key = key

    def on_request(self, request: PipelineRequest[HttpRequest]) -> None:
        account, key = self._key.named_key
        date = formatdate(usegmt=True)
        path = urlsplit(request.http_request.url).path
        digest = hmac.digest(base64.b64decode(key), f"{date}\n/{account}{path}".encode(), hashlib.sha256)
        request.http_request.headers["x-ms-date"] = date
        request.http_request.headers["Authorization"] = f"SharedKeyLite {account}:{base64.b64encode(digest).decode()}"


def signing_pipeline(
    transport: AsyncHttpTransport[HttpRequest, Any], credential: AzureNamedKeyCredential | AsyncTokenCredential
) -> AsyncPipeline[HttpRequest, Any]:
    """A pipeline of nothing but proof and transport."""
    policy = (
        SharedKeyLitePolicy(credential)
        if isinstance(credential, AzureNamedKeyCredential)
        else AsyncBearerTokenCredentialPolicy(credential, STORAGE_SCOPE)
    )
    return AsyncPipeline(transport, policies=[policy])
