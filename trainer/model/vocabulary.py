"""Text to token ids and back: as much of a tokenizer as the trainer needs."""

from collections.abc import Sequence
from typing import Protocol

PAD, END = "_", "\n"


class Vocabulary(Protocol):
    """What a policy reads and writes."""

    @property
    def size(self) -> int:
        """Number of token ids, padding and end mark included."""

    @property
    def pad_id(self) -> int:
        """Fills rows up; never sampled into a response that counts."""

    @property
    def end_id(self) -> int:
        """Ends a response; it is sampled like any other token."""

    def encode(self, text: str) -> list[int]:
        """A prompt as the policy reads it: with the chat template around it where there is one."""

    def encode_response(self, text: str) -> list[int]:
        """A response as the policy writes it, without its end mark."""

    def decode(self, ids: Sequence[int]) -> str:
        """A response as the task's scorer and the logs read it."""

    def text_of(self, token_id: int) -> str:
        """One token as readers show it."""


class CharacterVocabulary:
    """One token a character: the end mark, padding, and the characters that a task needs."""

    def __init__(self, characters: str) -> None:
        self._characters = PAD + END + characters
        self._ids = {character: place for place, character in enumerate(self._characters)}
        self.pad_id, self.end_id, self.size = 0, 1, len(self._characters)

    def encode(self, text: str) -> list[int]:
        return [self._ids[character] for character in text]

    encode_response = encode

    def decode(self, ids: Sequence[int]) -> str:
        return "".join(self._characters[i] for i in ids)

    def text_of(self, token_id: int) -> str:
        return "<end>" if token_id == self.end_id else self._characters[token_id]
