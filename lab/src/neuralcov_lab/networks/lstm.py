"""The two-layer LSTM that judges film reviews."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from neuralcov.core.errors import InputError

PADDING = 0


class SentimentLSTM(nn.Module):
    """Word embeddings, two recurrent layers and one logit of their mean state, positive for a favourable review.

    With 128 steps and a hidden size of 256 the tap sees 129 layers and 32,769 neurons.

    Args:
        vocabulary: number of tokens, padding (0) and unknown (1) among them.
        embedding: length of a word vector.
        hidden: neurons of each recurrent layer.
        steps: tokens of one input.
        dropout: share of word vectors' entries, of the outputs between the recurrent layers and of the mean
            state that training leaves out.
    """

    def __init__(
        self, vocabulary: int = 25_002, embedding: int = 100, hidden: int = 256, steps: int = 128, dropout: float = 0.5
    ) -> None:
        super().__init__()
        for name, value in (("vocabulary", vocabulary), ("embedding", embedding), ("hidden", hidden), ("steps", steps)):
            if value < 1:
                raise InputError(f"lstm({name}={value}): {name} must be at least 1")
        self.input_shape = (steps,)
        self.embedding = nn.Embedding(vocabulary, embedding, padding_idx=PADDING)
        self.lstm = nn.LSTM(embedding, hidden, num_layers=2, batch_first=True, dropout=dropout)
        self.fc = nn.Linear(hidden, 1)
        self.dropout = nn.Dropout(dropout)
        _initialise(self)

    def forward(self, tokens: Tensor, lengths: Tensor | None = None) -> Tensor:
        """Return one logit per review.

        Args:
            tokens: ``(batch, steps)`` whole numbers, padded with zeros behind the text.
            lengths: tokens of each review; counted where left out.
        """
        if lengths is None:
            lengths = (tokens != PADDING).sum(1)
        states, _ = self.lstm(self.dropout(self.embedding(tokens.long())))
        # The mean over the words. What runs behind them on padding does not count, so that padded and packed
        # reviews give the same logit; and the gradient reaches every word at once, where one that starts at the
        # last state is lost on the way (such a network still guessed after three epochs).
        counted = lengths.to(states.device).long().clamp(min=1)[:, None]
        present = torch.arange(states.shape[1], device=states.device) < counted
        mean = (states * present[:, :, None]).sum(1) / counted
        return self.fc(self.dropout(mean.to(states.dtype)))  # type: ignore[no-any-return]


def _initialise(network: SentimentLSTM) -> None:
    nn.init.normal_(network.embedding.weight, 0.0, 0.1)
    with torch.no_grad():
        network.embedding.weight[PADDING].zero_()
    hidden = network.lstm.hidden_size
    for name, parameter in network.lstm.named_parameters():
        if name.startswith("weight_hh"):
            for gate in torch.split(parameter.detach(), hidden):
                nn.init.orthogonal_(gate)
        elif name.startswith("weight_ih"):
            nn.init.xavier_uniform_(parameter)
        else:
            nn.init.zeros_(parameter)
            if name.startswith("bias_ih"):
                # Remember by default: the forget gate is the second of four (Jozefowicz et al., 2015).
                nn.init.ones_(parameter.detach()[hidden : 2 * hidden])
