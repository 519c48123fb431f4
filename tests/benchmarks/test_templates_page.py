"""docs/templates.md, followed to the letter: its files in a study of two models in the form of Llama 3.1."""

import re
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from chat_forms import FORMS, write_llama
from conftest import toy_study
from searchlens.benchmarks import prompts
from searchlens.benchmarks.prompter import Prompter
from searchlens.cli.main import main
from searchlens.config import check
from searchlens.errors import InputError
from searchlens.plan import Grid

pytest.importorskip("torch")

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/templates.md").read_text()
FILES = dict(re.findall(r"^`([^`\n]+)`:\n\n```\w+\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL))
(CONSOLE,) = re.findall(r"^```console\n\$ searchlens (.*?)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture
def study(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A study of the pair `mine`, which is the present folder."""
    content = toy_study(tmp_path) | {"equivalence": None}
    for place, side in enumerate(("base", "rl")):
        content["checkpoints"][f"mine-{side}"] = {"path": f"models/{side}"}
        write_llama(tmp_path / f"models/{side}", FORMS["llama3.1"], place)
    content["pairs"] = {"mine": {"base": "mine-base", "rl": "mine-rl"}}
    content["study"]["pairs"] = ["mine"]
    (tmp_path / "config").mkdir()
    for path in (ROOT / "config").glob("*.yaml"):
        (tmp_path / "config" / path.name).write_text(path.read_text())
    (tmp_path / "config/mine.yaml").write_text(yaml.safe_dump(content))
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def prompter(name: str) -> tuple[Prompter, Grid]:
    grid = Grid(check.load(check.files(["config/mine.yaml", name])))
    return Prompter(grid.inputs.checkpoint_folder("mine-base"), grid.inputs.template("mine-base", "sums")), grid


def test_the_prompt_of_a_chat_model_is_shown_as_written(study: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command, output = CONSOLE
    assert main([*command.split(), "--quiet"]) == 0
    expected = ".*".join(map(re.escape, output.split("…")))
    assert re.fullmatch(expected, capsys.readouterr().out, re.DOTALL)


@pytest.mark.parametrize("name", [name for name in FILES if name.endswith(".yaml")])
def test_every_example_is_a_study(study: Path, capsys: pytest.CaptureFixture[str], name: str) -> None:
    assert main(["check", "--quiet", "--config", "config/mine.yaml", "--config", name]) == 0
    assert "configuration is valid" in capsys.readouterr().out


def test_worked_examples_and_an_own_format_are_what_the_page_says(study: Path) -> None:
    asked, grid = prompter("config/base.yaml")
    (text,) = asked.texts(grid.inputs.questions("sums")[:1])
    assert text.startswith(
        "Question: What is $5+2$?\nAnswer: Five and two more are seven. The answer is 7.\n\nQuestion: "
    )
    asked, grid = prompter("config/sft.yaml")
    (text,) = asked.texts(grid.inputs.questions("sums")[:1])
    assert text == "Below is a problem. Solve it.\n\n### Problem:\nCompute 0+1.\n\n### Solution:\n"
    assert asked.template.stop_texts == ("\n### Problem:",)


def test_a_template_with_a_question_of_the_benchmark_is_refused(study: Path) -> None:
    """One of a few letters may be there by chance."""
    asked, grid = prompter("config/sft.yaml")
    (question, *_) = grid.inputs.questions("sums")
    given = "What is two and two, and then three more?"
    asked.template = prompts.Template(f"Q: {given}\nA: 7\n\nQ: {{question}}\nA:")

    with pytest.raises(InputError, match=rf"the prompt template contains question {question.id} of the benchmark"):
        asked.prompts([replace(question, text="  what is two and two, and then THREE more?")])
    assert asked.prompts([replace(question, text="What is two")])


def test_the_page_names_every_shipped_template() -> None:
    assert [name for name in prompts.families() if f"`{name}`" not in PAGE] == []
