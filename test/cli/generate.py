"""Tests `generate` as a user runs it: a model that was trained on text continues it, alike on every number of ranks and
under every layout, as bytes and as byte pairs. Arguments: the launcher build/mpiexec and the program build/partita."""

import itertools
import sys

from checks import ROOT, Program, check, read_json, refused, run_parts, write

partita = Program(sys.argv[2], sys.argv[1], errors="replace", timeout=120)
TEXT = "one two three four five six seven eight nine ten. "
MODEL = ["--model", "gpt", "--layers", "2", "--hidden", "32", "--heads", "4", "--sequence", "32", "--dtype", "f64"]
HEADS = ["--rule", "*_qkv: C@t", "--rule", "*_attention: C@t", "--rule", "*_up: C@t", "--rule", "scores: C@t"]
TOKENIZER = ROOT / "test/train/data/byte_pairs_tokenizer.json"
STAGES = ('stages = 2\ngrid = "t={}"\n[schedule]\nkind = "1f1b"\nmicrobatches = 2\n'
          '[[layer]]\nmatch = "*_qkv"\noutput = "C@t"\n[[layer]]\nmatch = "*_attention"\noutput = "C@t"\n'
          '[[layer]]\nmatch = "embedding"\nweights = "V@t"\n')
# Layouts by number of ranks: all that a plan can cut.
LAYOUTS = {1: [[]],
           2: [[], ["--grid", "t=2", *HEADS], ["--strategy", "stages1.toml"], ["--grid", "t=2", "--rule", "*: L@t"]],
           3: [["--grid", "t=3", *HEADS]],
           4: [[], ["--grid", "d=2 t=2", "--rule", "*: N@d", "--rule", "*_qkv: N@d C@t", "--rule", "*_attention: N@d C@t"],
               ["--strategy", "stages2.toml"]]}


def train(*more):
    """Trains a small model on a text that repeats itself."""
    write("text.txt", TEXT * 80)
    for ranks in (1, 2):
        write(f"stages{ranks}.toml", STAGES.format(ranks))
    partita("train", *MODEL, "--batch", "8", "--data", "text", "--data-dir", "text.txt", "--epochs", "14", "--no-test",
            "--optimizer", "adam", "--rate", "0.01", "--save", "w.h5", "--overwrite", *more, ranks=2)


def generate(*arguments, **more):
    """Runs the verb. Returns what it wrote as JSON, and what it printed."""
    ran = partita("generate", *MODEL, "--load", "w.h5", "--json", "g.json", *arguments, **more)
    return read_json("g.json"), ran.out


def alike(*arguments):
    """Runs all layouts, with processes and with threads. They must give one result, which is returned."""
    first, printed = generate(*arguments, ranks=1)
    for ranks, layouts in LAYOUTS.items():
        for layout, threads in itertools.product(layouts, (False, True)):
            found, _ = generate(*arguments, *layout, *(["--ranks", str(ranks)] if threads else []),
                                ranks=0 if threads else ranks)
            what = f"{ranks} {'threads' if threads else 'processes'} with {' '.join(layout) or 'no strategy'}"
            check(f"the same text on {what}", found["continuations"] == first["continuations"], found)
            check(f"memory and messages are predicted on {what}",
                  all(found[f"predicted_{key}"] == found[f"measured_{key}"] for key in ("memory", "messages", "bytes")),
                  found)
            heads = 2 if any("t=2" in word for word in layout) else 1  # four heads on three ranks stay whole
            check(f"keys and values are divided on {what}", found["kept_bytes"] * heads <= first["kept_bytes"], found)
    return first, printed


def texts_of_bytes():
    """Tokens are bytes."""
    train()
    prompt = "three four"
    best, printed = alike("--prompt", prompt, "--tokens", "20")
    check("it continues the text", best["continuations"][0]["text"] == " five six seven eigh", best)
    check("it prints the text", printed.startswith(prompt + best["continuations"][0]["text"] + "\ngenerated  20 tokens"))
    check("tokens are bytes", bytes(best["continuations"][0]["tokens"]).decode() == best["continuations"][0]["text"])
    check("keys and values are kept", best["kept_bytes"] == 2 * 2 * 32 * (len(prompt) + 20 - 1) * 8, best)
    shorter, _ = generate("--prompt", prompt + best["continuations"][0]["text"][:7], "--tokens", "13", ranks=1)
    check("a longer prompt goes on alike", shorter["continuations"][0]["text"] == best["continuations"][0]["text"][7:])
    drawn, printed = alike("--prompt", "o", "--tokens", "9", "--batch", "3", "--temperature", "1.5", "--top-k", "30")
    texts = [each["text"] for each in drawn["continuations"]]
    check("texts differ", len(set(texts)) == 3, drawn)
    check("it prints them", all(f"text {i}\no{text}\n" in printed for i, text in enumerate(texts, 1)), printed)
    other, _ = generate("--prompt", "o", "--tokens", "9", "--batch", "3", "--temperature", "1.5", "--seed", "2", ranks=1)
    check("another seed draws others", other["continuations"] != drawn["continuations"])


def texts_of_byte_pairs():
    """Tokens are byte pairs, of which the model has as many as the file."""
    train("--tokenizer", TOKENIZER)
    best, _ = alike("--tokenizer", TOKENIZER, "--prompt", "three four", "--tokens", "12")
    check("it continues the text", TEXT.partition("three four")[2].startswith(best["continuations"][0]["text"][:18]), best)
    check("a token is more than a byte", len(best["continuations"][0]["text"]) > 12 and
          len(best["prompt_tokens"]) < len("three four"), best)
    evaluated = partita("evaluate", *MODEL, "--tokenizer", TOKENIZER, "--load", "w.h5", "--data", "text", "--data-dir",
                        "text.txt", "--batch", "8", "--json", "e.json", ranks=2)
    report = read_json("e.json")
    check("the tokens are in the predicted memory", report["predicted_memory"] == report["measured_memory"], evaluated)


def texts_of_experts():
    """Experts that drop no place. They are divided among the ranks."""
    global MODEL, LAYOUTS
    MODEL = [*MODEL, "--experts", "4", "--choices", "2", "--capacity", "2"]
    cut = ["--rule", "*: N@e", "--rule", "*_expert_*: C@e"]
    LAYOUTS = {1: [[]], 2: [[], ["--grid", "e=2", *cut]], 4: [["--grid", "e=4", *cut]]}
    train()
    best, _ = alike("--prompt", "three four", "--tokens", "20")
    check("it continues the text", best["continuations"][0]["text"] == " five six seven eigh", best)
    refused("experts that drop places", partita("generate", *MODEL[:-1], "1", "--load", "w.h5", "--prompt", "one",
                                                ranks=2, status=None), "layer 'block1_dispatch' \\(dispatch\\) computes")


def errors():
    """One clear sentence, and exit status 2."""
    train()
    write("broken.json", '{"model": {"type": "BPE", }}')
    write("letters.json", '{"pre_tokenizer": {"type": "Whitespace"}}')
    prompt = ["--load", "w.h5", "--prompt", "one"]

    def bad(name, arguments, *patterns, model=None):
        refused(name, partita("generate", *(model or MODEL), *arguments, ranks=2, status=None), *patterns)

    bad("no checkpoint", ["--prompt", "one"], "generate needs the weights of a trained model: --load FILE")
    bad("no prompt", ["--load", "w.h5"], "--prompt: give a text to continue")
    bad("an unknown file", ["--load", "none.h5", "--prompt", "one"], "none.h5")
    bad("another model", [*prompt, "--tokens", "1"], "the checkpoint w.h5 has another model", model=[*MODEL[:4], *MODEL[6:]])
    bad("no tokens", [*prompt, "--tokens", "0"], "--tokens 0: it must be 1 or more")
    bad("too many tokens", [*prompt, "--tokens", "30"], "--tokens 30: with the 3 tokens of the prompt", "give 29 or fewer")
    bad("a long prompt", ["--load", "w.h5", "--prompt", "x" * 32], "--prompt: it has 32 tokens", "has 32 places")
    bad("no draws", [*prompt, "--top-k", "3"], "--top-k 3: tokens are drawn only with a --temperature above 0")
    bad("a temperature below 0", [*prompt, "--temperature", "-1"], "--temperature -1: it must be 0 or more")
    bad("images", prompt, "the model 'fashion-cnn' reads no sequences of tokens", model=["--model", "fashion-cnn"])
    bad("places that see later ones", [*prompt, "--tokens", "1", "--vocabulary", "100"], "its token 1 is 111",
        "knows the tokens 0 to 99")
    bad("tokens that are no bytes", [*prompt, "--vocabulary", "300"], "has 300 tokens, but bytes are 256",
        "give its vocabulary with --tokenizer")
    bad("a broken vocabulary", [*prompt, "--tokenizer", "broken.json"], "--tokenizer: 'broken.json' is no JSON at byte 27")
    bad("another vocabulary", [*prompt, "--tokenizer", "letters.json"], "pre_tokenizer: its type is \"Whitespace\"")
    bad("a smaller vocabulary", [*prompt, "--tokenizer", TOKENIZER, "--vocabulary", "600"], "has 600 tokens, but", "has 560")
    refused("--tokenizer without text", partita("train", *MODEL, "--tokenizer", TOKENIZER, "--data", "synthetic",
                                                        ranks=2, status=None), "it encodes --data text, not 'synthetic'")
    refused("a model with fewer tokens", partita(
        "train", *MODEL, "--vocabulary", "300", "--tokenizer", TOKENIZER, "--data", "text", "--data-dir", "text.txt",
        ranks=2, status=None), "has 560 tokens, but the model's layer 'embedding' has a table of 300")


run_parts(texts_of_bytes, texts_of_byte_pairs, errors, texts_of_experts)
