"""How near mixed precision stays to f32 in training, Graven's beside PyTorch's autocast on the CPU.

    build/amp-losses DIRECTORY && python tests/bench/amp/compare.py DIRECTORY [NETWORK...]

For each network: the mean of |loss in bf16 - loss in f32| over all steps, and over the last 50, of both.
Needs torch, torchvision, transformers, safetensors.
"""
import json
import os
import sys

import torch
import torchvision
import transformers
from safetensors.torch import load_file


class Logits(torch.nn.Module):
    def __init__(self, model):
        super().__init__()
        self.model = model

    def forward(self, ids):
        return self.model(ids).logits


def network(name):
    if name == "resnet18":
        return torchvision.models.resnet18(num_classes=10)
    if name == "mobilenet_v2":
        return torchvision.models.mobilenet_v2(num_classes=10, dropout=0)
    if name == "gpt2":
        return Logits(transformers.GPT2LMHeadModel(transformers.GPT2Config(
            vocab_size=256, n_positions=32, n_embd=128, n_layer=4, n_head=4, resid_pdrop=0, embd_pdrop=0,
            attn_pdrop=0, attn_implementation="eager")))
    return Logits(transformers.BertForSequenceClassification(transformers.BertConfig(
        vocab_size=256, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=512,
        hidden_dropout_prob=0, attention_probs_dropout_prob=0, max_position_embeddings=32,
        attn_implementation="eager")))


def losses(name, stored, amp, steps):
    model = network(name)
    inner = model.model if isinstance(model, Logits) else model
    report = inner.load_state_dict({k: v for k, v in stored.items() if not k.startswith("batch.")}, strict=False)
    missing = [k for k in report.missing_keys if not k.endswith(("lm_head.weight", "position_ids", "attn.bias"))]
    assert not missing and not report.unexpected_keys, (missing, report.unexpected_keys)
    model.train()
    if name in ("resnet18", "mobilenet_v2"):
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
    else:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.01)
    out = []
    for step in range(steps):
        x, y = (stored[f"batch.{step % 8}.{k}"] for k in ("input", "labels"))
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=amp):
            scores = model(x)
            loss = torch.nn.functional.cross_entropy(scores.flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        out.append(loss.item())
    return out


def main():
    directory, wanted = sys.argv[1], sys.argv[2:]
    print(f"{'network':14} {'first, last loss in f32':>24} {'Graven: all, last 50':>24} {'PyTorch: all, last 50':>24}"
          f" {'PyTorch f32 - Graven f32':>26}")
    for name in wanted or ("resnet18", "mobilenet_v2", "gpt2", "bert"):
        with open(os.path.join(directory, name + ".json")) as f:
            ours = json.load(f)
        stored = load_file(os.path.join(directory, name + ".safetensors"))
        steps = len(ours["f32"])
        theirs = {"f32": losses(name, stored, False, steps), "amp": losses(name, stored, True, steps)}

        def apart(a, b):
            d = [abs(x - y) for x, y in zip(a, b)]
            return f"{sum(d) / len(d):11.5f} {sum(d[-50:]) / 50:11.5f}"
        f32 = ours["f32"]
        print(f"{name:14} {f32[0]:12.5f} {f32[-1]:11.5f} {apart(ours['amp'], f32):>24} "
              f"{apart(theirs['amp'], theirs['f32']):>24} {apart(f32, theirs['f32']):>26}")


main()
