"""The tests remove the files that a killed Spark leaves behind."""

from __future__ import annotations

import tempfile
from pathlib import Path

from pyspark.sql import SparkSession


def test_artifacts_sockets_and_libraries_of_spark_are_in_a_directory_that_goes(spark: SparkSession) -> None:
    """Its sessions make folders for artifacts, its Python workers sockets, and its compression a library."""
    assert spark.range(3).repartition(2).mapInPandas(lambda parts: parts, "id long").count() == 3
    folder = Path(tempfile.gettempdir())
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    assert jvm.java.lang.System.getProperty("java.io.tmpdir") == str(folder)
    names = [path.name for path in folder.iterdir()]
    assert [name for name in names if name.startswith("artifacts-")]
    assert [name for name in names if name.startswith("liblz4-java")]
