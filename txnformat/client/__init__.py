"""Threads and real IO around the protocol.

``committer`` is group commit inside a process: threads hand in intents, one of them commits for all.
``driver`` performs effects. ``background`` runs what no caller waits for, ``create`` makes a log.

May import: ``protocol``, ``core`` and below.
"""
