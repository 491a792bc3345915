"""The log as values: what an entry says, what a state is, and how one follows from the other. Pure.

Nothing here reads a clock, draws a random number, starts a thread or does IO; time, ids and bytes come in as arguments. So the
simulator, the conformance tests and real clients run the same code.

* ``operations`` declares each operation once; ``operation_codec``, ``typed``, ``codec_fields`` and ``document`` turn bytes into them and back.
* ``entry`` and ``entry_bytes`` are the links of the chain; ``bundle`` joins a hundred of them; ``object_sizes`` is in ``store``.
* ``state`` is the value that a log has after an entry. ``decide`` turns an intent (``intents``) and a state into operations or a rejection,
  ``assemble`` makes one entry of several intents, ``fold`` turns state and entry into the next state.
* ``invariants`` checks every step without the fold: the second opinion. ``ownership`` says which files an operation may name.
* ``snapshot`` and ``snapshot_state`` write a state as the bytes of one object, and read it.

Each concern has a package with the same floor plan, as far as it needs it: ``operations``, ``state``, ``fold``, ``decide``, ``invariants``.
``decide``, ``fold`` and ``invariants`` import the state, and the state imports the operations, never the other way round.

May import: ``columns``, ``store`` (types and sizes only), and the modules beside the packages.
"""
