"""Erasures beside everything else: worlds that tests of several rooms share, and a campaign of processes
(``python -m tests.erasure``)."""
