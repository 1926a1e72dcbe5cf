"""The one HTTP transport under all Azure clients: one session, one retry policy, one count of requests.

The SDKs' own retries are switched off (``SDK_OPTIONS``), because they differ from package to package: that of Tables
repeats no POST whose connection broke, that of Storage begins with pauses of 15 s. Here every request is repeated
alike, reads and writes, after a failure that may pass. That is safe by the ports' contracts: a repeated send may
duplicate a message, a repeated conditional write may find itself done. Nothing above this module repeats a request for
such a reason, but for the SDK's download of a blob: it asks up to three times for a body that broke off. Below it aiohttp
sends a request other than a POST once more, at once and not counted here, when its connection ended before any answer.

An answer that does not come from the service at all (a log-in page, a proxy's own 404) is such a failure too: taken at its
word it would make a workflow look as if it were not there.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
import random
import ssl
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import aiohttp
from azure.core.exceptions import AzureError, ServiceResponseError
from azure.core.pipeline.transport import AioHttpTransport

LOG = logging.getLogger(__name__)

SDK_OPTIONS: dict[str, Any] = {"retry_total": 0, "logging_enable": False}

PASSING_STATUSES = frozenset({408, 429, 500, 502, 503, 504})
REQUEST_ID = "x-ms-request-id"  # in every answer of the service
NEVER_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError)

MAX_CONNECTIONS = 100  # per process; more only queue up inside the service
IDLE_CONNECTION_S = 30.0  # Azure closes idle connections after minutes
IDLE_CONNECTION_EMULATOR_S = 4.0  # Node closes them after 5 s, and a request that meets the closing is lost

request_kind: ContextVar[str] = ContextVar("request_kind", default="other")
"""What the requests of this context are counted as, such as ``table.get``; set by :class:`.errors.Edge`."""


class ForeignAnswerError(ServiceResponseError):
    """Somebody other than the service has answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryPolicy:
    """How long a request may take, and when it is sent again.

    A pause is ``first_pause_s`` doubled at each further failure up to ``max_pause_s``, less up to half of it at random,
    and never shorter than what the service's Retry-After asks for. No repetition begins after ``budget_s``, nor
    when the service asks for a pause beyond it: then the caller is told.
    """

    retries: int = 4
    connect_retries: int = 2  # of a request that never left: the service is away, and callers know how to wait
    first_pause_s: float = 0.4
    max_pause_s: float = 8.0
    budget_s: float = 45.0
    connection_timeout_s: float = 5.0
    read_timeout_s: float = 20.0  # without a byte
    attempt_timeout_s: float = 60.0  # catches what the two above do not: a slow name server, a trickling answer

    def pause_s(self, failures: int, *, advice_s: float | None, never_sent: bool, elapsed_s: float) -> float | None:
        """Seconds until the next attempt after so many failures (1-based); None to give up."""
        if failures > (self.connect_retries if never_sent else self.retries):
            return None
        pause_s = min(self.max_pause_s, self.first_pause_s * 2 ** (failures - 1)) * random.uniform(0.5, 1)
        pause_s = max(pause_s, advice_s or 0)
        return pause_s if elapsed_s + pause_s <= self.budget_s else None


class RetryingTransport(AioHttpTransport):  # type: ignore[misc]  # exported lazily, which mypy sees as Any
    """Sends requests over a session it does not own, repeats them by the policy, and counts each one sent."""

    def __init__(self, session: aiohttp.ClientSession, policy: RetryPolicy, *, requests: Counter[str]) -> None:
        super().__init__(
            session=session,
            session_owner=False,
            connection_timeout=policy.connection_timeout_s,
            read_timeout=policy.read_timeout_s,
        )
        self._policy = policy
        self._requests = requests
        self.clock_ahead_s: float | None = None
        """Seconds by which this machine's clock is ahead of the service's, by the Date of its last answer."""

    async def send(self, request: Any, **options: Any) -> Any:
        started = time.monotonic()
        failures = 0
        while True:
            outcome = await self._attempt(request, options)
            if not _may_pass(outcome):
                return _result(outcome)
            failures += 1
            pause_s = self._policy.pause_s(
                failures,
                advice_s=_advice_s(outcome),
                never_sent=_never_sent(outcome),
                elapsed_s=time.monotonic() - started,
            )
            if pause_s is None:
                return _result(outcome)
            LOG.debug("%s failed %d times, trying again in %.1f s", request_kind.get(), failures, pause_s)
            await asyncio.sleep(pause_s)

    async def _attempt(self, request: Any, options: Mapping[str, Any]) -> Any:
        """The response, or the error instead of one."""
        self._requests[request_kind.get()] += 1
        try:
            async with asyncio.timeout(self._policy.attempt_timeout_s):
                response = await super().send(request, **options)
                if options.get("stream") and response.status_code in PASSING_STATUSES:
                    await response.internal_response.read()  # so that its connection is free for the next attempt
        except (aiohttp.ClientError, TimeoutError) as error:
            return ServiceResponseError("no complete answer", error=error)
        except AzureError as error:
            return error
        if response.status_code not in PASSING_STATUSES and REQUEST_ID not in response.headers:
            response.internal_response.close()  # its body may have no end
            return ForeignAnswerError("an answer without a request id")
        self.clock_ahead_s = clock_ahead_s(response.headers, before=self.clock_ahead_s)
        return response


@asynccontextmanager
async def open_transport(
    policy: RetryPolicy, *, requests: Counter[str], emulator: bool, tls: ssl.SSLContext | None = None
) -> AsyncIterator[RetryingTransport]:
    """A transport with its own connections, closed at the end. ``tls``: whom to trust, None = the usual authorities."""
    connector = aiohttp.TCPConnector(
        limit=MAX_CONNECTIONS,
        keepalive_timeout=IDLE_CONNECTION_EMULATOR_S if emulator else IDLE_CONNECTION_S,
        ssl=tls or True,
    )
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        auto_decompress=False,
        trust_env=bool(urllib.request.getproxies()),  # otherwise two thread hops per request, to find no proxy
    ) as session:
        yield RetryingTransport(session, policy, requests=requests)


def retry_after_s(headers: Mapping[str, str], *, now: Callable[[], float] = time.time) -> float | None:
    """The pause a service asks for in its headers, in seconds; None when it asks for none."""
    for name, unit_s in (("retry-after-ms", 0.001), ("x-ms-retry-after-ms", 0.001), ("Retry-After", 1.0)):
        text = headers.get(name)
        if text:
            with suppress(ValueError):  # it may be a date
                return max(0.0, float(text) * unit_s)
            with suppress(ValueError):  # or nonsense, which asks for nothing
                return max(0.0, email.utils.parsedate_to_datetime(text).timestamp() - now())
    return None


def clock_ahead_s(
    headers: Mapping[str, str], *, before: float | None, now: Callable[[], float] = time.time
) -> float | None:
    """Seconds by which our clock is ahead of the answer's Date; ``before`` when it has none that can be read.

    The Date is cut to whole seconds, so half of one is added.
    """
    with suppress(KeyError, ValueError, TypeError):  # no Date, or one that is none: tells nothing
        return now() - (email.utils.parsedate_to_datetime(headers["Date"]).timestamp() + 0.5)
    return before


def _may_pass(outcome: Any) -> bool:
    return isinstance(outcome, AzureError) or outcome.status_code in PASSING_STATUSES


def _advice_s(outcome: Any) -> float | None:
    return None if isinstance(outcome, AzureError) else retry_after_s(outcome.headers)


def _never_sent(outcome: Any) -> bool:
    return isinstance(outcome, AzureError) and isinstance(outcome.inner_exception, NEVER_SENT)


def _result(outcome: Any) -> Any:
    if isinstance(outcome, AzureError):
        raise outcome
    return outcome
