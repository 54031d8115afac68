"""Clients of object storages: `s3://`, `gs://` and `az://` by pyarrow, `hf://` by fsspec, set as the field sets them.

s3: AWS_PROFILE, AWS_ACCESS_KEY_ID and its companions, AWS_REGION, AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL (also as
endpoint_url of the profile). gs: GOOGLE_APPLICATION_CREDENTIALS, STORAGE_EMULATOR_HOST. az: AZURE_STORAGE_ACCOUNT,
AZURE_STORAGE_KEY, AZURE_STORAGE_SAS_TOKEN, AZURE_STORAGE_BLOB_AUTHORITY. hf: HF_TOKEN, HF_ENDPOINT.
RATIOSCOPE_ANONYMOUS=1 asks without credentials, RATIOSCOPE_STORAGE_TIMEOUT is how many seconds a silent answer takes.
"""

import configparser
import os
from contextlib import suppress
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any

from ratioscope.errors import MissingPackageError, RatioscopeError, first_line
from ratioscope.storage.failures import StorageError

SCHEMES = ("s3", "gs", "az", "hf")

# Repositories of these kinds say so in front of owner and name; models do not.
_KINDS_OF_REPOSITORY = ("datasets", "spaces", "buckets")

_DEFAULT_TIMEOUT = 20.0
_CONNECT_SECONDS = 5.0


def top(url: str) -> str:
    """The bucket, container or repository of a URL, itself as a URL: above it there is no folder."""
    scheme, _, path = url.partition("://")
    parts = path.split("/")
    names = 1 if scheme != "hf" else 3 if parts[0] in _KINDS_OF_REPOSITORY else 2
    return f"{scheme}://{'/'.join((parts + [''] * names)[:names])}"


def client(url: str) -> tuple[Any, str]:
    """The filesystem (`pyarrow.fs.FileSystem`) of a URL, and the path in it: bucket/key.

    Raises:
        RatioscopeError: a setting cannot be used, or a package is missing.
    """
    scheme, _, path = url.partition("://")
    if not all(top(url).partition("://")[2].split("/")):
        what, example = ("repository", "datasets/owner/name") if scheme == "hf" else ("bucket", "bucket")
        raise RatioscopeError(f"{url}: it names no {what}; write {scheme}://{example}/folder.")
    bucket = path.partition("/")[0]
    settings = tuple(sorted((key, value) for key, value in os.environ.items() if key.startswith(_SETTINGS)))
    try:
        # By process, too: a client does not outlive a fork.
        return _client(scheme, bucket if scheme == "s3" else "", settings, os.getpid()), path.rstrip("/")
    except RatioscopeError:
        raise
    except (OSError, ValueError) as error:
        raise StorageError(f"{url}: cannot be opened ({first_line(error)}).") from None


_SETTINGS = ("AWS_", "GOOGLE_", "STORAGE_EMULATOR", "AZURE_", "HF_", "RATIOSCOPE_ANONYMOUS", "RATIOSCOPE_STORAGE_")


@cache
def _client(scheme: str, bucket: str, settings: tuple[tuple[str, str], ...], process: int) -> Any:
    return {"s3": _s3, "gs": _gs, "az": _az, "hf": _hf}[scheme](bucket)


def timeout() -> float:
    """Seconds after which an answer that does not come is given up."""
    text = os.environ.get("RATIOSCOPE_STORAGE_TIMEOUT") or str(_DEFAULT_TIMEOUT)
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not seconds > 0:
        raise RatioscopeError(f"RATIOSCOPE_STORAGE_TIMEOUT must be a number of seconds, not {text!r}.")
    return seconds


def _anonymous() -> bool:
    said = os.environ.get("RATIOSCOPE_ANONYMOUS", "") or os.environ.get("AWS_NO_SIGN_REQUEST", "")
    return said.lower() in ("1", "true", "yes")


def _s3(bucket: str) -> Any:
    from pyarrow import fs

    profile = _aws_profile()
    endpoint = (
        os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL") or profile.get("endpoint_url")
    )
    region = os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION") or profile.get("region")
    if not region:
        region = "us-east-1"
        if not endpoint:
            with suppress(OSError):  # the first listing fails with the reason
                region = fs.resolve_s3_region(bucket)
    return fs.S3FileSystem(
        anonymous=_anonymous(),
        region=region,
        endpoint_override=endpoint,
        request_timeout=timeout(),
        connect_timeout=min(timeout(), _CONNECT_SECONDS),
        retry_strategy=fs.AwsStandardS3RetryStrategy(max_attempts=1),  # `failures.attempted` tries again
        background_writes=False,
        allow_delayed_open=True,  # a small file is one request
    )


def _aws_profile() -> dict[str, str]:
    """The settings of the chosen profile in AWS's configuration file."""
    name = os.environ.get("AWS_PROFILE") or os.environ.get("AWS_DEFAULT_PROFILE") or "default"
    parser = configparser.ConfigParser(interpolation=None)
    try:
        parser.read(Path(os.environ.get("AWS_CONFIG_FILE") or "~/.aws/config").expanduser())
    except (configparser.Error, UnicodeDecodeError):
        return {}
    section = name if name == "default" else f"profile {name}"
    return dict(parser[section]) if parser.has_section(section) else {}


def _gs(bucket: str) -> Any:
    from pyarrow import fs

    scheme, _, host = os.environ.get("STORAGE_EMULATOR_HOST", "").rpartition("://")
    return fs.GcsFileSystem(
        anonymous=_anonymous() or bool(host),
        scheme=scheme or ("http" if host else None),
        endpoint_override=host or None,
        retry_time_limit=timedelta(seconds=timeout()),
    )


def _az(bucket: str) -> Any:
    from pyarrow import fs

    account = os.environ.get("AZURE_STORAGE_ACCOUNT")
    if not account:
        raise RatioscopeError("az:// needs the name of the storage account in AZURE_STORAGE_ACCOUNT.")
    options = {
        "account_key": os.environ.get("AZURE_STORAGE_KEY"),
        "sas_token": os.environ.get("AZURE_STORAGE_SAS_TOKEN"),
    }
    scheme, _, authority = os.environ.get("AZURE_STORAGE_BLOB_AUTHORITY", "").rpartition("://")
    if authority:  # the client asks the data lake's side, too, whether folders are real there
        for side, address in (("blob", authority), ("dfs", authority.replace(".blob.", ".dfs."))):
            options |= {f"{side}_storage_authority": address, f"{side}_storage_scheme": scheme or "https"}
    return fs.AzureFileSystem(account, **{key: value for key, value in options.items() if value})


def _hf(bucket: str) -> Any:
    from pyarrow import PythonFile, fs

    try:
        from huggingface_hub import HfFileSystem
    except ModuleNotFoundError:
        raise MissingPackageError("hf:// needs huggingface_hub: pip install huggingface_hub fsspec") from None

    class Exact(fs.FSSpecHandler):  # type: ignore[misc]
        """Moves what is asked for; by default megabytes around it are read ahead."""

        def open_input_file(self, path: str) -> Any:
            return PythonFile(self.fs.open(path, mode="rb", cache_type="none"), mode="r")

    token = False if _anonymous() else None
    return fs.PyFileSystem(Exact(HfFileSystem(endpoint=os.environ.get("HF_ENDPOINT"), token=token)))
