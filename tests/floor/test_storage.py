"""Paths that are URLs: against a storage on this machine, which also fails."""

import pickle
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import fs

from ratioscope.errors import RatioscopeError
from ratioscope.storage import listings
from ratioscope.storage.clients import client
from ratioscope.storage.failures import StorageError
from ratioscope.storage.parquet import fetch_footers, footer, read_schema, read_table
from ratioscope.storage.places import Remote, place, scan, scan_below
from tests import object_storage
from tests.object_storage import Storage, forget_all

ROOT = "s3://bucket/room"


@pytest.fixture(scope="module")
def served() -> Iterator[Storage]:
    with object_storage.serving() as storage:
        yield storage


@pytest.fixture
def storage(served: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Storage:
    object_storage.configure(served, monkeypatch, tmp_path / "cache")
    return served


def test_a_path_is_a_path_and_a_url_stays_one() -> None:
    for local in ("runs/mine", "/tmp/x", ".", "a:b/c"):
        assert place(local) == Path(local) and not isinstance(place(local), Remote)
    assert place("file:///tmp/x") == Path("/tmp/x")
    url = place("s3://bucket/runs/")
    assert isinstance(url, Remote) and str(url) == "s3://bucket/runs"
    assert place(Path("s3://bucket/runs")) == url  # as a command line's Path keeps it
    assert place(url) is url
    assert str(url / "a" / "run.json") == "s3://bucket/runs/a/run.json"
    assert str((url / "a").parent) == str(url) and (url / "a").name == "a"
    assert (url / "a" / "b").relative_to(url).as_posix() == "a/b"
    assert pickle.loads(pickle.dumps(url)) == url and hash(url) == hash(place(str(url)))
    assert str(url.resolve()) == str(url.absolute()) == str(url)
    assert str(url.with_name("b")) == "s3://bucket/b"
    assert {str(place(f"{scheme}://x/y")) for scheme in ("gs", "az", "hf")} == {"gs://x/y", "az://x/y", "hf://x/y"}


@pytest.mark.parametrize(
    ("url", "said"),
    [("https://host/runs", "there are s3://, gs://, az://, hf:// and folders"), ("ftp://host/x", "cannot be used")],
)
def test_other_addresses_are_refused(url: str, said: str) -> None:
    with pytest.raises(RatioscopeError, match=said):
        place(url)


def test_objects_are_written_listed_read_and_removed(storage: Storage) -> None:
    root = place(ROOT)
    assert not root.exists() and not root.is_dir() and place("s3://bucket").is_dir()
    (root / "a" / "run.json").write_text("{}")
    (root / "a" / "tokens" / "x.bin").write_bytes(b"0123456789")
    assert [(child.name, child.is_dir, child.is_file) for child in scan(root / "a")] == [
        ("run.json", False, True),
        ("tokens", True, False),
    ]
    assert (root / "a" / "run.json").read_text() == "{}"
    assert (root / "a" / "tokens" / "x.bin").stat().st_size == 10
    assert (root / "a").is_dir() and not (root / "a").is_file() and (root / "a" / "run.json").is_file()
    assert [path.name for path in root.glob("*/run.json")] == ["run.json"]
    with (root / "a" / "tokens" / "x.bin").open("rb") as file:
        file.seek(-4, 2)
        assert file.read(2) == b"67" and file.read() == b"89"
    (root / "a" / "run.json").unlink()
    assert not (root / "a" / "run.json").exists()
    (root / "a" / "run.json").unlink(missing_ok=True)
    with pytest.raises(FileNotFoundError):
        (root / "a" / "run.json").read_bytes()
    with pytest.raises(FileNotFoundError):
        scan(root / "none")


def test_a_tree_is_one_listing(storage: Storage) -> None:
    root = place(f"{ROOT}/tree")
    for name in ("tokens/1", "tokens/2", "steps/1", "run.json"):
        root.joinpath(name).write_bytes(b"x")
    storage.reset()
    scan_below(root)
    assert [child.name for child in scan(root / "tokens")] == ["1", "2"]
    assert (root / "run.json").is_file() and not (root / "probes").is_dir() and (root / "steps" / "1").exists()
    assert storage.requests == {"list": 1}


@pytest.fixture
def table(storage: Storage) -> Path:
    """Eight columns of noise in four row groups; nothing compresses, so a column chunk has 160 kB."""
    noise = np.random.default_rng(0)
    columns = {f"column{i}": noise.standard_normal(80_000) for i in range(8)}
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink, row_group_size=20_000, compression="none", use_dictionary=False)
    path = place(f"{ROOT}/table.parquet")
    path.write_bytes(sink.getvalue().to_pybytes())
    storage.reset()
    return path


def test_bytes_moved_are_those_of_the_columns_and_row_groups(table: Path, storage: Storage) -> None:
    found = footer(table)
    assert found.num_rows == 80_000 and read_schema(table).names == found.schema.names
    assert storage.bytes_read <= 16_384 and storage.requests == {"head": 2, "get": 1}
    needed = sum(found.row_group(group).column(3).total_compressed_size for group in range(4))
    storage.reset()
    column = read_table(table, ["column3"])
    assert column.num_rows == 80_000
    assert needed <= storage.bytes_read <= needed + 1000
    forget_all()  # another process
    storage.reset()
    assert read_table(table, ["column3"]).equals(column)
    assert storage.bytes_read == 0
    assert read_table(table).num_columns == 8
    assert storage.bytes_read <= table.stat().st_size - needed
    forget_all()
    storage.reset()
    with table.open("rb") as file:
        group = pq.ParquetFile(file).read_row_group(2, columns=["column1"])
    assert group.num_rows == 20_000 and storage.bytes_read == 0


def test_a_changed_object_is_read_anew(storage: Storage) -> None:
    path = place(f"{ROOT}/changes.bin")
    path.write_bytes(b"before")
    assert path.open("rb").read() == b"before"
    path.write_bytes(b"after..")
    assert path.open("rb").read() == b"after.."


@pytest.mark.parametrize("failure", ["503", "truncated"])
def test_what_may_pass_is_tried_again(table: Path, storage: Storage, failure: str) -> None:
    storage.failures += [failure]
    assert [child.name for child in scan(table.parent) if child.name == table.name]
    storage.failures += ["", failure]  # the size is asked for, then the bytes
    fetch_footers([table])
    storage.failures += [failure]
    assert read_table(table, ["column1"]).num_rows == 80_000
    storage.failures += [failure]
    (table.parent / "new").write_bytes(b"new")
    assert (table.parent / "new").read_bytes() == b"new"


@pytest.mark.parametrize(
    ("url", "failures", "said"),
    [
        (
            "s3://nobucket/runs",
            [],
            "s3://nobucket/runs: there is no bucket nobucket; check its name and AWS_ENDPOINT_URL.",
        ),
        (ROOT, ["403"], f"{ROOT}: the storage refuses access; check AWS_PROFILE, or AWS_ACCESS_KEY_ID"),
        (
            ROOT,
            ["503"] * 4,
            rf"{ROOT}: the storage did not answer in 4 attempts \(HTTP status 503\); check",
        ),
        ("s3://", [], "it names no bucket; write s3://bucket/folder"),
        ("az://box/runs", [], "AZURE_STORAGE_ACCOUNT"),
    ],
)
def test_what_stays_is_one_sentence(storage: Storage, url: str, failures: list[str], said: str) -> None:
    storage.failures += failures
    with pytest.raises(RatioscopeError, match=said) as caught:
        scan(place(url))
    assert str(caught.value).count("\n") == 0
    with pytest.raises(RatioscopeError):
        storage.failures += failures
        (place(url) / "x").write_bytes(b"x")
    storage.failures.clear()


def test_silence_is_waited_out_and_then_told(table: Path, storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RATIOSCOPE_STORAGE_TIMEOUT", str(object_storage.SILENT_SECONDS / 2))
    monkeypatch.setattr("ratioscope.storage.failures.WAITS", (0.0,))
    storage.failures += ["", "silent"]
    assert read_table(table, ["column1"]).num_rows == 80_000
    storage.failures += ["silent"] * 2
    with pytest.raises(StorageError, match=r"did not answer in 2 attempts \(Timeout was reached\)"):
        (table.parent / "run.json").read_bytes()


def test_a_storage_that_is_not_there(storage: Storage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StorageError, match=r"Could not connect to server.*AWS_ENDPOINT_URL"):
        place("s3://bucket/x").read_bytes()


def test_another_endpoint_of_azure_is_its_data_lake_too(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client asked Microsoft's whether folders are real, and every answer of an own endpoint was in vain."""
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT", "account")
    monkeypatch.setenv("AZURE_STORAGE_KEY", "a2V5")
    for given, asked in (
        ("http://127.0.0.1:10000", {("127.0.0.1:10000", "http")}),
        (".blob.core.example", {(".blob.core.example", "https"), (".dfs.core.example", "https")}),
    ):
        monkeypatch.setenv("AZURE_STORAGE_BLOB_AUTHORITY", given)
        settings = client("az://box/runs")[0].__reduce__()[1][0]
        sides = {
            tuple(settings[f"{side}_storage_{what}"] for what in ("authority", "scheme")) for side in ("blob", "dfs")
        }
        assert sides == asked


def test_an_endpoint_may_stand_in_a_profile(storage: Storage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    endpoint = f"http://127.0.0.1:{storage.port}"
    (tmp_path / "config").write_text(f"[profile lab]\nregion = us-east-1\nendpoint_url = {endpoint}\n")
    for name in ("AWS_ENDPOINT_URL", "AWS_REGION", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_PROFILE", "lab")
    monkeypatch.setenv("RATIOSCOPE_ANONYMOUS", "1")
    assert place("s3://bucket").is_dir()
    assert storage.requests["list"] == 1


@pytest.mark.parametrize(
    ("given", "region"),
    [
        ({"AWS_REGION": "eu-west-1", "AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-1"),
        ({"AWS_DEFAULT_REGION": "eu-west-2"}, "eu-west-2"),
        ({}, "us-east-1"),
    ],
)
def test_a_region_that_is_set_is_used(
    storage: Storage, monkeypatch: pytest.MonkeyPatch, given: dict[str, str], region: str
) -> None:
    monkeypatch.delenv("AWS_REGION")
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    assert client("s3://bucket")[0].region == region


def test_folders_of_a_storage_that_lists_objects_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As pyarrow does of gs://: nothing is said of a folder, in whatever way is asked."""
    names = ("bucket/runs/a/run.json", "bucket/runs/a/tokens/1.parquet", "bucket/runs/b/deep/er/run.json")

    class Flat:
        def get_file_info(self, asked: fs.FileSelector) -> list[fs.FileInfo]:
            inside = [name for name in names if name.startswith(f"{asked.base_dir}/")]
            direct = [name for name in inside if "/" not in name[len(asked.base_dir) + 1 :]]
            return [fs.FileInfo(name, fs.FileType.File, size=1) for name in (inside if asked.recursive else direct)]

    monkeypatch.setattr(listings, "client", lambda url: (Flat(), url.removeprefix("gs://")))
    object_storage.forget_all()
    root = place("gs://bucket/runs")
    assert [path.name for path in root.iterdir()] == ["a", "b"]
    assert [path.name for path in (root / "a").iterdir()] == ["run.json", "tokens"]
    assert (root / "b" / "deep").is_dir() and (root / "a" / "tokens").stat() and not (root / "c").exists()
