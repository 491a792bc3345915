"""``txnlog schema``, and ``--schema`` of ``create-topic``: schemas of topics as those of other systems, and
back.
"""

from __future__ import annotations

import base64
import difflib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from txnformat.errors import InvalidInputError, NotFoundError
from txnlog.cli.options import TOPIC, FilePath, Place, with_place
from txnlog.cli.output import is_terminal, print_exact, print_json, say
from txnlog.cli.records.outputs import check_output, writing

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["ABOUT_A_FILE", "READ_FORMATS", "WAYS_TO_GROW", "schema", "schema_in", "with_schema_format"]

READ_FORMATS = ("avro", "json-schema", "protobuf", "arrow", "parquet", "spark", "ddl")
"""Forms of files that ``--schema-format`` names: the members of ``SchemaFormat``, whose module is imported
when it is needed."""
BINARY = ("arrow", "parquet")

ABOUT_A_FILE = "--schema-format and --message are about the file of --schema"
WAYS = "give kafka, or the path of a file with the columns: "
WAYS_TO_GROW = "give the path of a file with the columns: "


def with_schema_format(function: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command ``--schema-format`` and ``--message``."""
    function = click.option(
        "--message",
        metavar="NAME",
        help="Full name of the Protobuf message that has the columns, if the file has several.",
    )(function)
    return click.option(
        "--schema-format",
        type=click.Choice(READ_FORMATS),
        help="The form of the file of --schema, if its name does not say it.",
    )(function)


@click.command()
@click.argument("topic", type=TOPIC)
@with_place
@click.option(
    "--as",
    "format_",
    type=click.Choice(READ_FORMATS),
    default="ddl",
    show_default=True,
    help="The form: an Avro record, a JSON Schema of the rows, a .proto file, an Arrow stream or a "
    "Parquet file without rows, the JSON of a Spark StructType, or Spark's DDL.",
)
@click.option(
    "--output",
    "-o",
    type=FilePath(),
    help="A file to write; standard output by default.",
)
@click.option("--name", help="Name of the record or the message; the topic's by default.")
def schema(
    topic: str, place: Place, format_: str, output: Path | None, name: str | None, as_json: bool
) -> None:
    """Write the columns of TOPIC as a schema of another system.

    arrow, parquet, spark and ddl have every type of a topic; columns that avro, json-schema or protobuf do
    not have are named, and nothing is written.
    """
    from txnlog.schemas import export_schema

    is_binary = format_ in BINARY
    if is_binary and output is None and not as_json and is_terminal(sys.stdout):
        raise click.UsageError(f"{format_} is not text: give --output FILE, or redirect the output")
    if output is not None:
        check_output(output, whole=False)
    with place.open() as log:
        columns = log.state.topic(topic).schema
    data = export_schema(columns, format_, name=topic if name is None else name)
    if output is not None:
        with writing(output, whole=False) as file:
            file.write(data)
    if as_json:
        text = base64.b64encode(data).decode() if is_binary else data.decode()
        found = {"topic": topic, "schema_id": columns.schema_id, "format": format_}
        where = {"schema": text} if output is None else {"output": str(output), "bytes": len(data)}
        print_json(found | where)
    elif output is not None:
        say(f"{output}: {len(data):,} bytes")
    elif is_binary:
        sys.stdout.buffer.write(data)
    else:
        print_exact(data.decode().removesuffix("\n"))


def schema_in(text: str, format_: str | None, message: str | None, ways: str = WAYS) -> pa.Schema:
    """Return the schema that ``--schema`` names by a file. ``ways``: what else it may name, for hints. Raises
    NotFoundError ``no-file``; InvalidInputError: as of ``read_schema``.
    """
    from txnlog.schemas import read_schema
    from txnlog.schemas.formats import FILES

    try:
        return read_schema(Path(text), format_, message=message)
    except NotFoundError as error:
        near = difflib.get_close_matches(text.lower(), ["kafka"], n=1) if ways is WAYS else []
        raise NotFoundError(
            "there is no such file" + (", and no ready schema of this name" if ways is WAYS else ""),
            kind=error.kind,
            hint="did you mean 'kafka'?" if near else f"{ways}{FILES}",
            **error.values,
        ) from None
    except InvalidInputError as error:
        if error.kind != "invalid-file":
            raise
        raise InvalidInputError(error.what, kind=error.kind, hint=f"{ways}{FILES}", **error.values) from None
