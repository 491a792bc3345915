"""State that a Python worker of Spark keeps between calls: logs on the driver's side, stores on an executor, a quiet garbage collector."""
