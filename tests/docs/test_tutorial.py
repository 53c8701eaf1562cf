"""Run the tutorial in its order with the package as it is; ``tests/test_walk.py`` does so with a wheel."""

import sys

from tests.test_walk import blocks, commands


def test_every_command_of_the_tutorial(run, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    sys.modules.pop("shop", None)
    model, in_python = blocks("docs/tutorial.md", "python")
    (policy,) = blocks("docs/tutorial.md", "toml")
    (tmp_path / "shop.py").write_text(model)
    (tmp_path / "policy.toml").write_text(policy)
    exec(compile(model, "shop.py", "exec"), {"__name__": "__main__"})
    told = ""
    for program, *arguments in commands("docs/tutorial.md"):
        if program == "python":
            assert arguments == ["shop.py"]
            continue
        code, out, err = run(*arguments)
        no = "few.ncov" in arguments and arguments[0] == "gate"
        assert code == no, f"{arguments}: exit {code}\n{out}\n{err}"
        told += out
    for words in ("ALARM classes", "ALARM unlike", "gate met", "gate NOT met", "agrees", "to collect"):
        assert words in told, words
    exec(compile(in_python, "tutorial", "exec"), {"__name__": "__main__"})
    assert (tmp_path / "report.html").stat().st_size > 10_000
