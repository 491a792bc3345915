"""``txnlog doctor``: the checks of environment, store and log, and the command that runs them."""
