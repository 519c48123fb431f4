"""The cohort: its questions, families, recipes; RL's variants; states, schedule, thresholds; all of it in miniature."""

import json
import random
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")

from searchlens.benchmarks.files import read_bytes  # noqa: E402
from searchlens.errors import InputError  # noqa: E402
from searchlens.zoo import load_pair, read_record  # noqa: E402
from searchlens_lab.zoo import model as models  # noqa: E402
from searchlens_lab.zoo.card import Check, checks, fit_alpha, path, text_table, write_cohort_card  # noqa: E402
from searchlens_lab.zoo.cohort import COHORT, FAMILIES, RANKED, ROLES, SEVEN, CohortPair, parameters, with_needs  # noqa: E402
from searchlens_lab.zoo.corpus import END, PAD, Tokens, draw_document, train_tokenizer  # noqa: E402
from searchlens_lab.zoo.evaluate import build, write_benchmarks  # noqa: E402
from searchlens_lab.zoo.jobs import TrainingJob, Workshop, measured_levels, ordered, plan, rltrain, run, urgency  # noqa: E402
from searchlens_lab.zoo.pretrain import StateFile, optimizer_for, pretrain, update, write_record  # noqa: E402
from searchlens_lab.zoo.recipe import ModelShape, Pretraining, Recipe, Rlvr, Role  # noqa: E402
from searchlens_lab.zoo.rlvr import advantages, policy_gradient, train_rlvr  # noqa: E402
from searchlens_lab.zoo.sample import Samples  # noqa: E402
from searchlens_lab.zoo.tasks import draw, prompt, split_of  # noqa: E402

ZOO = Path(__file__).parents[2] / "resources" / "zoo"
TINY = ModelShape(vocabulary=32, hidden=16, layers=2, heads=2, kv_heads=1, ffn=32)
PAPER = {"math": 500, "aime": 60, "gpqa": 198, "ifeval": 541, "amc": 40, "minerva": 272, "olympiad": 675}
LEVELS = measured_levels({cell: -i / 100 for i, cell in enumerate(RANKED)})


@pytest.mark.cohort
def test_benchmarks_have_the_papers_sizes_and_their_files_regenerate(tmp_path: Path) -> None:
    """Protects the nine test sets: the paper's counts, distinct test questions, byte for byte those committed."""
    recipe = COHORT["anchor"].recipe
    for file in write_benchmarks(tmp_path, recipe):
        committed = ZOO / "cohort" / "benchmarks" / (f"{file.name}.gz" if file.suffix == ".jsonl" else file.name)
        assert read_bytes(file) == read_bytes(committed), file.name
    counts = {}
    for file in tmp_path.glob("*.jsonl*"):
        questions = [json.loads(line)["question"] for line in read_bytes(file).splitlines()]
        assert len(set(questions)) == len(questions)
        assert {split_of(question) for question in questions} == {"test"}
        counts[file.name.partition(".")[0]] = len(questions)
    assert counts == PAPER | {"tinymmlu": 100, "stem": 500}


def test_held_out_kinds_are_in_every_corpus_and_in_no_rl() -> None:
    """Protects what held out means: known from reading, never rewarded, not asked in the fitted benchmarks."""
    fitted = {kind for name in ("math", "aime", "gpqa", "ifeval") for kind, _ in ROLES[name].kinds}
    held = {kind for name in ("amc", "minerva", "olympiad", "tinymmlu") for kind, _ in ROLES[name].kinds}
    assert not held & fitted
    for family in FAMILIES.values():
        assert held <= dict(family.corpus.kinds).keys()
    for pair in COHORT.values():
        assert not held & {kind for kind, _ in (*RANKED, *pair.more)}


def test_questions_of_rl_and_dev_are_none_of_the_test() -> None:
    """Protects the splits: rltrain is of the train split, dev and test share nothing, levels are as named."""
    test = {p.question for name, role in ROLES.items() for p in build(name, role, "test", 31)}
    dev = {p.question for name, role in ROLES.items() for p in build(name, role, "dev", 31)}
    assert not test & dev
    wanted = {"easy": {1}, "medium": {1, 2, 3, 4}, "hard": {3, 4, 5}}
    for split, measured in wanted.items():
        problems = rltrain(split, LEVELS, 31)
        assert len({p.question for p in problems}) == len(problems) == 256
        assert {split_of(p.question) for p in problems} == {"train"}
        assert {LEVELS[p.kind, p.level] for p in problems} == measured


def test_levels_are_fifths_of_the_ranking() -> None:
    """Protects measured levels: easiest first, three combinations of fifteen in each."""
    success = dict(zip(RANKED, np.random.default_rng(0).permutation(15) / 15, strict=True))
    levels = measured_levels(success)
    assert sorted(levels.values()) == sorted([1, 2, 3, 4, 5] * 3)
    assert max(success[c] for c in RANKED if levels[c] == 5) < min(success[c] for c in RANKED if levels[c] == 1)


def test_the_control_never_reads_the_backward_method() -> None:
    """Protects the negative control: its corpus never has the method, the anchor's does."""

    def uses(family: str) -> int:
        rng = random.Random(0)
        drawn = [draw_document(rng, FAMILIES[family].corpus) for _ in range(2_000)]
        return sum("Work backwards" in asked + document.text for asked, document in drawn)

    assert uses("control") == 0
    assert uses("qwen") > 50
    shown_first = COHORT["control"].demonstrations
    rng = random.Random(0)
    assert any("Work backwards" in draw_document(rng, shown_first.corpus)[1].text for _ in range(20))


@pytest.mark.parametrize("family", ["", *FAMILIES])
def test_tokenizers_round_trip_and_prompts_fit(family: str) -> None:
    """Protects every tokenizer, the first pair's too: any text comes back, prompts end at a boundary and fit."""
    recipe = next(p.recipe for p in COHORT.values() if p.family == family) if family else Recipe()
    tokenizer = train_tokenizer(replace(recipe, tokenizer_documents=1_000))
    assert (tokenizer.eos_token, tokenizer.eos_token_id) == (recipe.end_token, END)
    assert (tokenizer.pad_token_id, len(tokenizer)) == (PAD, recipe.shape.vocabulary)
    assert len(tokenizer.encode("90125")) == 5, "digits are single tokens"
    rng = random.Random(0)
    texts = ["", " two  spaces\n\n", "Ünïcödé ✓ \t", "".join(map(chr, range(1, 300)))]
    for _ in range(150):
        asked, document = draw_document(rng, recipe.corpus)
        texts.append(asked + document.text)
        assert tokenizer.encode(asked) + tokenizer.encode(document.text) == tokenizer.encode(texts[-1])
    assert [tokenizer.decode(tokenizer.encode(text)) for text in texts] == texts
    for kind in {kind for role in recipe.roles.values() for kind, _ in role.kinds}:
        asked = [prompt(draw(rng, kind, "dev").question) for _ in range(25)]
        assert max(len(ids) for ids in tokenizer(asked)["input_ids"]) <= recipe.prompt_tokens - 10


@pytest.mark.parametrize("architecture", ["qwen2", "llama", "mistral"])
def test_architectures_are_those_of_transformers(architecture: str, tmp_path: Path) -> None:
    """Protects the three architectures: saved, transformers reads the same function, and so do we."""
    model = models.Decoder(replace(TINY, architecture=architecture), seed=3)
    recipe = replace(Recipe(), tokenizer_documents=50, shape=replace(ModelShape(), vocabulary=300))
    models.save(model, train_tokenizer(recipe), tmp_path)
    ids = torch.randint(2, 32, (2, 40), generator=torch.Generator().manual_seed(0))
    theirs = transformers.AutoModelForCausalLM.from_pretrained(tmp_path, dtype=torch.float32)
    ours = models.load(tmp_path)
    assert theirs.config.model_type == ours.shape.architecture == architecture
    with torch.no_grad():
        assert (ours(ids) - theirs(ids).logits).abs().max() < 1e-5


def test_weights_fit_their_limit() -> None:
    """Protects the repository: all weights in bf16, the first pair's included, stay below 36 MB."""
    for pair in COHORT.values():
        assert parameters(pair.recipe.shape) == sum(p.numel() for p in models.Decoder(pair.recipe.shape).parameters())
        assert pair.recipe.pretraining.steps * pair.recipe.pretraining.tokens >= 500_000_000
    made = sum(parameters(pair.recipe.shape) * (1 if pair.base else 2) for pair in COHORT.values())
    assert 2 * (made + 2 * parameters(Recipe().shape)) < 36_000_000
    assert len(SEVEN) == 7
    assert len(COHORT) == 12


CORPUS = Tokens(np.array([2, 3, 4, 5, 6, END] * 64, np.uint16), np.full(64, 6, np.int32), np.full(64, 2, np.int32))


class Interrupted(Exception):
    """Stands for the end of a machine."""


def test_pretraining_resumes_to_the_same_weights(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Protects resuming: interrupted and continued, weights and curve are those of an uninterrupted run."""
    recipe = replace(Recipe(), shape=TINY, pretraining=Pretraining(steps=120, warmup=5, tokens=64, lr=1e-2))
    whole, curve = pretrain(CORPUS, recipe, "cpu")
    state_file = StateFile(tmp_path / "state.pt", every=0)
    calls = iter(range(1_000))

    def breaks(*arguments: object) -> None:
        if next(calls) == 107:
            raise Interrupted
        update(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr("searchlens_lab.zoo.pretrain.update", breaks)
        with pytest.raises(Interrupted):
            pretrain(CORPUS, recipe, "cpu", state_file)
    assert state_file.load("cpu")["step"] == 107
    resumed, again = pretrain(CORPUS, recipe, "cpu", state_file)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    assert [(p["step"], p["loss"], p["tokens"]) for p in curve] == [(p["step"], p["loss"], p["tokens"]) for p in again]


def test_rl_resumes_to_the_same_weights(tmp_path: Path) -> None:
    """Protects resuming of RL: questions, samples and weights continue as in an uninterrupted run."""
    recipe = replace(Recipe(), tokenizer_documents=200, shape=replace(TINY, vocabulary=300))
    settings = Rlvr(questions=4, group=4, max_tokens=6, steps=6, lr=1e-2, cells=(("chain", 1),), stops=False, kl=0.1)
    recipe = replace(recipe, rlvr=settings)
    tokenizer = train_tokenizer(recipe).backend_tokenizer
    base = models.Decoder(recipe.shape, 1)
    whole, curve = train_rlvr(base, tokenizer, recipe)
    state_file = StateFile(tmp_path / "state.pt", every=0)

    def breaks(step: int, _: models.Decoder) -> None:
        if step == 4:
            raise Interrupted

    with pytest.raises(Interrupted):
        train_rlvr(base, tokenizer, recipe, state_file, breaks)
    torch.rand(5)
    resumed, again = train_rlvr(base, tokenizer, recipe, state_file)
    for one, other in zip(whole.parameters(), resumed.parameters(), strict=True):
        assert torch.equal(one, other)
    timeless = [[{k: v for k, v in point.items() if k != "seconds"} for point in c] for c in (curve, again)]
    assert timeless[0] == timeless[1]


def test_advantages_by_recipe() -> None:
    """Protects the variants: GRPO scales by group, Dr. GRPO not at all, PPO by batch; unanimous groups are silent."""
    rewards = torch.tensor([[1.0, 0.0, 0.0, 0.0], [1.0, 1.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    centred = np.array([[0.75, -0.25, -0.25, -0.25], [0.5, 0.5, -0.5, -0.5], [0, 0, 0, 0]])
    group = centred[:2] / np.std(rewards[:2].numpy(), axis=1, ddof=1, keepdims=True)
    assert np.allclose(advantages(rewards).numpy()[:2], group, atol=1e-3)
    assert np.allclose(advantages(rewards, "none").numpy(), centred)
    assert np.allclose(advantages(rewards, "batch").numpy(), centred / np.std(centred, ddof=1), atol=1e-3)
    assert advantages(rewards)[2].abs().sum() == 0


def gradient(model: models.Decoder, *arguments: object) -> torch.Tensor:
    asked = [[2, 3]] * 2
    samples = Samples(torch.tensor([[4, 5, END], [6, END, END]]), torch.tensor([3, 2]), torch.tensor([True, True]))
    model.zero_grad()
    policy_gradient(model, asked, samples, torch.tensor([1.0, -0.5]), *arguments)
    return torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None])


def test_the_ratio_is_clipped_and_on_policy_it_changes_nothing() -> None:
    """Protects PPO: with unchanged weights the plain gradient; far from what drew the samples, none."""
    model = models.Decoder(TINY, seed=0)
    plain = gradient(model)
    assert torch.allclose(gradient(model, Rlvr(), model), plain, atol=1e-6)
    assert torch.allclose(gradient(model, Rlvr(per_token=False, max_tokens=10)), plain * 5 / 20, atol=1e-6)
    moved = models.Decoder(TINY, seed=0)
    optimizer = optimizer_for(moved, (0.9, 0.98), 0.0, "cpu")
    for _ in range(40):  # raise the first sample, lower the second, far beyond the clip
        gradient(moved)
        update(optimizer, moved, 1e-2, 1.0)
    assert gradient(moved, Rlvr(), model).abs().max() < 1e-6 < gradient(moved).abs().max()


def test_divergence_pulls_towards_base() -> None:
    """Protects the KL term: none at Base itself; away from it, its gradient step shrinks the distance."""
    base, model = models.Decoder(TINY, seed=0), models.Decoder(TINY, seed=0)
    heavy = Rlvr(kl=100.0)
    assert torch.allclose(gradient(model, heavy, None, base), gradient(model), atol=1e-5)
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(parameter.numel()))
            parameter.add_(noise, alpha=0.02)
    ids = torch.tensor([[2, 3, 4, 5, END]])

    def away() -> float:
        with torch.no_grad():
            rows = (models.token_log_probs(m(ids), ids)[0, 1:] for m in (base, model))
            return float((next(rows) - next(rows)).abs().sum())

    before = away()
    optimizer = optimizer_for(model, (0.9, 0.98), 0.0, "cpu")
    for _ in range(20):
        gradient(model, heavy, None, base)
        update(optimizer, model, 1e-3, 1.0)
    assert away() < before


class Fake:
    """A process that takes some polls and then ends with a status."""

    def __init__(self, log: list[str], name: str, status: int) -> None:
        self.left, self.status, self.log, self.name = 2, status, log, name

    def poll(self) -> int | None:
        self.left -= 1
        if self.left > 0:
            return None
        if self.status == 0:
            self.log.append(self.name)
        return self.status

    def terminate(self) -> None:
        self.log.append(f"terminated {self.name}")

    def wait(self, timeout: float | None = None) -> int:
        return -15


def scheduled(
    jobs: list[TrainingJob], devices: list[str], failing: str = "", log: list[str] | None = None, seconds: float = 60.0
) -> tuple[list[str], list[tuple[str, str]], list[str]]:
    log = [] if log is None else log
    places: list[tuple[str, str]] = []

    def launch(job: TrainingJob, device: str) -> Fake:
        assert set(job.needs) <= set(log)
        places.append((job.name, device))
        return Fake(log, job.name, 1 if job.name == failing else 0)

    left = run(jobs, lambda job: job.name in log, launch, devices, 1, seconds, 0, lambda _: None)
    return left, places, log


GRAPH = [
    TrainingJob("corpus", (), False, 50),
    *(TrainingJob(f"base-{i}", ("corpus",), True, 100 + i) for i in range(4)),
    TrainingJob("levels", ("base-0",), True, 10),
    *(TrainingJob(f"rl-{i}", ("levels", f"base-{i}"), True, 60) for i in range(4)),
]


def test_schedule_spreads_in_order_and_finishes() -> None:
    """Protects the scheduler: needs first, no more jobs on a device than it has places, the longest chain first."""
    left, places, log = scheduled(GRAPH, ["0", "1"])
    assert left == []
    assert sorted(log) == sorted(job.name for job in GRAPH)
    assert places[:3] == [("corpus", ""), ("base-0", "0"), ("base-3", "1")]
    assert urgency(GRAPH)["corpus"] == 50 + 100 + 10 + 60
    with pytest.raises(ValueError, match="cycle"):
        ordered([TrainingJob("a", ("b",), True, 1), TrainingJob("b", ("a",), True, 1)])


def test_schedule_survives_failures_and_goes_on() -> None:
    """Protects a night's work: a failed job stops only the jobs that need it; the next call runs only what is left."""
    left, _, log = scheduled(GRAPH, ["0", "1", "2", "3"], failing="base-2")
    assert left == ["base-2", "rl-2"]
    left, places, _ = scheduled(GRAPH, ["0"], log=log)
    assert (left, [name for name, _ in places]) == ([], ["base-2", "rl-2"])


def test_schedule_ends_in_time() -> None:
    """Protects the end of a session: running jobs are asked to end, unfinished jobs are returned."""
    left, _, log = scheduled(GRAPH, ["0"], seconds=-1.0)
    assert (len(left), log) == (len(GRAPH), [])


def test_plan_covers_the_cohort() -> None:
    """Protects the plan: shared Bases are trained once, extras wait for their start, a subset brings its needs."""
    jobs = {job.name: job for job in plan([])}
    assert sum(name.startswith("base-") for name in jobs) == 9
    assert sum(name.startswith("rl-") for name in jobs) == 12
    assert jobs["rl-orz"].needs == ("levels", "base-anchor")
    assert "rl-anchor" in jobs["rl-overtrained"].needs
    assert {name for name in {job.name for job in plan(["oat"])} if name.startswith("base-")} == {
        "base-anchor",
        "base-math",
    }
    assert with_needs(["overtrained"]) == ["anchor", "overtrained"]
    with pytest.raises(InputError, match="--only nothing"):
        with_needs(["nothing"])


def test_alpha_is_found_again() -> None:
    """Protects the spread's measurement: a planted path comes back; rounding is to the nearest budget in log2."""
    assert path(2.639) == (2, 4, 8, 8, 16)
    assert path(1.0) == (1, 2, 2, 4, 4)
    base = {"flat": {"1": 50, "2": 50, "4": 50, "8": 50, "16": 50}, "p": {"1": 20, "2": 35, "4": 52, "8": 70, "16": 90}}
    rl = {str(b): base["p"][str(n)] for b, n in zip((1, 2, 4, 8, 16), path(2.639), strict=True)}
    found = fit_alpha(base, rl)
    assert (found.path, found.error) == (path(2.639), 0)


def test_thresholds_are_shown_one_per_line() -> None:
    """Protects the command's output."""
    assert text_table([Check("a", 1, True), Check("b", 2, False), Check("c", 3, None)]).splitlines() == [
        "holds   a: 1",
        "FAILS   b: 2",
        "missing c: 3",
    ]


POLICY = "topp0.95_t1.0"
BASE_CURVE, ROUND = [20, 35, 52, 70, 90], (1, 2, 4, 8, 16)
ALPHAS = {"anchor": 2.6, "large": 4.6, "small": 7.0, "math": 1.7, "tiny": 3.0, "llama": 3.5, "mistral": 1.5}


def side_of(curve: list[float], late: int, aime: dict[str, int], ends: float) -> dict[str, object]:
    """A made-up dev record: 100 questions of each role, the first of which are solved."""

    def bits(share: float) -> str:
        return "1" * round(share) + "0" * (100 - round(share))

    at = dict(zip(map(str, ROUND), curve, strict=True))
    numbers = {
        role: {POLICY: {"pass_at": at, "questions": 60, "finished": ends, "solved": aime}, "greedy": {"pass_at": {}}}
        for role in ("math", "aime", "gpqa", "ifeval", "olympiad")
    }
    solved = {f"{role}/{POLICY}": {"1": bits(curve[0]), "16": bits(late)} for role in numbers}
    return {"numbers": numbers, "solved": solved, "steps": {}}


def write_records(out: Path) -> None:
    """Records of a cohort that shows everything that was designed."""
    (out / "records").mkdir()
    rising = {"1": 5, "4": 9, "16": 15, "64": 30, "256": 45}
    still = {"1": 5, "4": 5, "16": 6, "64": 6, "256": 6}
    budgets = dict(zip(ROUND, BASE_CURVE, strict=True))
    for name, pair in COHORT.items():
        rl = [budgets[n] for n in path(ALPHAS.get(name, 3.0))]
        late = {"control": 99, "overtrained": 70}.get(name, 90)
        sides = {"base": side_of(BASE_CURVE, 90, rising, 80.0), "rl": side_of(rl, late, still, 98.0)}
        for side in ("rl",) if pair.base else ("base", "rl"):
            write_record(out, f"dev-{name}-{side}", sides[side])


def changed(out: Path, record: str, **fields: dict[str, object]) -> list[str]:
    """The thresholds that fail once one record's math and aime are changed."""
    kept, made = (read_record(out, f"dev-{record}") for _ in range(2))
    for role, values in fields.items():
        made["numbers"][role][POLICY] |= values
    write_record(out, f"dev-{record}", made)
    failed = [check.name for check in checks(out) if not check.holds]
    write_record(out, f"dev-{record}", kept)
    return failed


def test_thresholds_fail_one_by_one(tmp_path: Path) -> None:
    """Protects the acceptance: what was designed passes, and each single departure fails the threshold it concerns."""
    write_records(tmp_path)
    assert all(check.holds for check in checks(tmp_path))
    low = changed(tmp_path, "anchor-rl", math={"finished": 94.0})
    assert "anchor: math, RL ends >= 95%" in low
    floor = changed(tmp_path, "anchor-rl", aime={"solved": {"1": 9, "16": 10}})
    assert "floor on aime: anchor and five of seven" in floor
    ends = changed(tmp_path, "anchor-base", olympiad={"finished": 86.0})
    assert "termination on olympiad, anchor: <= 85% and >= 95%" in ends
    for name, alike in (("control", "anchor-rl"), ("overtrained", "anchor-rl")):
        write_record(tmp_path, f"dev-{name}-rl", read_record(tmp_path, f"dev-{alike}"))
        assert any(check.name.startswith(f"{name}: ") and not check.holds for check in checks(tmp_path))
    for name in SEVEN:
        write_record(tmp_path, f"dev-{name}-rl", read_record(tmp_path, "dev-anchor-rl"))
    alike = [check.name for check in checks(tmp_path) if not check.holds]
    assert {"spread of ln alpha >= 0.3", "distinct paths >= 4"} <= set(alike)


@pytest.mark.cohort
def test_the_committed_card_is_of_the_committed_records(tmp_path: Path) -> None:
    """Protects the card of the cohort: records, thresholds and template give it as it is."""
    folder = ZOO / "cohort"
    shutil.copytree(folder / "records", tmp_path / "records")
    card = write_cohort_card(tmp_path, checks(tmp_path)).read_text()
    assert card == (folder / "README.md").read_text()
    models = {path.parent.name for path in folder.glob("*/model.safetensors")}
    assert set(re.findall(r"^- `(.+?)`", card, re.MULTILINE)) == models


def miniature() -> dict[str, CohortPair]:
    """Two pairs of about ten thousand parameters on few documents: every stage in seconds."""
    made = COHORT["anchor"]
    recipe = replace(
        made.recipe,
        shape=ModelShape(vocabulary=300, hidden=16, layers=1, heads=1, kv_heads=1, ffn=32),
        corpus=replace(made.recipe.corpus, documents=400),
        tokenizer_documents=200,
        pretraining=Pretraining(steps=100, warmup=2, tokens=512),
        rlvr=Rlvr(questions=2, group=2, max_tokens=4, steps=20, stops=False),
        roles={name: Role(4, ROLES[name].kinds, 4) for name in ("math", "stem")},
    )
    control = COHORT["control"]
    shown_first = replace(
        control.demonstrations,
        corpus=replace(control.demonstrations.corpus, documents=40),
        pretraining=Pretraining(steps=2, warmup=1, tokens=1_024),
    )
    return {
        "anchor": replace(made, recipe=recipe),
        "control": replace(made, recipe=recipe, base="anchor", demonstrations=shown_first),
    }


def test_a_cohort_in_miniature(tmp_path: Path) -> None:
    """Protects the whole chain: every job of two pairs with its record and files, and the card; no job runs twice."""
    cohort = miniature()
    shop = Workshop(tmp_path, cohort, scale=0.02)
    for job in ordered(plan([], cohort)):
        assert all(shop.record(need).exists() for need in job.needs)
        shop.do(job.name)
        assert shop.record(job.name).exists()
    for name in ("anchor-base", "anchor-rl", "control-rl"):
        assert (tmp_path / name / "model.safetensors").exists()
    assert not list((tmp_path / "work").glob("*.pt"))
    assert len(read_bytes(tmp_path / "benchmarks" / "rltrain-hard.jsonl.gz").splitlines()) == 256
    dev = read_record(tmp_path, "dev-anchor-rl")
    assert "stem" not in dev["numbers"]
    assert "20" in dev["steps"]
    assert read_record(tmp_path, "rl-control")["recipe"]["rlvr"]["cells"]
    made = checks(tmp_path)
    assert [check.holds for check in made if check.name == "cohort"] == [None]
    card = write_cohort_card(tmp_path, made).read_text()
    assert re.findall(r"^- `(.+?)`", card, re.MULTILINE) == ["anchor-base", "anchor-rl", "control-rl"]
    curve = dev["numbers"]["math"][POLICY]["pass_at"].values()
    assert f"| `anchor-rl` | {', '.join(map(str, curve))} |" in card
    (tmp_path / "work" / "qwen" / "corpus.npz").unlink()
    assert all(shop.done(job.name) for job in plan([], cohort))
    shop.record("base-anchor").unlink()
    assert not shop.done("corpus-qwen")  # a Base still has to read it
    pair = load_pair("anchor", tmp_path)
    assert pair.base.config.hidden_size == 16
    assert len(pair.record["rl"]["curve"]) == 20


def test_training_needs_little() -> None:
    """Protects training on a machine with torch and transformers only: no other dependency is imported."""
    code = """
import sys
for name in ("polars", "pydantic", "math_verify", "pebble", "snakemake", "matplotlib", "statsmodels", "vllm"):
    sys.modules[name] = None
import searchlens_lab.zoo.__main__
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=120)


def test_load_pair_knows_the_first_pair_and_refuses_others() -> None:
    """Protects load_pair: the committed pair answers; an unknown name is refused with the known names."""
    pair = load_pair("micro-1m")
    ids = pair.tokenizer("Problem: Compute 3*14+25.\nSolution:\n", return_tensors="pt")
    text = pair.tokenizer.decode(pair.rl.generate(**ids, max_new_tokens=60, do_sample=False)[0])
    assert "\\boxed{67}" in text
    with pytest.raises(InputError, match="no pair 'micro-2m'"):
        load_pair("micro-2m")
