"""The storage format and the commit protocol of txnlog: a pure core, and the thin shells around it."""
