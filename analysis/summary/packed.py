"""Several tables as the bytes of one cache entry: Arrow streams, one after the other."""

import pyarrow as pa


def packed_tables(*tables: pa.Table) -> bytes:
    """The tables as bytes that `unpacked` reads."""
    sink = pa.BufferOutputStream()
    for table in tables:
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
    return sink.getvalue().to_pybytes()


def unpacked(contents: bytes) -> list[pa.Table]:
    """The tables, in the order in which they were packed; their numbers are not copied."""
    source, tables = pa.BufferReader(contents), []
    while source.tell() < len(contents):
        tables.append(pa.ipc.open_stream(source).read_all())
    return tables
