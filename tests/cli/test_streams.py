"""Whoever reads what a command says, or nobody: its work is the same."""

import os
import signal
import subprocess
import sys
import time

import pytest

COMMAND = [sys.executable, "-c", "from neuralcov.cli.app import main; main()"]
TRAIN = ["train", "mlp", "--data", "digits", "--epochs", "3", "--limit", "64", "-o"]


def environment(**more):
    paths = os.pathsep.join(filter(None, sys.path))
    return {**os.environ, "PYTHONPATH": paths, "COLUMNS": "120", **more}


def test_a_closed_pipe_does_not_end_the_work(tmp_path):
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(
            [*COMMAND, *TRAIN, tmp_path / "w.safetensors"], stdout=writing, stderr=writing, env=environment()
        )
    finally:
        os.close(writing)
    assert done.returncode == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["w.json", "w.safetensors"]


@pytest.mark.parametrize("closed", ["1", "2", "1 2"])
def test_closed_streams_are_no_error_of_the_work(tmp_path, closed):
    words = " ".join(f"{number}>&-" for number in closed.split())
    line = f'"$0" "$@" {words}'
    arguments = ["bash", "-c", line, *COMMAND, *TRAIN, str(tmp_path / "w.safetensors")]
    done = subprocess.run(arguments, env=environment(), capture_output=True)
    assert done.returncode == 0, done.stderr
    # What a command says must not go to a file that took the number of a closed stream.
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["w.json", "w.safetensors"]
    from safetensors.torch import load

    assert load((tmp_path / "w.safetensors").read_bytes())


def test_an_old_locale_gets_question_marks(tmp_path):
    plain = environment(LC_ALL="C", PYTHONUTF8="0", PYTHONCOERCECLOCALE="0", PYTHONIOENCODING="ascii")
    for arguments in (["--help"], ["measure", "--help"], ["measure", "é:é", "--data", "npz:é"]):
        done = subprocess.run([*COMMAND, *arguments], env=plain, capture_output=True)
        assert b"Traceback" not in done.stdout + done.stderr
        assert done.returncode == (0 if "--help" in arguments else 2), done.stderr


@pytest.mark.skipif(os.name == "nt", reason="has no such signal")
def test_sigterm_tidies_up(tmp_path):
    arguments = [*COMMAND, *TRAIN, tmp_path / "w.safetensors"]
    arguments[arguments.index("3")] = "100000"
    with subprocess.Popen(arguments, env=environment(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        process.stdout.readline()  # the first epoch is done
        process.send_signal(signal.SIGTERM)
        started = time.monotonic()
        process.stdout.read()
        assert process.wait(60) == 143
        assert time.monotonic() - started < 60
    assert not list(tmp_path.glob("*.unfinished"))
