"""The log as values: what an entry says, what a state is, and how one follows from the other. Pure.

Nothing here reads a clock, draws a random number, starts a thread or does IO; time, ids and bytes come in as
arguments. So the simulator, the conformance tests and real clients run the same code.

* ``operations`` declares each operation once, ``operation_codec`` turns it into JSON and back; ``entry`` is a
  link of the chain.
* ``state`` is the value that a log has after an entry. ``decide`` turns an intent (``intents``) and a state
  into operations or a rejection, ``assemble`` makes one entry of several intents, ``fold`` turns state and
  entry into the next state.
* ``preview`` says what a commit would decide now; callers outside the core ask nothing else for a decision.
* ``invariants`` checks every step without the fold: the second opinion. ``ownership`` says which files an
  operation may name.
* ``snapshot`` is a state as the bytes of one object, ``wire`` the bytes of documents, whatever they say.

Each concern has a package with the same floor plan, as far as it needs it: ``operations``, ``state``,
``fold``, ``decide``, ``invariants``. The tables in ``core.decide`` and ``core.fold`` name the function of
each action and operation; ``core.operations`` declares the operations of concerns without ``operations``.
``decide``, ``fold`` and ``invariants`` import the state, and the state imports the operations, never the
other way round.

May import: ``columns``, ``segments`` (payloads), ``store`` (types, sizes and documents), and the modules
beside the packages.
"""
