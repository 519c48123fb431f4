"""The promises of SECURITY.md: whose code runs, what is reached, what a name can do, and where no token stands."""

import ast
import csv
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import bad_inputs
from searchlens.cli.main import main
from searchlens.reporting import captions
from searchlens.reporting.tables.table import Part, Table, latex, markdown, write
from searchlens.store.frames import write_csv

ROOT = Path(__file__).parents[1]
SOURCES = sorted(path for folder in ("src/searchlens", "lab/src") for path in (ROOT / folder).rglob("*.py"))

HOSTILE = [
    *("=cmd|' /C calc'!A0", "+1+cmd()", "-2+3+cmd()", "@SUM(1,2)", '=HYPERLINK("http://x","y")', "\t=1+1", "\r=1+1"),
    *("<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "</td><script>", "[x](javascript:alert(1))"),
    *("![x](http://x/y.png)", "[x][y]", "a | b", "a\nb", "a\r\n\r\nb", "a\u2028b", "a\0b", "\x1b[31mred"),
    *("\\input{/etc/passwd}", "\\write18{touch owned}", "$\\input{x}$", "%", "a & b \\\\ c", "#1", "{", "}"),
    *("!!python/object/apply:os.system ['x']", "*alias", "&anchor", "- a: b", "$(touch owned)", "; rm", "^^5cinput"),
]


def calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Every call in a file with the name that is called, such as ``torch.load``."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func), node


def keywords(call: ast.Call) -> dict[str | None, str]:
    return {item.arg: ast.unparse(item.value) for item in call.keywords}


def test_no_code_of_a_checkpoint_is_run_and_no_weights_are_unpickled() -> None:
    """Without these options transformers asks on a terminal, and reads pickled weights if there are no others."""
    seen = 0
    for path in SOURCES:
        for name, call in calls(path):
            if re.search(r"Auto\w+\.from_pretrained$", name):
                seen += 1
                assert keywords(call).get("trust_remote_code") == "False", f"{path}:{call.lineno}"
                if "AutoModel" in name:
                    assert keywords(call).get("use_safetensors") == "True", f"{path}:{call.lineno}"
            elif name.endswith("EngineArgs"):
                seen += 1
                assert keywords(call).get("trust_remote_code") == "False", f"{path}:{call.lineno}"
            elif name == "torch.load":
                assert keywords(call).get("weights_only") == "True", f"{path}:{call.lineno}"
            else:
                assert keywords(call).get("trust_remote_code", "False") == "False", f"{path}:{call.lineno}"
    assert seen > 5


def test_nothing_is_unpickled_evaluated_or_given_to_a_shell() -> None:
    forbidden = {"eval", "exec", "os.system", "os.popen", "yaml.load", "yaml.unsafe_load", "yaml.full_load", "mktemp"}
    forbidden |= {"yaml.Loader", "yaml.FullLoader", "yaml.UnsafeLoader", "sympify", "parse_expr", "sympy.sympify"}
    for path in SOURCES:
        text = path.read_text("utf-8")
        assert not re.search(r"^\s*(import|from) (pickle|dill|joblib|marshal|shelve)\b", text, re.MULTILINE), path
        for name, call in calls(path):
            assert name not in forbidden, f"{path}:{call.lineno}"
            given = keywords(call)
            assert given.get("shell", "False") == "False", f"{path}:{call.lineno}"
            assert given.get("allow_pickle", "False") == "False", f"{path}:{call.lineno}"


def test_what_the_workflow_gives_to_a_shell_is_quoted() -> None:
    """Everything but a number of threads."""
    found = 0
    for rules in sorted((ROOT / "workflow/rules").glob("*.smk")):
        for shell in re.findall(r'shell:\n\s+r?"""(.*?)"""', rules.read_text("utf-8"), re.DOTALL):
            values = re.findall(r"(?<!\{)\{([^{}]+)\}(?!\})", shell)
            found += len(values)
            assert [value for value in values if not value.endswith(":q") and value != "threads"] == [], rules
    assert found > 50


@pytest.mark.parametrize("text", HOSTILE)
def test_a_hostile_text_is_only_text_in_every_format(text: str, tmp_path: Path) -> None:
    """As a cell, a title and a note of a table."""
    frame = pl.DataFrame({"name": [text, "plain"], "value": ["1", "2"]})
    table = Table(data=frame, parts=[Part(frame, title=text)], notes=[text])
    files = {path.suffix: path.read_bytes().decode() for path in write(table, tmp_path / "t")}

    with (tmp_path / "t.csv").open(newline="") as file:
        _, first, second = csv.reader(file)
    assert first[0].lstrip("'").split() == text.split() or text == first[0]
    assert first[0][:1] not in ("=", "+", "-", "@", "\t", "\r")
    assert second == ["plain", "2"]

    tex = latex(table)
    assert all(line.startswith("%") for line in tex.splitlines() if line and line == tex.splitlines()[-1])
    assert len(tex.splitlines()) == len(latex(_plain()).splitlines())
    commands = set(re.findall(r"\\([a-zA-Z]+)", tex))
    assert commands <= {
        *("begin", "end", "toprule", "midrule", "bottomrule", "multicolumn", "textit"),
        *("textbackslash", "textasciicircum", "textasciitilde", "textasciigrave"),
    }

    md = markdown(table)
    assert len(md.splitlines()) == len(markdown(_plain()).splitlines())
    assert not re.search(r"(?<!\\)<[A-Za-z/!]|(?<!\\)\]\(|(?<!\\)!\[|\]\[", md)

    page = files[".html"]
    assert "<script" not in page and "<img" not in page and "onerror=alert(1)>" not in page


def _plain() -> Table:
    frame = pl.DataFrame({"name": ["x", "plain"], "value": ["1", "2"]})
    return Table(data=frame, parts=[Part(frame, title="x")], notes=["x"])


def test_numbers_and_usual_texts_stay_as_they_are_in_a_csv(tmp_path: Path) -> None:
    texts = ["-1", "+0.5", "-1e-3", "-", "", "topp0.9_t0.7", "Base+gain", "a=b", "0.1 0.2", None]
    write_csv(pl.DataFrame({"text": texts, "number": [-1.5] * len(texts)}), tmp_path / "t.csv")
    back = pl.read_csv(tmp_path / "t.csv", infer_schema=False)
    assert back["text"].fill_null("").to_list() == [text or "" for text in texts]
    assert set(back["number"]) == {"-1.5"}


def test_a_caption_includes_no_file_and_no_page(tmp_path: Path) -> None:
    """A name of a pair or benchmark in it is text: it is neither a template nor a directive."""
    (tmp_path / "secret").write_text("secret of another file")
    for directive in (f".. include:: {tmp_path}/secret", ".. raw:: html\n\n   <script>alert(1)</script>"):
        with pytest.raises(Exception, match=r"disabled"):
            captions.html(f"Of one pair.\n\n{directive}\n")
    for name in ("{{ 7 * 7 }}", "<script>alert(1)</script>", "{% include 'secret' %}"):
        page = captions.html("Of {{ snakemake.wildcards.pair }}.", {"pair": name})
        assert "49" not in page and "<script" not in page and "secret of" not in page


def test_no_token_is_written_or_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither by commands that succeed nor by those that fail, however much they say."""
    bad_inputs.write_study(tmp_path)
    monkeypatch.chdir(tmp_path)
    for name in ("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "OPENAI_API_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(name, "hf_secretsecretsecret")
    generate = ["generate", "--checkpoint", "toy-rl", "--benchmark", "sums"]
    imported = ["import", "log.jsonl", "--pair", "toy", "--benchmark", "sums", "--role", "base", "--policy", "p"]
    for command in (["check"], ["plan"], ["snapshot"], ["status"], generate, imported, ["show"], ["schema"], ["pin"]):
        main([*command, "--verbose"])
    printed = "".join(capfd.readouterr())
    assert "configuration is valid" in printed
    assert "secretsecret" not in printed
    written = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert any("results" in path.parts for path in written)
    assert not [path for path in written if b"secretsecret" in path.read_bytes()]
