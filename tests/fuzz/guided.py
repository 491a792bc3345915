"""Attack the decoders of txnlog's own, guided by what code they reach: ``python -m tests.fuzz.guided
[--inputs N]``.

Atheris (libFuzzer) keeps each input that reaches a new line of txnlog, and changes it further: half of the
time by its own rules, half by those of the target. Each target runs in a process of its own, which ends at
the first failure; the input is kept in ``--keep``. What pyarrow decodes, and rows, are not here: of their
code nothing is seen. First a planted flaw has to be found.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from random import Random

import atheris

from tests.fuzz.mutate import changed_bytes

PACKAGES = ["txnformat", "txnlog", "writers", "spark_datasource", "tests.fuzz.planted"]
PLANTED = "planted"
PLANTED_INPUTS = 1_000_000
SECONDS_MAX = 20
MEGABYTES_MAX = 4096
INPUT_BYTES_MAX = 100_000
FAILURE_EXIT = 77
"""With which libFuzzer ends a process that found an input that fails."""


def main() -> int:
    """Attack the targets one after the other, and return the exit code: 1 when one has failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided")
    parser.add_argument("--inputs", type=int, default=250_000, help="over all targets")
    parser.add_argument("--only", default="", help="targets whose name contains this text")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", type=Path, default=Path("fuzz-found"), help="where failing inputs go")
    parser.add_argument("--target", help=argparse.SUPPRESS)
    parser.add_argument("--corpus", type=Path, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.target:
        _fuzz(asked.target, asked.inputs, asked.seed, asked.keep, asked.corpus)
        return 0
    from tests.fuzz.targets import targets

    with tempfile.TemporaryDirectory(prefix="txnlog-fuzz-") as aside:
        _, code = _attack(PLANTED, PLANTED_INPUTS, asked.seed, Path(aside))
    if code != FAILURE_EXIT:
        print("the planted flaw was not found: the campaign says nothing")
        return 1
    chosen = [target for target in targets() if target.is_guided and asked.only in target.name]
    total = sum(target.weight for target in chosen)
    whole = failed = 0
    for target in chosen:
        done, code = _attack(
            target.name, int(asked.inputs * target.weight / total) + 1, asked.seed, asked.keep
        )
        whole += done
        failed += code != 0
    print(f"{whole:,} inputs of {len(chosen)} targets, {failed} failed")
    return 1 if failed else 0


def _attack(name: str, inputs: int, seed: int, keep: Path) -> tuple[int, int]:
    """Attack one target in a process of its own, and return how many inputs it took and how it ended."""
    command = [sys.executable, "-m", "tests.fuzz.guided", "--target", name]
    command += ["--inputs", str(inputs), "--seed", str(seed), "--keep", str(keep)]
    with tempfile.TemporaryDirectory(
        prefix="txnlog-fuzz-"
    ) as corpus:  # libFuzzer ends its process without any clean-up
        command += ["--corpus", corpus]
        ended = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False)
    done = int((re.findall(r"^(?:Done |#)(\d+)", ended.stderr, re.MULTILINE) or ["0"])[-1])
    covered = (re.findall(r"cov: (\d+)", ended.stderr) or ["0"])[-1]
    print(f"{name}: {done:,} inputs, {covered} places reached, exit {ended.returncode}", flush=True)
    if name != PLANTED and (ended.returncode or done < inputs):
        print(ended.stderr[-3000:])
        return done, ended.returncode or 1
    return done, ended.returncode


def _fuzz(name: str, inputs: int, seed: int, keep: Path, corpus: Path) -> None:
    """Attack one target; ends the process."""
    with atheris.instrument_imports(include=PACKAGES):
        from tests.fuzz.planted import planted
        from tests.fuzz.targets import Target, targets
        from txnformat.errors import TxnLogError
    known = [*targets(), Target(PLANTED, [b"abcd"], changed_bytes, planted)]
    (target,) = (one for one in known if one.name == name)

    def use(data: bytes) -> None:
        with suppress(TxnLogError):
            target.use(data)

    def change(data: bytes, size_max: int, seed: int) -> bytes:
        rng = Random(seed)
        changed = target.mutate(data, rng) if rng.random() < 0.5 else atheris.Mutate(data, size_max)
        return bytes(changed[:size_max])

    keep.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate([*target.seeds, *target.corpus()]):
        (corpus / str(number)).write_bytes(data)
    options = {
        "runs": inputs, "seed": seed, "timeout": SECONDS_MAX, "rss_limit_mb": MEGABYTES_MAX, "max_len": INPUT_BYTES_MAX,
        "artifact_prefix": f"{keep}/{name}-", "print_final_stats": 1,
    }  # fmt: skip
    arguments = [name, *(f"-{option}={value}" for option, value in options.items()), str(corpus)]
    atheris.Setup(arguments, use, custom_mutator=change)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main())
