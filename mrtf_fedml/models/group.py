"""Different models per client (`model_args.models`): one module that holds all of them, and its state dict.

Every party has the whole group, so that messages, checkpoints and checks are those of one model. A client trains one
member. The entry `active` of a state dict says which member it is about; in the server's weights it is -1: all.
"""

from __future__ import annotations

import math
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

from .state_dict import StateDict, average

#: The entry of a state dict with the index of the member that was trained; -1 for all.
ACTIVE = "active"
ALL = -1
_MEMBERS = "members"


class ModelGroup(nn.Module):
    """Several classifiers of the same classes. All together predict the mean of their probabilities.

    Attributes:
        members: by name, in the order of their indices.
        own: the index of the member that this process trains, in train mode; None on a server.

    >>> group = ModelGroup({"one": nn.Linear(2, 3), "two": nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 3))})
    >>> sorted(group.state_dict())[:3]
    ['active', 'members.one.bias', 'members.one.weight']
    >>> round(group.eval()(torch.ones(1, 2)).exp().sum().item(), 4)
    1.0
    """

    def __init__(self, members: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.members = nn.ModuleDict(members)
        self.own: int | None = None
        self.active: Tensor
        self.register_buffer(ACTIVE, torch.tensor(ALL))

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits of one member, or the logarithm of the mean of all members' probabilities, [N, C] or [N, C, T]."""
        index = self.own if self.training and self.own is not None else int(self.active)
        members = list(self.members.values())
        if index != ALL:
            logits: Tensor = members[index](inputs)
            return logits
        logarithms = torch.stack([member(inputs).float().log_softmax(dim=1) for member in members])
        return logarithms.logsumexp(dim=0) - math.log(len(members))


def students(model: nn.Module) -> list[nn.Module]:
    """The models that are distilled one by one: a group's members, or the model itself."""
    return list(model.members.values()) if isinstance(model, ModelGroup) else [model]


def trained_member(weights: StateDict) -> int | None:
    """The index of the member that was trained; None if the weights are not those of a group."""
    return int(weights[ACTIVE]) if ACTIVE in weights else None


def member_names(weights: Iterable[str]) -> list[str]:
    """The names of a group's members, in the order of their indices."""
    return list(dict.fromkeys(key.split(".")[1] for key in weights if key.startswith(f"{_MEMBERS}.")))


def with_member(weights: StateDict, index: int) -> OrderedDict[str, Tensor]:
    """The weights, marked as those of the member with this index."""
    return OrderedDict(weights) | {ACTIVE: torch.tensor(index)}


def restrict_to_member(weights: StateDict, start: StateDict) -> StateDict:
    """The trained member's entries of `weights`, and those of theta_t for the others, whatever a client has sent."""
    index = trained_member(weights)
    if index is None:
        return weights
    own = set(own_keys(start, index))
    return {key: weights[key] if key in own else value for key, value in start.items()}


def find_invalid_member(weights: StateDict, start: StateDict) -> str | None:
    """Why an update is not one of a member of the group; None where it is, and where there is no group."""
    index, names = trained_member(weights), member_names(start)
    if index is None or (0 <= index < len(names) and all(key in weights for key in own_keys(start, index))):
        return None
    return f"its model has the index {index}, which is not that of one of model_args.models"


def own_keys(weights: Iterable[str], index: int) -> list[str]:
    """The entries that belong to the member with this index, `active` included; all of them for -1."""
    names = member_names(weights)
    prefix = f"{_MEMBERS}." if index == ALL else f"{_MEMBERS}.{names[index]}."
    return [key for key in weights if key == ACTIVE or key.startswith(prefix)]


def average_by_member(models: Sequence[StateDict], counts: Sequence[float]) -> OrderedDict[str, Tensor]:
    """Each member's average over the models that trained it; a member that none trained stays as it was.

    Args:
        models: of `restrict_to_member`.
        counts: the weight of each model.

    >>> group = {"active": torch.tensor(0), "members.a.w": torch.tensor(1.0), "members.b.w": torch.tensor(5.0)}
    >>> other = {"active": torch.tensor(0), "members.a.w": torch.tensor(3.0), "members.b.w": torch.tensor(5.0)}
    >>> average_by_member([group, other], [1, 1])["members.a.w"], average_by_member([group], [1])["active"]
    (tensor(2.), tensor(-1))
    """
    averaged = OrderedDict(models[0])
    for index, name in enumerate(member_names(models[0])):
        own = [place for place, model in enumerate(models) if trained_member(model) == index]
        if own:
            total = sum(counts[place] for place in own)
            shares = [counts[place] / total for place in own]
            prefix = f"{_MEMBERS}.{name}."
            parts = [{key: value for key, value in models[place].items() if key.startswith(prefix)} for place in own]
            averaged |= average(parts, shares)
    return with_member(averaged, ALL)
