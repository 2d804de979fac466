"""The trainers whose recipes can be read, those with the surest marks first."""

from __future__ import annotations

import re

from ....errors import Unusable
from .axolotl import AXOLOTL
from .document import Document
from .kohya import DIFFUSERS, KOHYA
from .llama_factory import LLAMA_FACTORY
from .megatron_bridge import MEGATRON_BRIDGE
from .nemo_rl import NEMO_RL
from .openrlhf import OPENRLHF
from .peft import CONFIG, SCRIPT
from .prime_rl import PRIME_RL
from .records import CARD, TRAINER_STATE
from .reef import REEF, REEF_ADAPTER
from .skyrl import SKYRL
from .swift import SWIFT
from .table import Trainer
from .tinker import TINKER
from .torchtitan import TORCHTITAN
from .torchtune import TORCHTUNE
from .trl import TRL
from .unsloth import UNSLOTH
from .verl import VERL

TRAINERS: tuple[Trainer, ...] = (
    REEF,
    REEF_ADAPTER,
    VERL,
    SKYRL,
    NEMO_RL,
    PRIME_RL,
    MEGATRON_BRIDGE,
    OPENRLHF,
    TORCHTUNE,
    TORCHTITAN,
    TINKER,
    LLAMA_FACTORY,
    SWIFT,
    AXOLOTL,
    UNSLOTH,
    KOHYA,
    DIFFUSERS,
    TRAINER_STATE,
    CARD,
    TRL,
    SCRIPT,
    CONFIG,
)


def known_names() -> str:
    """Name all trainers for a message."""
    return ", ".join(dict.fromkeys(trainer.name for trainer in TRAINERS))


def recognise(document: Document) -> Trainer | None:
    """Find whose recipe a document is."""
    return next((trainer for trainer in TRAINERS if trainer.knows(document)), None)


def named(name: str, document: Document) -> Trainer:
    """Find a trainer by the name that somebody gave. Raises Unusable for an unknown one."""
    wanted = _bare(name)
    found = [t for t in TRAINERS if wanted in (_bare(each) for each in (t.name, *t.aliases))]
    if not found:
        raise Unusable("No trainer of that name is known.", remedy=f"Known are {known_names()}.")
    return next((trainer for trainer in found if trainer.knows(document)), found[0])


def _bare(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())
