"""CharLSTM, FedAvg's network for Shakespeare, which predicts the next character.

H. B. McMahan, E. Moore, D. Ramage, S. Hampson, B. Agüera y Arcas. Communication-efficient learning of deep
networks from decentralized data. AISTATS 2017.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn

from ...errors import UserError


class CharLSTM(nn.Module):
    """Characters embedded in 8 numbers, two LSTM layers of 256, and C logits from the last step's output.

    Args:
        input_shape: shape of one sample, [T].
        classes: C, the number of logits.
        vocabulary: number of different characters, given as indices 0 to vocabulary - 1.
    """

    def __init__(self, input_shape: Sequence[int], classes: int, vocabulary: int) -> None:
        super().__init__()
        if len(input_shape) != 1:
            shape = " x ".join(str(size) for size in input_shape)
            raise UserError(
                f"model_args.model 'charlstm' needs sequences of character indices, but a sample here is {shape}; "
                f"use a model for images, or `model: mlp`, which takes any shape"
            )
        self.embedding = nn.Embedding(vocabulary, 8)
        self.lstm = nn.LSTM(8, 256, num_layers=2, batch_first=True)
        self.classifier = nn.Linear(256, classes)

    def forward(self, inputs: Tensor) -> Tensor:
        """Logits [N, C] of character indices [N, T]; indices may be floating-point numbers."""
        outputs, _ = self.lstm(self.embedding(inputs.long()))
        logits: Tensor = self.classifier(outputs[:, -1])
        return logits
