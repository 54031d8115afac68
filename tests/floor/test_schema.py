"""The run format as declared: file names, checks that fail in one clear sentence, and its own description."""

from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ratioscope import RunFormatError
from ratioscope.run_format import schema
from ratioscope.run_format.schema import (
    MESSAGES,
    OCCASIONAL_TABLES,
    PROBES,
    SEQUENCES,
    STEPS,
    TABLES,
    TOKENS,
    VOCABULARY,
    FileName,
    check,
    check_version,
    describe,
)

EVERY_TABLE = (TOKENS, SEQUENCES, STEPS, PROBES, MESSAGES, VOCABULARY)


def whole(table: schema.DeclaredTable) -> pa.Schema:
    return pa.schema([(column.name, column.type) for column in table.columns])


def message(table: schema.DeclaredTable, found: pa.Schema) -> str:
    with pytest.raises(RunFormatError) as caught:
        check(table, found, Path("runs/a/tokens/000000-000000-w0.parquet"))
    return str(caught.value)


def is_one_sentence(text: str) -> bool:
    return "\n" not in text and text.endswith(".") and ". " not in text


@pytest.mark.parametrize("table", EVERY_TABLE, ids=lambda table: table.name)
def test_the_declared_columns_pass_their_own_check(table: schema.DeclaredTable) -> None:
    check(table, whole(table), "here")
    only_required = pa.schema([(column.name, column.type) for column in table.required])
    check(table, only_required.append(pa.field("something_else", pa.binary())), "here")


@pytest.mark.parametrize(
    ("table", "column"), [(table, column) for table in EVERY_TABLE for column in table.required], ids=str
)
def test_a_missing_required_column_is_one_clear_sentence(table: schema.DeclaredTable, column: schema.Column) -> None:
    found = whole(table)
    text = message(table, found.remove(found.get_field_index(column.name)))
    assert is_one_sentence(text)
    assert text.startswith("runs/a/tokens/000000-000000-w0.parquet: ")
    assert f"the {table.name} table lacks the required column {column.name}." in text


def test_several_missing_columns_are_named_together() -> None:
    text = message(TOKENS, pa.schema([("token_id", pa.int32())]))
    assert "lacks the required columns step, seq_id, position." in text


@pytest.mark.parametrize("table", EVERY_TABLE, ids=lambda table: table.name)
def test_a_wrong_type_is_one_clear_sentence(table: schema.DeclaredTable) -> None:
    for place, column in enumerate(table.columns):
        text = message(table, whole(table).set(place, pa.field(column.name, pa.list_(pa.int32()))))
        assert is_one_sentence(text)
        assert f"column {column.name} of the {table.name} table is list<" in text
        assert text.endswith(f"it must be {column.type}.")


@pytest.mark.parametrize(
    ("column", "kind", "fits"),
    [
        ("logp_current", pa.float64(), True),
        ("logp_current", pa.float16(), True),
        ("logp_current", pa.int32(), False),
        ("step", pa.int64(), True),
        ("step", pa.float32(), False),
        ("clipped", pa.int8(), False),
        ("entropy", pa.null(), True),
        ("entropy", pa.string(), False),
    ],
)
def test_any_width_of_the_same_kind_of_number_will_do(column: str, kind: pa.DataType, fits: bool) -> None:
    found = whole(TOKENS)
    found = found.set(found.get_field_index(column), pa.field(column, kind))
    if fits:
        check(TOKENS, found, "here")
    else:
        assert column in message(TOKENS, found)


@pytest.mark.parametrize("kind", [pa.large_string(), pa.dictionary(pa.int32(), pa.string()), pa.null()])
def test_any_kind_of_text_will_do(kind: pa.DataType) -> None:
    found = whole(SEQUENCES)
    check(SEQUENCES, found.set(found.get_field_index("prompt"), pa.field("prompt", kind)), "here")


@pytest.mark.parametrize("version", ["1.0", "1.1", "1.2", "1.7", "0.3", "1"])
def test_this_and_older_major_versions_are_read(version: str) -> None:
    check_version(version, "here")


@pytest.mark.parametrize("version", ["2.0", "10.1", "2"])
def test_a_newer_major_version_is_one_clear_sentence(version: str) -> None:
    with pytest.raises(RunFormatError) as caught:
        check_version(version, "runs/a/run.json")
    assert str(caught.value) == (
        f"runs/a/run.json: written in run format {version}, this ratioscope reads up to 1.2; upgrade ratioscope."
    )


@given(st.text())
def test_a_version_of_any_text_is_read_or_refused_in_one_sentence(version: str) -> None:
    try:
        check_version(version, "here")
    except RunFormatError as error:
        assert str(error).startswith("here: ")


ranges = st.tuples(st.integers(0, 10**9), st.integers(0, 10**9)).map(sorted)
names = st.builds(lambda ends, writer: FileName(*ends, writer), ranges, st.integers(0, 10**4))


@given(names)
def test_a_file_name_says_what_it_was_made_of(name: FileName) -> None:
    assert FileName.parse(str(name)) == name
    assert str(name).endswith(".parquet")


@given(names, names)
def test_file_names_sort_by_step_then_writer(one: FileName, other: FileName) -> None:
    numbers = [(name.first_step, name.last_step, name.writer) for name in (one, other)]
    assert (one < other) == (numbers[0] < numbers[1])


@given(st.text())
def test_foreign_names_are_no_file_names(text: str) -> None:
    parsed = FileName.parse(text)
    assert parsed is None or str(parsed) == text


@pytest.mark.parametrize(
    "text",
    [
        "000000-000001-w0.tmp-12", "000000-000001-w0.parquet.tmp-12", "000000-000001.parquet", "part-0.parquet",
        "000000-000001-w0.parquet\n", "-00001-000001-w0.parquet", "", "000000-000001-w0.PARQUET",
    ],
)  # fmt: skip
def test_temporary_and_foreign_names_are_not_read(text: str) -> None:
    assert FileName.parse(text) is None


def test_the_description_lists_every_column_with_its_type_and_meaning() -> None:
    text = describe()
    for table in EVERY_TABLE:
        assert f"{table.name}: {table.grain}" in text
        for column in table.columns:
            lines = [line for line in text.splitlines() if line.split()[:1] == [column.name]]
            assert any(str(column.type) in line and column.meaning in line for line in lines), column.name
    assert f"Run format {schema.SCHEMA_VERSION}" in text


def test_keys_are_required_columns_and_names_are_unique() -> None:
    for table in EVERY_TABLE:
        columns = [column.name for column in table.columns]
        assert len(set(columns)) == len(columns)
        assert set(table.key) <= {column.name for column in table.required}
    assert set(TABLES) == {"tokens", "sequences", "steps"}
    assert set(OCCASIONAL_TABLES) == {"probes", "messages"}


def test_every_term_of_a_probe_has_a_standard_error() -> None:
    terms = {"gradient_norm_squared", "gradient_dot_bias", "bias_norm_squared", "variance", "cosine", "rescaling"}
    names = {column.name for column in PROBES.columns}
    assert names == {"step", "estimator", "batches", "seconds"} | terms | {f"{term}_se" for term in terms}
