"""``python -m txnlog``: the command line."""

from txnlog.cli.app import main

if __name__ == "__main__":
    main()
