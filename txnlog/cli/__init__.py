"""The command ``txnlog``: one module per family of commands. It does nothing that the library cannot.

* ``app`` puts the commands together, and is the one place where errors end. Start reading here.
* ``consume``, ``produce``, ``topics``, ``history``, ``dump``, ``transactions``, ``ending``, ``groups``,
  ``subscriptions``, ``maintain``, ``metrics``,
  ``verify`` and ``completion`` are commands; ``doctor``, ``erasure``, ``looking`` and ``views`` have rooms of
  their own, and ``records`` the formats of input and output.
* ``options`` declares the options that commands share; ``storage_file`` reads storage options from a file.
* ``failures`` turns errors into exit codes and clean messages; ``output`` and ``progress`` print for people
  and for programs.

Modules of this package import pyarrow, and what needs it, inside functions: help, completion and a mistyped
option answer at once. Nothing else of txnlog reads the environment or writes to the terminal.

May import: ``writers`` and ``txnformat``; ``spark_datasource`` inside a function of ``maintain`` only.
"""
