"""The command ``txnlog``: one module per family of commands.

Modules of this package import pyarrow, and what needs it, inside functions: help, completion and a mistyped option
answer at once. ``app`` puts the commands together, ``failures`` turns errors into exit codes and clean messages,
``output`` prints for people and for programs. Nothing else of txnlog reads the environment or writes to the terminal.
"""
