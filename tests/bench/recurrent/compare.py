#!/usr/bin/env python3
"""Times Graven's recurrent layers and PyTorch's on the CPU in f32, in turn, in one run.

    ninja -C build recurrent-times && python tests/bench/recurrent/compare.py [--times build/recurrent-times] ...

Each case is timed in rounds: some calls of Graven's compiled graph, then as many of PyTorch's, then the next round. The
table has the median of the rounds' medians in milliseconds, and the median of the rounds' ratios, PyTorch's time over
Graven's: above 1 Graven is faster. `infer` is forward in inference mode; `train` is forward, backward and an update by
SGD (PyTorch's: foreach). Needs torch.
"""
import argparse
import os
import statistics
import subprocess
import time

parser = argparse.ArgumentParser()
parser.add_argument("--times", default=os.path.join(os.path.dirname(__file__), "../../../build/recurrent-times"))
parser.add_argument("--kinds", default="rnn,lstm,gru")
parser.add_argument("--lengths", default="16,64,256,512")
parser.add_argument("--batches", default="16,1")
parser.add_argument("--input", type=int, default=128)
parser.add_argument("--hidden", default="256")
parser.add_argument("--shapes", default="1x1", help="LAYERSxDIRECTIONS, with commas between")
parser.add_argument("--modes", default="infer,train")
parser.add_argument("--threads", default="1,2")
parser.add_argument("--packed", action="store_true", help="packed sequences, whose lengths lie in [length / 2, length]")
parser.add_argument("--rounds", type=int, default=5)
parser.add_argument("--seconds", type=float, default=0.1, help="of a side of a round")
args = parser.parse_args()
import torch  # noqa: E402  (after the arguments, so that --help is quick)


def theirs(kind, length, batch, hidden, layers, directions, train):
    layer = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[kind](
        args.input, hidden, num_layers=layers, bidirectional=directions == 2)
    x = torch.randn(length, batch, args.input)
    if args.packed:
        ends = [length - i * (length // 2) // max(batch - 1, 1) for i in range(batch)]

    def result(x):
        if not args.packed:
            return layer(x)[0]
        packed = torch.nn.utils.rnn.pack_padded_sequence(x, torch.tensor(ends))
        return torch.nn.utils.rnn.pad_packed_sequence(layer(packed)[0])[0]
    if not train:
        def call():
            with torch.inference_mode():
                result(x)
        return call
    optimizer = torch.optim.SGD(layer.parameters(), lr=1e-6)

    def call():
        optimizer.zero_grad()
        result(x).square().mean().backward()
        optimizer.step()
    return call


def timed(call, calls):
    out = []
    time.sleep(0.005)  # the other side's threads spin a while after its last call
    call()
    for _ in range(calls):
        start = time.perf_counter()
        call()
        out.append((time.perf_counter() - start) * 1000)
    return out


ours = subprocess.Popen([args.times], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)


def ask(line):
    ours.stdin.write(line + "\n")
    ours.stdin.flush()
    answer = ours.stdout.readline().split()
    if not answer:
        raise SystemExit("recurrent-times ended at: " + line)
    return [float(word) for word in answer]


def numbers(text):
    return [int(word) for word in text.split(",")]


print(f"torch {torch.__version__}, input {args.input}, {args.rounds} rounds"
      + (", packed" if args.packed else "") + "; milliseconds; ratio: PyTorch / Graven, and its range")
print(f"{'kind':5}{'hidden':>7}{'shape':>6}{'mode':>6}{'threads':>8}{'batch':>6}{'length':>7}{'compile':>9}"
      f"{'Graven':>9}"
      f"{'PyTorch':>9}{'ratio':>7}")
slower = total = 0
for kind in args.kinds.split(","):
    for hidden in numbers(args.hidden):
        for shape in args.shapes.split(","):
            layers, directions = (int(n) for n in shape.split("x"))
            for mode in args.modes.split(","):
                for threads in numbers(args.threads):
                    for batch in numbers(args.batches):
                        for length in numbers(args.lengths):
                            torch.set_num_threads(threads)
                            compiled = ask(f"make {kind} {length} {batch} {args.input} {hidden} {layers} {directions} "
                                           f"{int(mode == 'train')} {int(args.packed)} {threads}")[0]
                            call = theirs(kind, length, batch, hidden, layers, directions, mode == "train")
                            for _ in range(2):
                                call()
                            ask("time 2")
                            once = max(min(timed(call, 2)), min(ask("time 2")))
                            calls = max(3, min(200, int(args.seconds * 1000 / once)))
                            mine, other = [], []
                            for _ in range(args.rounds):
                                mine.append(statistics.median(ask(f"time {calls}")))
                                other.append(statistics.median(timed(call, calls)))
                            ratios = sorted(b / a for a, b in zip(mine, other))
                            ratio = statistics.median(ratios)
                            total += 1
                            slower += ratio < 1
                            print(f"{kind:5}{hidden:7}{shape:>6}{mode:>6}{threads:8}{batch:6}{length:7}{compiled:9.0f}"
                                  f"{statistics.median(mine):9.3f}{statistics.median(other):9.3f}{ratio:7.2f}"
                                  f" ({ratios[0]:.2f} to {ratios[-1]:.2f})" + (" slower" if ratio < 1 else ""),
                                  flush=True)
print(f"{total} cases, Graven slower in {slower}")
ours.stdin.close()
ours.wait()
