"""A log to look at: its transactions over offsets and over time, as data and as one page of HTML.

* ``timeline`` is the way in: it reads the entries of a window, and returns a Timeline. Start reading here.
* ``model`` declares the document that the page draws; ``collecting`` makes it out of folded entries. Both are
  pure.
* ``past`` finds the state after an old entry: steps without IO.
* ``ending`` names the command that ends a transaction; ``costs`` turns entries into requests and dollars.
* ``page`` puts document, style and script into one file that fetches nothing.

May import: ``admin``, ``client``, ``protocol``, ``core`` and below.
"""
