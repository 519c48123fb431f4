"""RLVR: a group-normalised policy gradient on a binary reward that a program verifies.

In every step, each question gets a group of samples at temperature 1. The reward of a sample is 1 if it ends and its
last box holds the gold, else 0. Its advantage is the reward, centred and scaled within its group; groups that are all
right or all wrong have advantage 0 and are left out. By default there is one on-policy update per batch, without an
importance ratio and without a KL term. The variants in :class:`searchlens_lab.zoo.recipe.Rlvr` scale the advantage
differently, update more than once per batch, or penalise the distance from Base.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from itertools import chain

import torch
from tokenizers import Tokenizer
from torch import Tensor
from tqdm import trange

from searchlens.engines.base import Sampling
from searchlens_lab.zoo.corpus import PAD, pick
from searchlens_lab.zoo.evaluate import decode, is_right
from searchlens_lab.zoo.model import Decoder, compute_dtype, forward_in, token_log_probs
from searchlens_lab.zoo.pretrain import StateFile, optimizer_for, update
from searchlens_lab.zoo.recipe import Recipe, Rlvr
from searchlens_lab.zoo.sample import Sampler, Samples
from searchlens_lab.zoo.tasks import Problem, draw, prompt

_MICROBATCH = 512  # samples in one backward pass; bounds the memory that it takes


def advantages(rewards: Tensor, scale: str = "group") -> Tensor:
    """Rewards (questions, group) centred within each group and scaled; 0 in a group whose rewards are all equal."""
    spread = rewards.std(1, keepdim=True)
    centred = rewards - rewards.mean(1, keepdim=True)
    divisor = {"group": spread + 1e-4, "none": torch.ones(()), "batch": centred.std() + 1e-4}[scale]
    return torch.where(spread > 0, centred / divisor, 0.0)


def policy_gradient(
    model: Decoder,
    prompts: Sequence[Sequence[int]],
    samples: Samples,
    advantage: Tensor,
    settings: Rlvr = Rlvr(),  # noqa: B008 - frozen
    behaviour: Decoder | None = None,
    reference: Decoder | None = None,
) -> float:
    """Add the gradient of -sum(advantage x log-probability) / (generated tokens) to the parameters.

    Samples with advantage 0 are skipped. ``behaviour``: the model that drew the samples, if ``model`` has been updated
    since; the gradient is then that of clipped probability ratios (PPO) instead of log-probabilities. ``reference``:
    the model from which the divergence is measured. Returns the mean of -log-probability over the tokens used, an
    estimate of the entropy in nats per token.
    """
    device = str(next(model.parameters()).device)
    lengths = samples.lengths + torch.tensor([len(p) for p in prompts])
    used = advantage.nonzero()[:, 0]
    used = used[lengths[used].argsort()]
    if len(used) == 0:
        return 0.0
    total = int(samples.lengths[used].sum())
    divisor = total if settings.per_token else len(advantage) * settings.max_tokens
    surprise = 0.0
    for rows in used.split(_MICROBATCH):
        ids, generated = (tensor.to(device) for tensor in _padded(prompts, samples, rows))
        log_probs = token_log_probs(forward_in(model, ids, compute_dtype(device)), ids) * generated[:, 1:]
        gain = log_probs
        if behaviour is not None:
            gain = (log_probs - _frozen(behaviour, ids, generated)).exp()
        worth = gain * advantage[rows, None].to(device)
        if behaviour is not None:
            bounded = gain.clamp(1 - settings.ratio_clip, 1 + settings.ratio_clip)
            worth = torch.minimum(worth, bounded * advantage[rows, None].to(device)) * generated[:, 1:]
        if reference is not None:
            distance = _frozen(reference, ids, generated) - log_probs
            worth = worth - settings.kl * (distance.exp() - distance - 1)
        (-worth.sum() / divisor).backward()
        surprise -= float(log_probs.detach().sum())
    return surprise / total


@torch.no_grad()
def _frozen(model: Decoder, ids: Tensor, generated: Tensor) -> Tensor:
    """Log-probabilities of the generated tokens under a model that is not trained, 0 elsewhere."""
    return token_log_probs(forward_in(model, ids, compute_dtype(ids.device.type)), ids) * generated[:, 1:]


def _padded(prompts: Sequence[Sequence[int]], samples: Samples, rows: Tensor) -> tuple[Tensor, Tensor]:
    """Ids of prompt and completion of each row, right-padded, and whether each id was generated."""
    drawn, lengths = samples.tokens[rows].tolist(), samples.lengths[rows].tolist()
    texts = [(list(prompts[row]), ids[:n]) for row, ids, n in zip(rows.tolist(), drawn, lengths, strict=True)]
    width = max(len(before) + len(after) for before, after in texts)
    ids, generated = [], []
    for before, after in texts:
        rest = width - len(before) - len(after)
        ids.append(before + after + [PAD] * rest)
        generated.append([False] * len(before) + [True] * len(after) + [False] * rest)
    return torch.tensor(ids), torch.tensor(generated)


def plateaued(settings: Rlvr, curve: Sequence[dict[str, float]]) -> bool:
    """The stopping rule, fixed before training: the entropy is below its floor, or the reward no longer rises."""
    if not settings.stops or len(curve) < max(settings.min_steps, 2 * settings.window):
        return False

    def recent(key: str, skip: int = 0) -> float:
        end = len(curve) - skip
        return sum(point[key] for point in curve[end - settings.window : end]) / settings.window

    flat = recent("reward") - recent("reward", settings.window) < settings.patience
    return flat or recent("entropy") < settings.entropy_floor


def train_rlvr(
    base: Decoder,
    tokenizer: Tokenizer,
    recipe: Recipe,
    state_file: StateFile | None = None,
    each: Callable[[int, Decoder], object] | None = None,
) -> tuple[Decoder, list[dict[str, float]]]:
    """Train a copy of ``base`` by RLVR, resuming from a saved state; returns it with a point per step (``_rlvr_step``).

    ``each``: called after every step with its number, from 1, and the model.
    """
    settings = recipe.rlvr
    device = str(next(base.parameters()).device)
    model = Decoder(base.shape).to(device)
    model.load_state_dict(base.state_dict())
    optimizer = optimizer_for(model, settings.betas, 0.0, device)
    sampler = Sampler(model, settings.questions * settings.group, recipe.prompt_tokens, settings.max_tokens)
    rng = random.Random(f"rlvr/{recipe.rl_seed}")
    torch.manual_seed(recipe.rl_seed)
    curve: list[dict[str, float]] = []
    started = time.monotonic()
    if state := state_file and state_file.load(device):
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        curve = state["curve"]
        rng.setstate(state["questions"])
        torch.set_rng_state(state["noise"].cpu())
        if torch.cuda.is_available():
            torch.cuda.set_rng_state(state["cuda"].cpu())
        started -= curve[-1]["seconds"]
    progress = trange(len(curve), settings.steps, desc="rlvr", mininterval=10)
    for step in progress:
        if curve and plateaued(settings, curve):
            break
        problems = [_question(rng, settings) for _ in range(settings.questions)]
        point = _rlvr_step(model, base, optimizer, sampler, tokenizer, problems, settings, step)
        curve.append(point | {"seconds": round(time.monotonic() - started, 1)})
        progress.set_postfix(reward=point["reward"], entropy=point["entropy"], refresh=False)
        if each:
            each(step + 1, model)
        if state_file and state_file.due():
            weights = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            cuda = torch.cuda.get_rng_state() if torch.cuda.is_available() else None
            noise = {"questions": rng.getstate(), "noise": torch.get_rng_state(), "cuda": cuda}
            state_file.save({**weights, "curve": curve, **noise})
    return model, curve


def _question(rng: random.Random, settings: Rlvr) -> Problem:
    if settings.cells:
        kind, level = rng.choice(settings.cells)
        return draw(rng, kind, "train", (level,))
    return draw(rng, pick(rng, settings.kinds), "train", settings.levels)


def _rlvr_step(
    model: Decoder,
    base: Decoder,
    optimizer: torch.optim.AdamW,
    sampler: Sampler,
    tokenizer: Tokenizer,
    problems: Sequence[Problem],
    settings: Rlvr,
    step: int,
) -> dict[str, float]:
    """Sample, reward and update; returns this step's point of the curve.

    ``reward``: mean, before the update. ``entropy``: nats per token. ``tokens``: mean of a sample. ``used``: share of
    samples with an advantage other than 0.
    """
    encoded = [encoding.ids for encoding in tokenizer.encode_batch([prompt(p.question) for p in problems])]
    prompts = list(chain.from_iterable([ids] * settings.group for ids in encoded))
    sampler.load(model)
    samples = sampler.draw(prompts, Sampling(1.0))
    texts = decode(tokenizer, samples)
    finished = samples.finished.tolist()
    rewards = torch.tensor(
        [float(is_right(problems[i // settings.group], text, finished[i])) for i, text in enumerate(texts)]
    )
    advantage = advantages(rewards.view(-1, settings.group), settings.scale).flatten()
    entropies = []
    for i in range(settings.minibatches):
        share = torch.arange(len(advantage)) % settings.minibatches == i
        behaviour, reference = sampler.model if i else None, base if settings.kl else None
        entropies.append(policy_gradient(model, prompts, samples, advantage * share, settings, behaviour, reference))
        update(optimizer, model, settings.lr * min(1.0, (step + 1) / settings.warmup), settings.clip)
    return {
        "step": step + 1,
        "reward": round(float(rewards.mean()), 4),
        "entropy": round(entropies[0], 4),
        "tokens": round(float(samples.lengths.float().mean()), 1),
        "finished": round(float(samples.finished.float().mean()), 4),
        "used": round(float((advantage != 0).float().mean()), 3),
    }
