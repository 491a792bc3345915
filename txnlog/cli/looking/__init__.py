"""The commands report and ui: a log as a file to look at, and as a page that follows it.

``command`` has both commands. ``server`` is the page's server, loaded by the command ui alone: it needs the
extra of that name (Starlette and uvicorn). ``service`` answers its questions without them: one window that
follows the log, and older ones, whatever asks.

Everything that they show is made by ``txnformat.looking``.

May import: ``txnformat``, and the modules of ``txnlog.cli`` that commands share.
"""
