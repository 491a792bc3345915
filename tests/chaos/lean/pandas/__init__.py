"""Says that there is no pandas, which pyarrow would import in every Python that Spark starts: a quarter of
what they cost."""

raise ImportError("left out of these tests")
