"""Records how Hugging Face's tokenizers encode texts, for test/train/data/byte_pairs_test.cpp: a small vocabulary
and, for each text, its bytes and tokens. Needs the package tokenizers (0.23.3 wrote the files).
Argument: a folder with *.md files, from which the vocabulary is learned, e.g. docs."""

import json
import pathlib
import random
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "test/train/data"
SPECIAL = ["<|endoftext|>", "<|end", "<pad>"]


def learned(corpus):
    """Learns a vocabulary of all bytes and a few hundred merges."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train([str(path) for path in sorted(corpus.glob("*.md"))], trainers.BpeTrainer(
        vocab_size=560, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False))
    return tokenizer


def any_character(draw):
    """A code point of any plane that is no surrogate."""
    return chr(draw.choice([draw.randrange(0x250), draw.randrange(0xd800), draw.randrange(0xe000, 0x110000)]))


def text(draw, words):
    """Some pieces of each kind that the pattern tells apart."""
    kinds = [
        lambda: any_character(draw),
        lambda: draw.choice([" ", "  ", "\n", "\n\n  ", "\t", "\u00a0", "\u3000", "\u2003 ", "\x85", "\x1c", "\u200b"]),
        lambda: draw.choice(["'s", "'t", "'re", "'ve", "'m", "'ll", "'d", "'S", "'", "''s", "don't", " 'tis", "x'yz"]),
        lambda: str(draw.randrange(10 ** draw.randrange(1, 9))) + draw.choice(["", "²", "Ⅷ", "٣"]),
        lambda: draw.choice([*SPECIAL, "<|endof", "<", "  <pad> ", "\n<|endoftext|>\n"]),
        lambda: "".join(draw.choice("aeiouäßñжλע中日😀\u0301") for _ in range(draw.randrange(1, 12))),
        lambda: draw.choice("ab.") * draw.randrange(1, 40),
        lambda: " " * draw.randrange(3) + draw.choice(words)]
    return "".join(draw.choice(kinds)() for _ in range(draw.choice([1, 2, 4, 8, 16])))


def main():
    corpus, draw = pathlib.Path(sys.argv[1]), random.Random(3)
    tokenizer = learned(corpus)
    vocabulary = json.loads(tokenizer.to_str())
    vocabulary["model"]["merges"] = [" ".join(merge) for merge in vocabulary["model"]["merges"]]
    (FOLDER / "byte_pairs_tokenizer.json").write_text(json.dumps(vocabulary) + "\n")
    words = (corpus / "strategies.md").read_text().split()
    with open(FOLDER / "byte_pairs_tokens.txt", "w", encoding="ascii") as out:
        for _ in range(150):
            drawn = text(draw, words)
            tokens = tokenizer.encode(drawn, add_special_tokens=False).ids
            out.write(f"{drawn.encode().hex()} {' '.join(map(str, tokens))}\n")


main()
