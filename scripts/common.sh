# Sourced by the scripts beside it, which have changed to the root of the checkout. POSIX sh.

say() {
    printf 'txnlog: %s\n' "$*" >&2
}

fail() {
    say "$@"
    exit 1
}

# as_root COMMAND...: runs it as root, directly or by sudo that asks for no password; fails where neither is possible.
# TXNLOG_NO_INSTALL=1 keeps the scripts from touching the system.
as_root() {
    if [ -n "${TXNLOG_NO_INSTALL:-}" ]; then
        return 1
    elif [ "$(id -u)" -eq 0 ]; then
        "$@" >&2
    elif command -v sudo >/dev/null 2>&1 && sudo -n true >/dev/null 2>&1; then
        sudo -n "$@" >&2
    else
        return 1
    fi
}

# install_first MANAGER-COMMAND -- PACKAGE...: installs the first of the packages that the system offers.
install_first() {
    manager=""
    while [ "$1" != "--" ]; do
        manager="$manager $1"
        shift
    done
    shift
    for package in "$@"; do
        # shellcheck disable=SC2086  # the manager's words are meant to be split
        if as_root $manager "$package"; then
            return 0
        fi
    done
    return 1
}
