"""What goes wrong with an object storage: tried again where that may help, then one sentence.

attempted("s3://bucket/runs", lambda: filesystem.get_file_info(...))
"""

import random
import re
import time
from collections.abc import Callable
from typing import TypeVar

from ratioscope.errors import RatioscopeError

T = TypeVar("T")

# Seconds between attempts, each varied by a half so that many readers do not come back at once.
WAITS = (0.2, 0.8, 3.0)

_TOLD = re.compile(r"StorageError: (.+)")
_NO_BUCKET = re.compile(r"NO_SUCH_BUCKET|NoSuchBucket|ContainerNotFound|bucket does not exist", re.IGNORECASE)
_REFUSED = re.compile(
    r"ACCESS_DENIED|INVALID_ACCESS_KEY_ID|SIGNATURE_DOES_NOT_MATCH|EXPIRED_TOKEN|INVALID_CLIENT_TOKEN_ID|"
    r"UNRECOGNIZED_CLIENT|ExpiredToken|PERMISSION_DENIED|UNAUTHENTICATED|PermissionDenied|Unauthenticated|"
    r"AuthorizationFailure|AuthenticationFailed|HTTP status 40[13]|\b40[13] (?:Forbidden|Unauthorized|Client)|"
    r"credentials?\b",
    re.IGNORECASE,
)
_INVALID = re.compile(r"INVALID_BUCKET_NAME|InvalidBucketName|bucket is not valid|HTTP status 400", re.IGNORECASE)
_ACCESS = {
    "s3": "AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY",
    "gs": "GOOGLE_APPLICATION_CREDENTIALS",
    "az": "AZURE_STORAGE_ACCOUNT with AZURE_STORAGE_KEY or AZURE_STORAGE_SAS_TOKEN",
    "hf": "HF_TOKEN",
}
_ENDPOINTS = {
    "s3": "AWS_ENDPOINT_URL",
    "gs": "STORAGE_EMULATOR_HOST",
    "az": "AZURE_STORAGE_BLOB_AUTHORITY",
    "hf": "HF_ENDPOINT",
}


class StorageError(RatioscopeError):
    """An object storage did not do what it was asked to."""


def storage_failure(error: Exception) -> StorageError | None:
    """What the storage said, of an error of a program that passes a reader's on as text."""
    told = _TOLD.search(str(error))
    return StorageError(told[1].strip()) if told else None


class Truncated(OSError):
    """An answer had fewer bytes than were asked for."""


def attempted(url: str, action: Callable[[], T]) -> T:
    """What the action returns; a failure that may pass is tried again.

    Args:
        url: what it is about, for the sentence.

    Raises:
        FileNotFoundError: there is no such object.
        StorageError: it does not work, and why.
    """
    # pyarrow's ArrowInvalid is a ValueError; the client of hf:// lets errors of the HTTP library through that it uses.
    failures = (Exception,) if url.startswith("hf://") else (OSError, ValueError)
    for wait in (*WAITS, None):
        try:
            return action()
        except FileNotFoundError:
            raise
        except failures as error:
            said = _final(url, str(error))
            if said or wait is None:
                raise StorageError(said or _unanswered(url, str(error))) from None
        time.sleep(wait * random.uniform(0.5, 1.5))
    raise AssertionError("not reached")


def no_such_top(url: str) -> StorageError:
    """The error where the bucket or repository of a URL is not there."""
    scheme, _, path = url.partition("://")
    if scheme == "hf":
        return StorageError(f"{url}: there is no such repository, or it is not public: check its name and HF_TOKEN.")
    bucket = path.partition("/")[0]
    return StorageError(f"{url}: there is no bucket {bucket}; check its name and {_ENDPOINTS[scheme]}.")


def _final(url: str, reason: str) -> str:
    """The sentence for what no other attempt will change; empty for what one may."""
    scheme = url.partition("://")[0]
    if _NO_BUCKET.search(reason):
        return str(no_such_top(url))
    if _REFUSED.search(reason):
        return (
            f"{url}: the storage refuses access; check {_ACCESS[scheme]}, or set RATIOSCOPE_ANONYMOUS=1 for a public "
            "bucket."
        )
    if _INVALID.search(reason):
        return f"{url}: the storage does not take this name ({_short(reason)}); write {scheme}://bucket/folder."
    return ""


def _unanswered(url: str, reason: str) -> str:
    endpoint = _ENDPOINTS[url.split("://")[0]]
    return (
        f"{url}: the storage did not answer in {len(WAITS) + 1} attempts ({_short(reason)}); check the network and "
        f"{endpoint}, then try again."
    )


def _short(reason: str) -> str:
    """The telling part of what a client library says."""
    for pattern in (r"HTTP status \d+", r"curlCode: \d+, ([^;]+)", r"AWS Error [A-Z_]+"):
        if found := re.search(pattern, reason):
            return found.group(found.lastindex or 0)
    return (reason.splitlines() or ["no reason given"])[0][:120].rstrip(". ")
