"""Prompts decide what a model does: the recipes' exact strings, and questions that stay what they are."""

import json

import pytest

from searchlens.benchmarks import prompts
from searchlens.errors import InputError

CHATML = "<|im_start|>system\n{}<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
FAMILIES = [name for name in prompts.families() if name != "chat"]
"""Those that are texts."""
BOXED = "Please reason step by step, and put your final answer within \\boxed{}."

RECIPES = {
    "qwen-boxed": (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n<|im_start|>user\nQ\n"
        "Please reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n<|im_start|>assistant\n"
    ),
    "qwen25-math-cot": (
        "<|im_start|>system\nPlease reason step by step, and put your final answer within \\boxed{}.<|im_end|>\n"
        "<|im_start|>user\nQ<|im_end|>\n<|im_start|>assistant\n"
    ),
    "abel": "Question:\nQ\nAnswer:\nLet's think step by step.\n",
    "deepseek-math": "User: Q\nPlease reason step by step, and put your final answer within \\boxed{}.\n\nAssistant:",
    "r1": (
        "A conversation between User and Assistant. The User asks a question, and the Assistant solves it. The "
        "Assistant first thinks about the reasoning process in the mind and then provides the User with the answer. "
        "The reasoning process is enclosed within <think> </think> and answer is enclosed within <answer> </answer> "
        "tags, respectively, i.e., <think> reasoning process here </think> <answer> answer here </answer>. User: You "
        "must put your answer inside <answer> </answer> tags, i.e., <answer> answer here </answer>. And your final "
        "answer will be extracted automatically by the \\boxed{} tag.\nThis is the problem:\nQ\nAssistant: <think>"
    ),
    "zoo": "Problem: Q\nSolution:\n",
    "plain": "Q\n",
    "question-answer": "Question: Q\nAnswer:",
}


def test_every_family_asks_as_its_recipe_does() -> None:
    """Typed from the recipes, not taken from the code."""
    assert {name: prompts.template(name).render("Q") for name in FAMILIES} == RECIPES


@pytest.mark.parametrize("name", prompts.families())
@pytest.mark.parametrize("wording", [None, *prompts.wordings()])
def test_a_question_stays_what_it_is(name: str, wording: str | None) -> None:
    question = r"\frac{1}{2} {question} {x} $\boxed{}$"
    assert prompts.template(name, wording).text.count("{question}") == 1
    before, after = prompts.template(name, wording).text.split("{question}")
    assert prompts.template(name, wording).render(question) == before + question + after


def test_a_wording_takes_the_place_of_the_instructions_for_math() -> None:
    helpful = "You are a helpful assistant."
    assert prompts.template("qwen-boxed", "as-is").render("Q") == CHATML.format(helpful, "Q")
    assert prompts.template("qwen25-math-cot", "boxed").render("Q") == CHATML.format(helpful, "Q\n" + BOXED)
    assert prompts.template("deepseek-math", "as-is").render("Q") == "User: Q\n\nAssistant:"
    assert prompts.template("abel", "as-is").render("Q") == "Question:\nQ\nAnswer:\n"
    assert prompts.template("plain", "boxed-letter").render("Q") == (
        "Answer the following multiple choice question. The last line of your response should be of the following "
        "format: '\\boxed{$LETTER}' (without quotes) where LETTER is one of ABCD (ex. '\\boxed{A}'). Think "
        "step by step before answering.\n\nQ\n"
    )
    assert prompts.template("plain", "answer-letter").render("Q") == (
        "Answer the following multiple choice question. The last line of your response should be of the following "
        "format: 'Answer: $LETTER' (without quotes) where LETTER is one of ABCD. Think step by step before answering."
        "\n\nQ\n"
    )


def test_no_answer_ends_at_a_word_unless_the_recipe_is_asked_for() -> None:
    """Words such as "user" occur in answers; delimiters of a turn do not."""
    answer = "The user asks his assistant: the _start and the _end of the Question: what is the Answer: \\boxed{2}"
    for name in prompts.families():
        assert not [stop for stop in prompts.template(name).stop_texts if stop in answer]
    assert {"user", "assistant"} < set(prompts.template("qwen-boxed", recipe_stops=True).stop_texts)


@pytest.mark.parametrize(
    ("name", "again"),
    [
        ("qwen-boxed", "2<|im_end|>\n<|im_start|>user\nAnd now?"),
        ("abel", "2\n\nQuestion:\nAnd now?"),
        ("deepseek-math", "2\n\nUser: And now?"),
        ("r1", "</think> <answer> \\boxed{2} </answer>\nUser: And now?"),
    ],
)
def test_an_answer_ends_where_the_model_asks_itself_again(name: str, again: str) -> None:
    assert any(stop in again for stop in prompts.template(name).stop_texts)


def test_unknown_names_list_the_known_ones() -> None:
    with pytest.raises(
        InputError, match=r"template 'qwen' is unknown\. Known: abel, chat, deepseek-math, plain, question-answer, qwen"
    ):
        prompts.template("qwen").render("?")
    with pytest.raises(
        InputError,
        match=r"wording 'letter' is unknown; did you mean 'boxed-letter'\? Known: answer-letter, as-is, boxed, boxed",
    ):
        prompts.template("zoo", "letter").render("?")


def test_a_description_is_plain_json_and_tells_prompts_apart() -> None:
    described = [json.dumps(prompts.template(name).description) for name in prompts.families()]
    assert len(set(described)) == len(prompts.families())
    assert prompts.template("abel").description != prompts.template("abel", "as-is").description
    assert prompts.template("abel").description != prompts.template("abel", recipe_stops=True).description


def test_what_was_sampled_before_there_were_wordings_is_described_as_then() -> None:
    """Recorded samples are known by it."""
    assert prompts.template("zoo").description == {"text": "Problem: {question}\nSolution:\n", "stop_tokens": []}
