"""A Base/RL pair from a pretrained checkpoint: a supervised warm-up on worked answers, then GRPO.

    python -m searchlens_lab.pretrained.train models/gemma-3-270m models/pair \
        --worked gsm8k_train.jsonl --mawps mawps_fold0_train.csv --rank 24

Base is the model after the warm-up, for both sides of the pair; ``OUT/rl-00010`` and so on are the model after as many
steps of GRPO (Shao et al. 2024): on-policy, rewards less the mean of their group, no penalty of divergence. Questions
of training splits alone. The embedding stays as it is. With a rank, what is trained and written are LoRA adapters of
the model, the warm-up and the steps of GRPO in one; without, whole weights.

Texts are padded on the right and need no mask: attention is causal, and what stands behind a text is never read. Logits
are computed of answers alone, because Gemma's vocabulary makes them the largest array by far.
"""

from __future__ import annotations

import argparse
import json
import math
import re
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parametrize

from searchlens import benchmarks, seeds
from searchlens.benchmarks import prompts
from searchlens.benchmarks.files import rows
from searchlens.errors import InputError
from searchlens.store.checkpoints import PEFT, SETTINGS, WEIGHTS
from searchlens_lab.pretrained.equations import equations

# ---- LoRA adapters (Hu et al. 2021): low-rank matrices that are trained in place of the weights of a network's layers
# They are parametrisations of torch: the layers see W + scale · B A, and neither training nor sampling knows of it.
# What is written is an adapter in PEFT's layout, which both engines read.

LAYERS = ("q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj")
"""The linear layers of attention and of the feed-forward part."""
ALPHA = 32
"""With the scale alpha / r the best learning rate hardly depends on r (Schulman et al. 2025, LoRA Without Regret)."""


class LowRank(nn.Module):
    """W becomes W + alpha / r · B A.

    ``weight``: W, shape (outputs, inputs). ``a``: where A starts, shape (r, inputs). B starts at 0, so that the network
    starts as it is.
    """

    def __init__(self, weight: Tensor, a: Tensor) -> None:
        super().__init__()
        self.scale = ALPHA / len(a)
        self.a = nn.Parameter(a.to(weight.device))
        self.b = nn.Parameter(torch.zeros(len(weight), len(a), device=weight.device))

    def forward(self, weight: Tensor) -> Tensor:
        """The sum, in the type of W; bfloat16 would lose most of a small product."""
        with torch.autocast(weight.device.type, enabled=False):
            return torch.addmm(weight, self.b, self.a, alpha=self.scale)


def add_adapter(model: Any, rank: int, seed: int) -> dict[str, LowRank]:
    """Make an adapter all that can be trained of a network; each layer's name with its matrices."""
    model.requires_grad_(False)
    adapter = {}
    for name, layer in model.named_modules():
        if name.rpartition(".")[2] in LAYERS:
            bound = 1 / math.sqrt(layer.in_features)  # as peft starts
            start = seeds.generator("LoRA", seed, name).uniform(-bound, bound, (rank, layer.in_features))
            adapter[name] = LowRank(layer.weight, torch.tensor(start, dtype=torch.float32))
    if not adapter:
        raise InputError(
            f"the network has no layers {', '.join(LAYERS)}",
            "train whole weights, or take a model whose layers have these names",
        )
    for name, matrices in adapter.items():
        parametrize.register_parametrization(model.get_submodule(name), "weight", matrices)
    return adapter


def save_adapter(adapter: dict[str, LowRank], folder: Path) -> None:
    """Write an adapter in bfloat16, in PEFT's layout."""
    from safetensors.torch import save as as_bytes  # its `save_file` gives files that others cannot read

    folder.mkdir(parents=True, exist_ok=True)
    tensors = {}
    for name, matrices in adapter.items():
        for part, weight in (("A", matrices.a), ("B", matrices.b)):
            tensors[f"{PEFT}{name}.lora_{part}.weight"] = weight.detach().to(torch.bfloat16).cpu()
    (folder / WEIGHTS).write_bytes(as_bytes(tensors, {"format": "pt"}))
    rank = len(next(iter(adapter.values())).a)
    settings = {"peft_type": "LORA", "task_type": "CAUSAL_LM", "r": rank, "lora_alpha": ALPHA, "lora_dropout": 0.0}
    settings |= {"target_modules": list(LAYERS), "bias": "none"}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=1) + "\n")


# ---- training

TEMPLATE = "question-answer"
_ANSWER = re.compile(r"[Tt]he answer is \$?(-?\d+(?:\.\d+)?)")


@dataclass(frozen=True)
class Options:
    """How long and how fast; the defaults are those of whole weights in docs/pretrained.md."""

    warm_steps: int = 195
    warm_batch: int = 64
    warm_rate: float = 3e-5
    """``warm_steps``, ``warm_batch``, ``warm_rate``: steps of supervised training, texts in a step, and the learning
    rate, which falls to a twentieth as a cosine."""
    steps: int = 40
    questions: int = 64
    samples: int = 16
    rate: float = 5e-6
    """``steps``, ``questions``, ``samples``, ``rate``: steps of GRPO, questions in a step, as many of each benchmark,
    texts of each, and the learning rate."""
    rank: int | None = None
    """Of LoRA adapters, in place of whole weights."""
    max_tokens: int = 96
    """Longest answer that is drawn."""
    keep: tuple[int, ...] = (5, 10, 20, 40)
    """Steps of GRPO after which the model is written; the last always is."""
    limit: int = 6_000
    """Tokens of a micro-batch, padded."""
    seed: int = 1


ADAPTER_RATES = {"warm_rate": 5e-4, "rate": 1e-4}
"""Learning rates of adapters, whose matrices are small: ten to twenty times those of whole weights."""


@dataclass(frozen=True)
class Task:
    """A question with the number that answers it."""

    question: str
    gold: float


def worked_answer(answer: str) -> str:
    """An answer of GSM8K as a model is to write it: without marks of the calculator, "The answer is" for ``####``."""
    steps, _, gold = re.sub(r"<<[^>]*>>", "", answer).rpartition("####")
    return f"{' '.join(steps.split())} The answer is {gold.strip().replace(',', '')}."


def reward(text: str, gold: float) -> float:
    """1 for a text that states the right number and no false equation, 0 for others; one without any equation counts.

    A model that cannot calculate is right by chance now and then; refusing false equations rewards less of that.
    """
    stated = _ANSWER.findall(text)
    if not stated or abs(float(stated[-1]) - gold) > 1e-4:
        return 0.0
    return float(all(equations(text)))


class Learner:
    """A model with its tokenizer, of which all weights but the embedding are trained, or a LoRA adapter of a rank."""

    def __init__(self, folder: Path, device: str, rank: int | None = None, seed: int = 1) -> None:
        from tokenizers import Tokenizer
        from transformers import AutoModelForCausalLM

        self.folder, self.device = folder, device
        self.tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self.model: Any = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, trust_remote_code=False, use_safetensors=True
        ).to(device)
        self.model.get_input_embeddings().weight.requires_grad_(False)
        self.adapter = add_adapter(self.model, rank, seed) if rank else None
        self.end = int(self.model.config.eos_token_id)

    def prompt(self, question: str) -> list[int]:
        """Token ids of a question."""
        return list(self.tokenizer.encode(prompts.template(TEMPLATE).render(question)).ids)

    def answer(self, text: str) -> list[int]:
        """Token ids of an answer, with its end."""
        return [*self.tokenizer.encode(f" {text}", add_special_tokens=False).ids, self.end]

    def logprobs(self, texts: Sequence[tuple[list[int], list[int]]]) -> Tensor:
        """Natural log p of every token of some answers, one text after the other, shape (tokens,)."""
        longest = max(len(prompt) + len(answer) for prompt, answer in texts)
        padded = torch.zeros(len(texts), longest, dtype=torch.long)
        places, targets = [], []
        for row, (prompt, answer) in enumerate(texts):
            padded[row, : len(prompt) + len(answer)] = torch.tensor([*prompt, *answer])
            places += [row * longest + len(prompt) - 1 + i for i in range(len(answer))]
            targets += answer
        with self.autocast():
            hidden = self.model.model(input_ids=padded.to(self.device)).last_hidden_state.flatten(0, 1)
            logits = self.model.lm_head(hidden[torch.tensor(places, device=self.device)])
        return -functional.cross_entropy(logits.float(), torch.tensor(targets, device=self.device), reduction="none")

    def autocast(self) -> Any:
        """Bfloat16 for matrix products on a GPU; weights stay in float32."""
        return torch.autocast("cuda", torch.bfloat16, enabled=self.device.startswith("cuda"))

    def descend(
        self,
        optimizer: Any,
        texts: Sequence[tuple[list[int], list[int]]],
        weights: Sequence[float],
        limit: int,
    ) -> float:
        """One step that raises log p of answers by their weights; the mean loss of a token."""
        total = sum(len(answer) for _, answer in texts)
        loss = 0.0
        optimizer.zero_grad(set_to_none=True)
        for batch in _batches(texts, limit):
            each = torch.cat([torch.full((len(texts[i][1]),), weights[i]) for i in batch]).to(self.device)
            part = -(each * self.logprobs([texts[i] for i in batch])).sum() / total
            part.backward()
            loss += float(part.detach())
        if not np.isfinite(loss):
            raise FloatingPointError("the loss is not finite")
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        optimizer.step()
        return loss

    def sample(self, questions: Sequence[str], count: int, max_tokens: int) -> list[tuple[list[int], list[int]]]:
        """Draw answers at temperature 1, ``count`` of each question, one question after the other."""
        asked = [self.prompt(question) for question in questions for _ in range(count)]
        longest = max(map(len, asked))
        padded = torch.tensor([[0] * (longest - len(each)) + each for each in asked], device=self.device)
        mask = torch.tensor([[0] * (longest - len(each)) + [1] * len(each) for each in asked], device=self.device)
        with torch.no_grad(), self.autocast(), parametrize.cached():  # an adapter is added to the weights once
            drawn = self.model.generate(
                input_ids=padded,
                attention_mask=mask,
                do_sample=True,
                temperature=1.0,
                top_k=0,
                top_p=1.0,
                max_new_tokens=max_tokens,
                eos_token_id=self.end,
                pad_token_id=0,
            )[:, longest:].tolist()
        answers = [each[: each.index(self.end) + 1] if self.end in each else each for each in drawn]
        return list(zip(asked, answers, strict=True))

    def save(self, folder: Path) -> None:
        """Write the adapter, or the model with the tokenizer that it came with, in bfloat16."""
        from safetensors.torch import save as as_bytes

        if self.adapter:
            save_adapter(self.adapter, folder)
            return
        folder.mkdir(parents=True, exist_ok=True)
        state = {name: weight.to(torch.bfloat16).cpu() for name, weight in self.model.state_dict().items()}
        state.pop("lm_head.weight", None)  # the embedding
        (folder / "model.safetensors").write_bytes(as_bytes(state, {"format": "pt"}))
        for path in self.folder.glob("*.json"):
            shutil.copy(path, folder)


def _batches(texts: Sequence[tuple[list[int], list[int]]], limit: int) -> Iterator[list[int]]:
    """Positions of texts of similar length, in batches of at most ``limit`` padded tokens."""
    order = sorted(range(len(texts)), key=lambda i: len(texts[i][0]) + len(texts[i][1]))
    batch: list[int] = []
    for i in order:
        length = len(texts[i][0]) + len(texts[i][1])
        if batch and (len(batch) + 1) * length > limit:
            yield batch
            batch = []
        batch.append(i)
    yield batch


def warm_up(learner: Learner, worked: Sequence[tuple[str, str]], options: Options) -> Iterator[dict[str, float]]:
    """Supervised training on questions with worked answers; a record of each step."""
    texts = [(learner.prompt(question), learner.answer(answer)) for question, answer in worked]
    optimizer = _optimizer(learner, options.warm_rate)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: 0.05 + 0.475 * (1 + np.cos(np.pi * step / max(1, options.warm_steps)))
    )
    for step in range(options.warm_steps):
        chosen = seeds.generator("warm-up", options.seed, step).choice(
            len(texts), min(options.warm_batch, len(texts)), replace=False
        )
        part = [texts[i] for i in chosen]
        loss = learner.descend(optimizer, part, [1.0] * len(part), options.limit)
        schedule.step()
        yield {"step": step + 1, "loss": round(loss, 4)}


def reinforce(learner: Learner, tasks: Sequence[Sequence[Task]], options: Options) -> Iterator[dict[str, float]]:
    """GRPO on questions of some benchmarks, as many of each in a step; a record of each step, after it was taken."""
    optimizer = _optimizer(learner, options.rate)
    torch.manual_seed(options.seed)
    for step in range(options.steps):
        generator, each = seeds.generator("GRPO", options.seed, step), options.questions // len(tasks)
        part = [known[i] for known in tasks for i in generator.choice(len(known), min(each, len(known)), replace=False)]
        texts = learner.sample([task.question for task in part], options.samples, options.max_tokens)
        written = learner.tokenizer.decode_batch([answer for _, answer in texts], skip_special_tokens=True)
        golds = np.repeat([task.gold for task in part], options.samples)
        rewards = np.array([reward(text, gold) for text, gold in zip(written, golds, strict=True)])
        groups = rewards.reshape(len(part), options.samples)
        advantages = (groups - groups.mean(1, keepdims=True)).ravel()
        useful = np.flatnonzero(advantages)
        if len(useful):
            learner.descend(optimizer, [texts[i] for i in useful], advantages[useful].tolist(), options.limit)
        yield {
            "step": step + 1,
            "reward": round(float(rewards.mean()), 4),
            "mixed": round(float((groups.std(1) > 0).mean()), 3),
            "tokens": round(float(np.mean([len(answer) for _, answer in texts])), 1),
            "answered": round(float(np.mean([bool(_ANSWER.search(text)) for text in written])), 3),
        }


def _optimizer(learner: Learner, rate: float) -> Any:
    trained = [weight for weight in learner.model.parameters() if weight.requires_grad]
    return torch.optim.AdamW(trained, lr=rate, betas=(0.9, 0.95), weight_decay=0.0)


def train(
    source: Path,
    folder: Path,
    worked: Sequence[tuple[str, str]],
    tasks: Sequence[Sequence[Task]],
    options: Options,
    device: str,
) -> None:
    """Write ``base`` and the kept ``rl-*`` of a pair into a folder, with every step in ``training.jsonl``."""
    learner = Learner(source, device, options.rank, options.seed)
    folder.mkdir(parents=True, exist_ok=True)
    started = time.monotonic()
    with (folder / "training.jsonl").open("w") as log:

        def write(part: str, record: dict[str, float]) -> None:
            record = {"seconds": round(time.monotonic() - started, 1), **record}
            log.write(json.dumps({"part": part, **record}) + "\n")
            log.flush()

        for record in warm_up(learner, worked, options):
            write("warm-up", record)
        learner.save(folder / "base")
        for record in reinforce(learner, tasks, options):
            write("GRPO", record)
            if record["step"] in (*options.keep, options.steps):
                learner.save(folder / f"rl-{int(record['step']):05d}")


def read_tasks(path: Path, family: str, longest: int = 300) -> list[Task]:
    """Questions of a known benchmark's training split of at most ``longest`` characters, each once."""
    found = {question.text: question for question in benchmarks.read([path], family=family, check=False).questions}
    return [Task(text, float(each.gold)) for text, each in found.items() if len(text) <= longest]


def main(argv: Sequence[str] | None = None) -> None:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m searchlens_lab.pretrained.train", description=__doc__.split("\n")[0]
    )
    parser.add_argument("source", type=Path, metavar="MODEL")
    parser.add_argument("folder", type=Path, metavar="OUT")
    parser.add_argument("--worked", type=Path, required=True, help="GSM8K's training split")
    parser.add_argument("--mawps", type=Path, required=True, help="training questions of MAWPS")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--rank", type=int, help="train LoRA adapters of this rank, not whole weights")
    for name in ("warm_steps", "steps", "questions", "samples", "seed"):
        parser.add_argument(f"--{name.replace('_', '-')}", type=int, help=f"default {getattr(Options, name)}")
    for name, adapted in ADAPTER_RATES.items():
        said = f"learning rate, default {getattr(Options, name):g}, with --rank {adapted:g}"
        parser.add_argument(f"--{name.replace('_', '-')}", type=float, help=said)
    args = parser.parse_args(argv)
    if args.rank is not None and args.rank < 1:
        parser.error(f"--rank {args.rank}: it must be a whole number of at least 1")
    for name, what in (("questions", "one of each benchmark"), ("samples", "a text alone has no group")):
        if (count := getattr(args, name)) is not None and count < 2:
            parser.error(f"--{name} {count}: at least 2, {what}")
    named = {each.name: getattr(args, each.name, None) for each in fields(Options)}
    given = {name: value for name, value in named.items() if value is not None}
    options = replace(Options(), **{**(ADAPTER_RATES if args.rank else {}), **given})
    tasks = [read_tasks(args.mawps, "mawps"), read_tasks(args.worked, "gsm8k")]
    worked = [(row["question"], worked_answer(row["answer"])) for row in rows(args.worked, args.worked.read_bytes())]
    train(args.source, args.folder, worked, tasks, options, args.device)


if __name__ == "__main__":
    main()
