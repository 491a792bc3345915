"""The test kit that ships: store conformance, the deterministic simulator, reference models, strategies."""
