"""Inputs of sampling: questions and weights, where they are, and their hashes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache, cached_property
from pathlib import Path

from searchlens import benchmarks
from searchlens.benchmarks import prompts
from searchlens.benchmarks.prompts import WorkedExamples
from searchlens.config import project
from searchlens.errors import InputError, within
from searchlens.plan import pins
from searchlens.plan._study import StudyCells
from searchlens.plan.cost import Shape
from searchlens.store import chat, checkpoints
from searchlens.store.chat import ChatTemplate
from searchlens.store.checkpoints import Adapter, fingerprint, weight_files
from searchlens.store.specials import Specials

FINGERPRINT_LIMIT = 256 * 2**20
"""Bytes of weights above which a fingerprint must be declared, because every job would compute it at its start."""


def remember(owner: object, *methods: str) -> None:
    """Let an object keep the answers of some of its methods: a planner asks for them thousands of times."""
    vars(owner).update({name: cache(getattr(owner, name)) for name in methods})


class Inputs:
    """Questions and weights of a study."""

    def __init__(self, study: StudyCells) -> None:
        self.study, self.config, self.root, self.layout = study, study.config, study.root, study.layout
        remember(self, "_load", "absent", "count", "content_hash", "asked_hash", "examples")
        remember(self, "shape", "specials", "_chat_digest", "fingerprint")

    @cached_property
    def lock(self) -> pins.Lock:
        """The lock file: which commits and files the ``hub`` names stand for."""
        return pins.Lock.read(self.root / self.config.lock)

    def sources(self, *, everything: bool = False) -> list[pins.Source]:
        """Every hub repository that this study samples from, or that the whole configuration names; each once."""
        checkpoints, names = list(self.config.checkpoints), list(self.config.benchmarks)
        if not everything:
            cells = [
                (c, b) for c, b in self.study.cells if c in checkpoints and b in names and self.study.is_sampled(c, b)
            ]
            checkpoints, names = [c for c, _ in cells], [b for _, b in cells]
        models = [source for name in checkpoints if (source := self.checkpoint_source(name))]
        return list(dict.fromkeys([*models, *(source for name in names for source in self.dataset_sources(name))]))

    # ---- questions

    def questions(self, name: str) -> tuple[benchmarks.Question, ...]:
        """The questions of a benchmark that this configuration uses, read once."""
        return self._load(name).questions

    def _load(self, name: str) -> benchmarks.LoadedBenchmark:
        spec = self.study.benchmark(name)
        with within(f"benchmarks.{name}"):
            paths = self.question_files(name)
            return benchmarks.read(
                paths, spec.family, expected_sha256=spec.sha256, limit=spec.questions, check=spec.check
            )

    @property
    def unknown_wordings(self) -> list[str]:
        """A sentence for each benchmark of the study some of whose questions are in no known wording."""
        used = list(dict.fromkeys(benchmark for _, benchmark in self.study.cells))
        notices = {name: self._load(name).notice for name in used if not self.absent(name)}
        return [f"benchmarks.{name}: {notice}" for name, notice in notices.items() if notice]

    def dataset_sources(self, name: str) -> list[pins.Source]:
        """The hub datasets of a benchmark, one for each split; none if it has a path."""
        spec = self.study.benchmark(name)
        if spec.path is not None:
            return []
        return [pins.Source(split.id, spec.revision, split) for split in benchmarks.known_benchmark(spec.family).splits]

    def question_files(self, name: str) -> list[Path]:
        """Files and folders that hold a benchmark.

        An InputError: a dataset of the hub that is not pinned, not fetched, or not what was pinned.
        """
        path = self.study.benchmark(name).path
        if path is not None:
            return [project.locate(each, self.root) for each in ([path] if isinstance(path, str) else path)]
        hash_of = pins.Hashes(self.layout.hashes)
        return [pins.check(source, self.lock[source], hash_of) for source in self.dataset_sources(name)]

    def absent(self, name: str) -> str:
        """Why the questions of a benchmark cannot be read here; empty if they can be.

        A study with such a benchmark can be planned, with a placeholder for the questions, but not run
        (``require_ready``), unless all of its cells are recorded.
        """
        spec = self.study.benchmark(name)
        if spec.family == benchmarks.OWN and not self.study.is_recorded(benchmark=name):
            return ""
        if spec.path is not None:
            absent = [str(path) for path in self.question_files(name) if not path.exists()]
            return f"benchmark {name!r}: {', '.join(absent)} does not exist" if absent else ""
        for source in self.dataset_sources(name):
            pin = self.lock.get(source)
            if pin is None:
                return f"not pinned: {source}"
            if pins.missing_files(source, pin):
                return f"not fetched: {source} at {pin.commit}"
        return ""

    def count(self, name: str) -> int:
        """Number of questions in use; if absent, the published one of the family, or an InputError without one."""
        if not self.absent(name):
            return len(self.questions(name))
        spec = self.study.benchmark(name)
        if spec.questions is None and spec.family == benchmarks.OWN:
            raise InputError(
                f"{self.absent(name)}, and benchmarks.{name}.questions does not say how many there are",
                "put the file there, or set the key to the number of recorded questions",
            )
        return int(spec.questions or next(iter(benchmarks.known_benchmark(spec.family).sizes), 0))

    def content_hash(self, benchmark: str) -> str:
        """Hash of the questions in use with their golds, which decide the verdicts; or a placeholder (``absent``)."""
        return self.absent(benchmark) or benchmarks.content_hash(self.questions(benchmark))

    def asked_hash(self, benchmark: str) -> str:
        """Hash of the questions in use without golds, whose correction needs no new samples; or a placeholder."""
        return self.absent(benchmark) or benchmarks.asked_hash(self.questions(benchmark))

    def examples(self, name: str) -> WorkedExamples | None:
        """The worked examples of a configured benchmark, read once; None if its prompts show none.

        An InputError: the file cannot be used, or a question of the benchmark is among the examples that every prompt
        shows.
        """
        spec = self.config.benchmarks[name].examples
        if spec is None:
            return None
        file = project.locate(spec.path, self.root)
        with within(f"benchmarks.{name}.examples"):
            worked = prompts.read_examples(file, spec.count, spec.seed if spec.drawn else None)
            if not self.absent(name):
                prompts.require_others(file, worked, (question.text for question in self.questions(name)))
        return worked

    # ---- weights

    def checkpoint_source(self, checkpoint: str) -> pins.Source | None:
        """The hub repository of a checkpoint; None for a folder."""
        spec = self.config.checkpoints[checkpoint]
        return pins.Source(spec.hub, spec.revision) if spec.hub else None

    def checkpoint_folder(self, checkpoint: str) -> Path:
        """Folder of the weights; an InputError for a hub checkpoint that is not pinned."""
        source = self.checkpoint_source(checkpoint)
        if source is None:
            return project.locate(str(self.config.checkpoints[checkpoint].path), self.root)
        return pins.snapshot(source, self.lock[source])

    def adapter(self, checkpoint: str) -> Adapter | None:
        """The adapter that is added to the weights of a checkpoint; None for most.

        An InputError: files are missing or damaged, or it is not plain LoRA.
        """
        path = self.config.checkpoints[checkpoint].adapter
        if path is None:
            return None
        with within(f"checkpoints.{checkpoint}.adapter"):
            return Adapter.read(project.locate(path, self.root))

    def checked_folder(self, checkpoint: str) -> Path:
        """``checkpoint_folder``, after comparing its bytes with the pinned or declared hash.

        An InputError: not pinned, missing, or different.
        """
        source, hash_of = self.checkpoint_source(checkpoint), pins.Hashes(self.layout.hashes)
        if source is not None:
            return pins.check(source, self.lock[source], hash_of)
        folder, declared = self.checkpoint_folder(checkpoint), self.config.checkpoints[checkpoint].sha256
        if declared and (actual := fingerprint(folder, hash_of)) != declared:
            raise InputError(
                f"checkpoint {folder} has fingerprint {actual[:12]}…, the configuration declares {declared[:12]}…",
                f"restore the files, or update checkpoints.{checkpoint}.sha256 if the change is meant",
            )
        return folder

    def is_here(self, checkpoint: str) -> bool:
        """Whether the files of a checkpoint are on this machine; a folder always is, or its absence is an error."""
        source = self.checkpoint_source(checkpoint)
        pin = self.lock.get(source) if source else None
        return source is None or (pin is not None and not pins.missing_files(source, pin))

    def require_whole(self, checkpoint: str, *, sampled: bool = True) -> None:
        """Check the files of a checkpoint and of its adapter by headers and sizes; one that is not here is left out.

        An InputError: a file is damaged or cut short, or needs code of its own, or the adapter is another checkpoint's.
        """
        if not self.is_here(checkpoint):
            return
        folder, where = self.checkpoint_folder(checkpoint), f"checkpoints.{checkpoint}"
        with within(f"{where}.hub" if self.checkpoint_source(checkpoint) else f"{where}.path"):
            weight_files(folder)
            checkpoints.require_whole(folder, embedded=self.study.engine(checkpoint).embedded, sampled=sampled)
        if adapter := self.adapter(checkpoint):
            with within(f"{where}.adapter"):
                adapter.require_fits(folder)

    def shape(self, checkpoint: str) -> Shape | None:
        """The shape of a checkpoint: pinned, of its folder, or declared; None if it is unknown.

        Prices of a run are made of it, so it comes from files that all jobs of the run have, and never from a download.
        """
        source, declared = self.checkpoint_source(checkpoint), self.config.checkpoints[checkpoint].shape
        pin = self.lock.get(source) if source else None
        found = pin.shape if pin else None if source else pins.shape_of(self.checkpoint_folder(checkpoint))
        return found or (Shape(**vars(declared)) if declared else None)

    def specials(self, checkpoint: str) -> Specials | None:
        """What ends and pads the texts of a checkpoint: pinned, or of its folder; None if it is not pinned or not here.

        An InputError: a file is damaged, or no token ends a text.
        """
        source = self.checkpoint_source(checkpoint)
        if self.absent_weights(checkpoint) or (source and not self.lock.get(source)):
            return None
        with within(f"checkpoints.{checkpoint}.path"):
            found = self.lock[source].specials if source else Specials.read(self.checkpoint_folder(checkpoint))
        assert found is not None, "of a dataset"
        if not found.ends and not self.config.checkpoints[checkpoint].stop_tokens:
            raise InputError(
                f"checkpoints.{checkpoint}: no file names a token that ends a text",
                f"set eos_token_id in generation_config.json, or checkpoints.{checkpoint}.stop_tokens",
            )
        return found

    def template(self, checkpoint: str, benchmark: str) -> prompts.Template:
        """The prompt template of a checkpoint for a configured benchmark.

        An InputError: answers of worked examples contain a text that ends answers, or the checkpoint has no chat
        template.
        """
        spec = self.config.benchmarks[benchmark]
        asked, own = self.config.checkpoints[checkpoint], self.config.templates
        template = prompts.template(asked.template, spec.wording, recipe_stops=spec.recipe_stops, own=own)
        if template.chat:
            template = replace(template, chat=replace(template.chat, digest=self._chat_digest(checkpoint)))
        examples = self.examples(benchmark) if asked.examples else None
        if examples is None:
            return template
        with within(f"benchmarks.{benchmark}.examples"):
            return template.with_examples(examples)

    def _chat_digest(self, checkpoint: str) -> str:
        """Digest of the chat template of a checkpoint; a placeholder if it is not pinned or not here."""
        source = self.checkpoint_source(checkpoint)
        if absent := self.absent_weights(checkpoint):
            return absent
        if source is None:
            template = ChatTemplate.read(self.checkpoint_folder(checkpoint))
            found = template.digest if template else ""
        elif pin := self.lock.get(source):
            found = pin.chat or ""
        else:
            return f"not pinned: {source}"
        if not found:
            self.fingerprint(checkpoint)  # which says so if the folder is not there
            raise InputError(
                f"checkpoints.{checkpoint}.template: its tokenizer has no chat template, neither {chat.FILE} nor"
                " chat_template in tokenizer_config.json",
                "write the turns as a template of your own (docs/templates.md)",
            )
        return found

    def absent_weights(self, checkpoint: str) -> str:
        """Why weights or adapter of a checkpoint whose cells are all recorded cannot be read here; empty otherwise."""
        spec = self.config.checkpoints[checkpoint]
        paths = [spec.path, spec.adapter] if self.study.is_recorded(checkpoint=checkpoint) else []
        absent = [path for path in paths if path and not project.locate(path, self.root).is_dir()]
        return f"checkpoint {checkpoint!r}: {', '.join(absent)} does not exist" if absent else ""

    def fingerprint(self, checkpoint: str) -> str:
        """The fingerprint of a checkpoint and its adapter: pinned, declared, or computed if the checkpoint is small.

        A hub checkpoint that is not pinned has a placeholder that no weights have, so that a study can be planned, but
        not run (``require_ready``). So has a checkpoint whose cells are all recorded and whose weights are not here. An
        InputError: files are missing, or too large to hash at planning time.
        """
        if absent := self.absent_weights(checkpoint):
            return absent
        adapter, alone = self.adapter(checkpoint), self._fingerprint(checkpoint)
        return adapter.on(alone) if adapter else alone

    def _fingerprint(self, checkpoint: str) -> str:
        spec = self.config.checkpoints[checkpoint]
        if source := self.checkpoint_source(checkpoint):
            pin = self.lock.get(source)
            return pin.fingerprint if pin else f"not pinned: {source}"
        with within(f"checkpoints.{checkpoint}.path"):
            folder = self.checkpoint_folder(checkpoint)
            files = weight_files(folder)
        if spec.sha256 is None and sum(path.stat().st_size for path in files) > FINGERPRINT_LIMIT:
            raise InputError(
                f"checkpoint {checkpoint!r} is too large to hash at every start",
                f"run `searchlens fingerprint {spec.path}` once and set checkpoints.{checkpoint}.sha256",
            )
        return spec.sha256 or fingerprint(folder)
