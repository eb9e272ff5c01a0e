"""The watch over a run: each thing that looks wrong is one sentence, and what goes well stays quiet."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mrtf_fedml.data.neighbours import Nearness
from mrtf_fedml.rounds.judgement_signs import Judgement
from mrtf_fedml.rounds.watch import Evidence, signs

CLASSES = ["cat", "dog", "owl", "fox"]
LABELS = torch.arange(40) % 4
#: Two clients with all classes, and one with the first two.
COUNTS = np.array([[10, 10, 10, 10], [5, 5, 5, 5], [8, 8, 0, 0]])


def sure_of(labels: Tensor, strength: float = 6.0) -> Tensor:
    """Logits that say these classes; with 6 they are sure, with 0.5 hardly."""
    return strength * torch.nn.functional.one_hot(labels, len(CLASSES)).float()


#: A run that went well: the model follows its teachers, who mend a tenth of what the average says.
GOOD = Evidence(
    logits=sure_of(LABELS),
    class_names=CLASSES,
    losses=[1.4, 1.1, 0.9, 0.8, 0.6, 0.5, 0.45],
    aggregated=sure_of(torch.where(torch.arange(40) % 10 == 0, (LABELS + 1) % 4, LABELS)),
    ensemble=sure_of(LABELS),
    counts=COUNTS,
    took_part=frozenset({0, 1, 2}),
)


def told(**changes: Any) -> str:
    """The one sentence that these changes to a good run bring about."""
    (sentence,) = signs(replace(GOOD, **changes))
    return sentence


def test_a_good_run_is_quiet_whatever_of_it_is_known() -> None:
    assert signs(GOOD) == []
    assert signs(Evidence(GOOD.logits, CLASSES)) == [], "an algorithm without teachers, across silos, with privacy"
    assert signs(replace(GOOD, losses=[0.01, 0.02, 0.01, 0.05, 0.06, 0.05])) == [], "small losses may double"
    assert signs(replace(GOOD, losses=[0.9, 0.4, 1.2, 0.5, 1.1, 0.3, 0.8, 0.6])) == [], "single rounds differ"
    assert signs(replace(GOOD, losses=[9.0, 2.0, 0.5, 0.4, 0.3])) == [], "a first round may overshoot"


def test_one_class_for_nearly_everything() -> None:
    one = torch.zeros(40, dtype=torch.int64)
    same = {"logits": sure_of(one), "aggregated": sure_of(one), "ensemble": sure_of(one)}
    assert "100% of the samples are labelled 'cat'" in told(**same)
    assert "100% of the samples are labelled 'cat'" in told(**same, counts=None), "across silos too"
    rare = np.array([[970, 10, 10, 10]])
    assert signs(replace(GOOD, **same, counts=rare, took_part=frozenset({0}))) == [], "clients know it as the rule"
    few = {key: value[:10] for key, value in same.items()}
    assert signs(replace(GOOD, **few)) == [], "ten samples may well be of one class"
    most = torch.where(torch.arange(40) < 4, LABELS, 0)
    mostly = {"logits": sure_of(most), "aggregated": sure_of(most), "ensemble": sure_of(most)}
    assert signs(replace(GOOD, **mostly)) == []


def test_a_class_that_no_client_has_taught() -> None:
    sentence = told(took_part=frozenset({2}))
    assert "50% of the samples are labelled 'owl', 'fox', of which no client that took part has a sample" in sentence
    assert signs(replace(GOOD, counts=None, took_part=frozenset({2}))) == [], "who does not know cannot say"


def test_confidence_without_its_teachers() -> None:
    others = sure_of(torch.where(torch.arange(40) % 5 < 3, (LABELS + 1) % 4, LABELS))
    assert "gives the label of the clients' models together for 40% of the samples only" in told(ensemble=others)
    unsure = {"logits": sure_of(LABELS, 0.5), "ensemble": others}
    assert signs(replace(GOOD, **unsure)) == [], "a model that is not sure claims nothing"


def test_refining_that_changes_most_labels() -> None:
    others = sure_of(torch.where(torch.arange(40) % 10 < 7, (LABELS + 1) % 4, LABELS))
    assert "refining has changed the label of 70% of the samples" in told(aggregated=others)
    half = sure_of(torch.where(torch.arange(40) % 2 < 1, (LABELS + 1) % 4, LABELS))
    assert signs(replace(GOOD, aggregated=half)) == [], "a poor average is what the refinery is for"


def test_a_loss_that_grows_or_overshoots() -> None:
    assert "loss grows (from 0.5 to 1.3)" in told(losses=[0.6, 0.5, 0.5, 0.9, 1.2, 1.3, 1.4])
    assert "reached 827, where guessing has 1.39" in told(losses=[0.7, 827.0])
    assert "reached 827" in told(losses=[827.0]), "a single round is told too"


def test_clients_that_learn_nothing() -> None:
    assert "they have learnt nearly nothing" in told(losses=[1.4, 1.39, 1.4, 1.38])
    assert "they have learnt nearly nothing" in told(losses=[1.4, 1.39, 1.4, 1.38], counts=None)
    assert signs(replace(GOOD, losses=[1.4, 1.3, 1.0, 0.6, 0.5, 0.4])) == []
    assert "fit their own samples poorly" in told(
        losses=[1.4, 1.3, 1.0, 0.9], counts=SIX, took_part=frozenset(range(6))
    )
    # Clients of one class each need not guess; their losses say little, unless they are large.
    alone = np.diag([10, 10, 10, 10])
    assert signs(replace(GOOD, losses=[0.05, 0.06, 0.05], counts=alone, took_part=frozenset(range(4)))) == []


def test_a_servers_set_that_is_unlike_the_clients() -> None:
    assert "48% of the server's samples are unlike any of the clients' (5% is usual)" in told(nearness=near(0.48))
    assert "some may be of a kind or a class that no client knows" in told(nearness=near(0.15))
    assert signs(replace(GOOD, nearness=near(0.09))) == []
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    blamed = replace(GOOD, votes=shifted, voters=range(6), counts=SIX, nearness=near(0.48))
    assert ["unlike" in sentence for sentence in signs(blamed)] == [True], "no client is to blame for that"


def near(novel: float, agreeing: float | None = None, expected: float = 0.95) -> Nearness:
    return Nearness(novel, 0.05, 0.06, agreeing, None if agreeing is None else expected)


def test_features_that_no_mixture_of_the_clients_classes_explains() -> None:
    assert "40% of the features lie on average where no mixture" in told(nearness=replace(near(0.05), moved=0.4))
    assert signs(replace(GOOD, nearness=replace(near(0.05), moved=0.1))) == []


def test_labels_that_the_clients_nearest_samples_do_not_bear() -> None:
    assert "38% of these labels or more are likely to be wrong" in told(nearness=near(0.05, 0.57))
    assert signs(replace(GOOD, nearness=near(0.05, 0.8))) == []
    assert signs(replace(GOOD, nearness=near(0.05, 0.3, expected=0.4))) == [], "neighbours that know little themselves"


def test_a_server_that_has_one_class_alone() -> None:
    one = sure_of(torch.zeros(40, dtype=torch.int64))
    same = {"logits": one, "aggregated": one, "ensemble": one}
    assert signs(replace(GOOD, **same, nearness=near(0.05, 0.9))) == []
    assert "100% of the samples are labelled 'cat'" in told(**same, nearness=near(0.05, 0.3, expected=0.4))


def test_too_few_samples_to_learn_from() -> None:
    counts = np.array([[2, 2, 2, 2], [2, 2, 2, 2]])
    assert "the clients have 16 labelled samples in all, for 4 classes" in told(counts=counts, took_part={0, 1})


def test_what_the_clients_estimate() -> None:
    assert "the clients find 52% of this model's labels of their own samples right" in told(
        judged=Judgement(0.52, 0.03)
    )
    assert signs(replace(GOOD, judged=Judgement(0.62, 0.06))) == [], "within chance"
    assert signs(replace(GOOD, judged=Judgement(0.9, 0.02))) == []


def test_a_refined_model_that_answers_though_the_clients_find_the_average_better() -> None:
    sentence = told(judged=Judgement(0.9, 0.01, gain=-0.04, gain_error=0.01))
    assert "worse than the plain average of theirs (by 0.040 ± 0.010 on samples of their own)" in sentence
    assert "mrtf compare --rehearse 0.2" in sentence
    assert signs(replace(GOOD, judged=Judgement(0.9, 0.01, gain=0.04, gain_error=0.01))) == [], "refining helps"
    assert signs(replace(GOOD, judged=Judgement(0.9, 0.01, gain=-0.04, gain_error=0.03))) == [], "within chance"
    assert signs(replace(GOOD, judged=Judgement(0.9, 0.01, gain=-0.004, gain_error=0.001))) == [], "not worth a word"
    better = Judgement(0.9, 0.01, gain=-0.04, gain_error=0.01, refined_answers=False)
    assert signs(replace(GOOD, judged=better)) == [], "the better one answers"


def test_a_class_that_the_model_misses_among_the_clients_own_samples() -> None:
    found = torch.tensor([[900, 900, 900, 30], [900, 890, 870, 0]])
    assert "of the clients' own samples of 'fox' this model finds 0%" in told(found=found)
    few = torch.tensor([[900, 900, 900, 9], [900, 890, 870, 0]])
    assert signs(replace(GOOD, found=few)) == [], "nine samples may be hard ones"
    half = torch.tensor([[900, 900, 900, 30], [900, 890, 870, 10]])
    assert signs(replace(GOOD, found=half)) == [], "a rare class may be hard to tell"
    most = torch.tensor([[900, 900, 900, 30], [900, 0, 90, 0]])
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    blamed = replace(GOOD, votes=shifted, voters=range(6), counts=SIX, found=most)
    assert ["'dog', 'owl', 'fox'" in sentence for sentence in signs(blamed)] == [True], "no client is to blame for that"
    idle = replace(GOOD, losses=[1.4, 1.4, 1.4], found=found)
    assert ["learnt nearly nothing" in sentence for sentence in signs(idle)] == [True], "that is said already"


def test_samples_of_another_kind_whose_neighbours_bear_other_labels() -> None:
    of_another = replace(near(0.05, 0.75), apart=0.99)
    assert "told from the clients' of the same class nearly always" in told(nearness=of_another)
    assert signs(replace(GOOD, nearness=replace(of_another, agreeing=0.9))) == [], "their labels may be right"
    assert signs(replace(GOOD, nearness=replace(of_another, apart=0.7))) == [], "of one kind a fifth is chance"
    shifted = torch.stack([(LABELS + 1) % 4, *[LABELS] * 5])
    blamed = replace(GOOD, votes=shifted, voters=range(6), counts=SIX, nearness=of_another)
    assert ["another kind" in sentence for sentence in signs(blamed)] == [True], "no client is to blame for that"


def test_a_class_that_nobody_teaches() -> None:
    counts = COUNTS * [1, 1, 1, 0]
    few = torch.where(LABELS == 3, 0, LABELS)
    same = {"logits": sure_of(few), "aggregated": sure_of(few), "ensemble": sure_of(few)}
    assert "no client has a sample of 'fox'" in told(counts=counts, **same)


#: Six clients who have ten samples of each class, and what their models say of the server's samples.
SIX = np.full((6, 4), 10)


def of_six(*votes: Tensor) -> list[str]:
    voters = list(range(len(votes)))
    return signs(replace(GOOD, votes=torch.stack(votes), voters=voters, counts=SIX, took_part=frozenset(voters)))


def test_clients_whose_labels_contradict_each_other() -> None:
    shifted = (LABELS + 1) % 4
    swapped = torch.tensor([1, 0, 2, 3])[LABELS]
    assert of_six(*[LABELS] * 6) == []
    mistaken = torch.where(LABELS == 0, 1, LABELS)
    assert of_six(*[mistaken] * 3, *[LABELS] * 3) == [], "a class that is hard to tell is not a swapped one"
    (odd,) = of_six(shifted, *[LABELS] * 5)
    assert "the model of client 0 contradicts the others' on 100% of the samples" in odd
    idle = replace(
        GOOD, losses=[1.4, 1.4, 1.4], votes=torch.stack([shifted, *[LABELS] * 5]), voters=range(6), counts=SIX
    )
    assert ["learnt nearly nothing" in sentence for sentence in signs(idle)] == [True], "nobody is blamed for that"
    (all_of_them,) = of_six(*[shifted] * 3, *[(LABELS + 2) % 4] * 3)
    assert "the clients' models contradict each other" in all_of_them
    (camps,) = of_six(*[swapped] * 3, *[LABELS] * 3)
    assert "'cat' is 'dog' to some; 'dog' is 'cat' to some" in camps


def test_clients_who_do_not_know_a_class_contradict_nobody() -> None:
    counts = SIX.copy()
    counts[:, 2:] = 0
    counts[5] = [0, 0, 10, 10]
    # Five know cats and dogs only, and call an owl a cat.
    few = torch.where(LABELS < 2, LABELS, 0)
    votes = torch.stack([*[few] * 5, torch.where(LABELS < 2, 2, LABELS)])
    assert signs(replace(GOOD, votes=votes, voters=range(6), counts=counts, took_part=frozenset(range(6)))) == []
    # One that was asked about too few samples is no witness.
    assert signs(replace(GOOD, votes=votes[:1], voters=[0], counts=counts, took_part=frozenset(range(6)))) == []
