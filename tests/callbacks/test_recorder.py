"""The model card."""

from __future__ import annotations

from mrtf_fedml.callbacks.recorder import format_model_card


def test_model_card_shows_class_names_and_warnings_as_plain_text() -> None:
    header = {
        "class_names": ["<script>alert(1)</script>", "![x](http://a.b)", "plain"],
        "input_shape": [3],
        "preprocessing": {"kind": "numbers", "mean": None},
        "model": {"model": "mlp"},
        "version": "0",
    }
    summary = {"preset": None, "algorithm": "FedAvg", "rounds": 1, "rounds_requested": 1, "samples_labelled": 1}
    card = format_model_card(header, {**summary, "accuracy": None, "warnings": ["no sample is <b>x</b>"]}, 2, 2)
    assert r"\<script\>alert(1)\</script\>, !\[x\](http\://a.b), plain" in card
    assert r"no sample is \<b\>x\</b\>" in card
