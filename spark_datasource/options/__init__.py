"""Options of ``format("txnlog")``: parsed once into plain values, documented in one place. Imports ``txnformat`` and, of ``worker``, where a log is."""
