#!/usr/bin/env python3
"""How many small faults the tests notice.

    python3 tests/mutants/mutate.py                            20 faults, seed 1
    python3 tests/mutants/mutate.py --count 100 --seed 7       100 others
    python3 tests/mutants/mutate.py --in frontend --count 30   in files whose paths begin with frontend
    python3 tests/mutants/mutate.py --list --count 10          what would be tried; nothing is built

One fault at a time, chosen by the seed, is planted into a copy of the tracked files in --work (default: build-mutants):
an operator, a bound or a constant is changed. The suites that could notice are built and run, the cheapest first, until
one fails. Nothing is written into the tree itself, so a run can be stopped at any time; what is done is kept in
--work/results.jsonl, and the same command goes on where it was. A fault that does not compile is none, and another one
is drawn. At the end stand the score (noticed by behaviour, by stored texts alone, not at all) and the survivors.

Exits with 0 when --goal (percent noticed; default 95) is reached, 1 when not, 2 when nothing could be measured.
"""
import argparse
import fnmatch
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Where faults are planted, and the programs that could notice: the longest beginning of a path that fits decides.
# Those that compare stored texts alone come last in every list: they notice any change, also one that nobody would.
TEXTS = ["test_print", "test_golden"]
SUITES = {
    "ir/": [
        "test_ir",
        "test_passes",
        "test_plan",
        "test_errors",
        "test_operators",
        "test_frontend",
        "test_differential",
        "test_ops",
        "test_emit",
    ],
    "ir/ops/": [
        "test_operators",
        "test_passes",
        "test_plan",
        "test_ops",
        "test_frontend",
        "test_networks",
        "test_emit",
    ],
    "ir/passes/": [
        "test_passes",
        "test_plan",
        "test_models",
        "test_frontend",
        "test_differential",
        "test_networks",
        "test_ops",
        "test_emit",
    ],
    "codegen/plan/": ["test_plan", "test_passes", "test_differential", "test_networks", "test_emit"],
    "codegen/emit/": [
        "test_command",
        "test_ops",
        "test_differential",
        "test_networks",
        "test_emit",
        "test_cuda_on_cpu",
    ],
    "codegen/build/": ["test_build", "test_frontend"],
    "codegen/cli/": ["test_command", "test_errors"],
    "codegen/eager_table/": ["test_operators", "test_ops"],
    "frontend/": [
        "test_operators",
        "test_models",
        "test_errors",
        "test_frontend",
        "test_differential",
        "test_networks",
        "test_ops",
    ],
    "frontend/emit/": ["test_command", "test_frontend", "test_emit"],
    "kernels/cpu/": [
        "test_kernels_native",
        "test_kernels_baseline",
        "test_operators",
        "test_models",
        "test_ops",
        "test_networks",
    ],
    "kernels/config/": ["test_kernels_native", "test_operators", "test_ops", "test_networks"],
    "kernels/reference/": ["test_operators", "test_passes", "test_ops"],
    "kernels/cuda/": ["test_cuda_on_cpu"],
    "runtime_min/": ["test_runtime", "test_command", "test_errors", "test_emit", "test_projects"],
    "templates/project/cuda/": ["test_cuda_on_cpu"],
    "templates/": ["test_emit", "test_projects"],
}
EXTENSIONS = (".h", ".cpp", ".cuh", ".inc")

# What a fault changes. Operators stand between blanks in this tree, so that `*` and `<` of types are not met.
CHANGES = {
    " < ": [" <= "],
    " <= ": [" < "],
    " > ": [" >= "],
    " >= ": [" > "],
    " == ": [" != "],
    " != ": [" == "],
    " + ": [" - "],
    " - ": [" + "],
    " * ": [" + "],
    " / ": [" * "],
    " % ": [" / "],
    " && ": [" || "],
    " || ": [" && "],
    " += ": [" -= "],
    " -= ": [" += "],
    " *= ": [" /= "],
    " << ": [" >> "],
    "++": ["--"],
    "std::min": ["std::max"],
    "std::max": ["std::min"],
    "true": ["false"],
    "false": ["true"],
    "break": ["continue"],
    "if (!": ["if ("],
    ".begin()": [".end()"],
    ".front()": [".back()"],
}
TOKEN = re.compile(
    "|".join(
        [r"\b(?:std::min|std::max|true|false|break)\b"]
        + [
            re.escape(text)
            for text in sorted(CHANGES, key=len, reverse=True)
            if not text[0].isalpha() or text[:2] == "if"
        ]
        + [r"(?<![\w.])\d+(?:\.\d+)?(?:e[-+]?\d+)?(?:f|u|l|ul|ull|ll)?(?![\w.'])"]
    ),
    re.IGNORECASE,
)

# What is no fault: a change that nobody can observe, or that the compiler alone reads.
SKIP_LINE = re.compile(
    r"^\s*(?:#|static_assert|using |namespace |template\b|friend )|\breserve\(|\bconcept\b|\balignas\("
)


def masked(text):
    """The text with comments, strings and characters blanked out, position by position.

    >>> masked('a = "b + 1"; // c + 2')
    'a = "     ";         '
    >>> masked("x = '<' /* 1 */ + 2;")
    "x = ' '         + 2;"
    """
    pattern = re.compile(
        r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<!\d)\'(?:\\.|[^\'\\\n])\'', re.DOTALL
    )

    def blank(match):
        found = match.group(0)
        if found[0] in "\"'":
            return found[0] + re.sub(r"[^\n]", " ", found[1:-1]) + found[-1]
        return re.sub(r"[^\n]", " ", found)

    return pattern.sub(blank, text)


def changed(token):
    """What may stand in a token's place.

    >>> changed(" < "), changed("0"), changed("3"), changed("0.5f"), changed("1e-5")
    ([' <= '], ['1'], ['4', '2'], ['1.5f'], ['1.00001'])
    """
    if token in CHANGES:
        return CHANGES[token]
    number = re.fullmatch(r"(\d+(?:\.\d+)?(?:e[-+]?\d+)?)([a-z]*)", token, re.IGNORECASE)
    if not number:
        return []
    digits, suffix = number.groups()
    if re.fullmatch(r"\d+", digits):
        value = int(digits)
        return ["1" + suffix] if value == 0 else [str(value + 1) + suffix, str(value - 1) + suffix]
    return [repr(float(digits) + 1) + suffix]


def sites(text):
    """(position, token, what stands there instead) of each fault that fits the text.

    >>> [(token, new) for _, token, new in sites('for (int i = 0; i < n; ++i) s += "1 + 2"[i]; // 3 + 4')]
    [('0', '1'), (' < ', ' <= '), ('++', '--'), (' += ', ' -= ')]
    >>> sites('#if X > 1\\nstatic_assert(a == 2);\\nvalues.reserve(n + 1);')
    []
    >>> [new for _, _, new in sites('while (true) x = std::min(a, b);')]
    ['false', 'std::max']
    """
    code = masked(text)
    found = []
    for match in TOKEN.finditer(code):
        line = code[
            code.rfind("\n", 0, match.start())
            + 1 : (
                (code.find("\n", match.start()) + len(code)) % len(code)
                if "\n" in code[match.start() :]
                else len(code)
            )
        ]
        if SKIP_LINE.search(line):
            continue
        found += [(match.start(), match.group(0), new) for new in changed(match.group(0))]
    return found


def exclusions():
    """The rules of exclusions.txt, each (path with *, "line" or "function", pattern); its head says what they mean."""
    rules = []
    for line in (ROOT / "tests/mutants/exclusions.txt").read_text().splitlines():
        rule = line.partition(" # ")[0].strip()
        if rule and not rule.startswith("#"):
            path, what, pattern = rule.split(None, 2)
            if what not in ("line", "function"):
                sys.exit(f"mutate.py: exclusions.txt: expected 'line' or 'function', found '{what}'")
            rules.append((path, what, re.compile(pattern)))
    return rules


def excluded(text, path, rules):
    """The places of the text, as (first, behind the last) positions, where no fault is planted: lines that a pattern
    fits, and functions whose head it fits, from there to the brace in the head's column.

    >>> text = "int cost() {\\n  return 1;\\n}\\nint n = 2;  // hint\\nint m = 3;\\n"
    >>> rules = [("*", "function", re.compile("cost")), ("*.h", "line", re.compile("hint"))]
    >>> [text[a:b] for a, b in excluded(text, "a.h", rules)]
    ['int cost() {\\n  return 1;\\n}\\n', 'int n = 2;  // hint\\n']
    """
    places, position, ends = [], 0, None
    fitting = [(what, pattern) for glob, what, pattern in rules if fnmatch.fnmatch(path, glob)]
    for line in text.splitlines(keepends=True):
        if ends is not None:
            if re.match(ends, line):
                ends = None
            places[-1] = (places[-1][0], position + len(line))
        else:
            for what, pattern in fitting:
                if pattern.search(line):
                    places.append((position, position + len(line)))
                    if what == "function" and "}" not in line.rstrip().split("{")[-1]:
                        ends = " {0,%d}}" % (len(line) - len(line.lstrip()))
                    break
        position += len(line)
    return places


def suites_for(path):
    beginning = max((b for b in SUITES if path.startswith(b)), key=len, default=None)
    return SUITES[beginning] if beginning else None


def line_at(text, position):
    return text[text.rfind("\n", 0, position) + 1 :].split("\n", 1)[0]


def drawn(files, seed):
    """All faults in the order that the seed gives, as path, position, token, what stands there instead: one of each
    file, in any order of the files, then a second one of each, and so on. So a long file of tables is tried no more
    often than a short one of logic.
    """
    chance, rules, rounds = random.Random(seed), exclusions(), {}
    for path in files:
        text = (ROOT / path).read_text()
        places = excluded(text, path, rules)
        own = [(path, *s) for s in sites(text) if not any(first <= s[0] < behind for first, behind in places)]
        chance.shuffle(own)
        for number, fault in enumerate(own):
            rounds.setdefault(number, []).append(fault)
    for number in sorted(rounds):
        chance.shuffle(rounds[number])
    return [fault for number in sorted(rounds) for fault in rounds[number]]


def tracked():
    return [
        f
        for f in subprocess.run(
            ["git", "ls-files", "-z"], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True
        ).stdout.split("\0")
        if f
    ]


def same_tree(tree):
    """Makes `tree` a copy of the tracked files; files that are equal are left alone, so that their objects stay."""
    files = set(tracked())
    for name in files:
        source, target = ROOT / name, tree / name
        if not source.is_file():
            continue
        if target.is_file() and target.read_bytes() == source.read_bytes():
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(source, target)
    for target in tree.rglob("*"):
        name = target.relative_to(tree).as_posix()
        if target.is_file() and not name.startswith("build/") and name not in files:
            target.unlink()


def limits():
    resource.setrlimit(
        resource.RLIMIT_AS, (24 << 30, 24 << 30)
    )  # a fault that asks for all memory ends with an error
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.setsid()


def build(tree, programs):
    done = subprocess.run(
        ["ninja", "-C", str(tree / "build"), *programs],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    )
    return done.returncode == 0, done.stdout


def program_path(tree, program):
    found = [p for p in (tree / "build").rglob(program) if p.is_file() and os.access(p, os.X_OK)]
    if not found:
        sys.exit(f"mutate.py: the build has no program {program}; the table SUITES names it")
    return found[0]


def run_suite(tree, program, seconds):
    """None when all tests pass; else the first that does not (or "hangs"). Runs in one part for each processor."""
    path = program_path(tree, program)
    shards = os.cpu_count() or 1
    environment = dict(
        os.environ,
        GTEST_TOTAL_SHARDS=str(shards),
        GTEST_FAIL_FAST="1",
        GTEST_BRIEF="1",
        CXXFLAGS="-O1",
        GRAVEN_CACHE=str(tree.parent / "cache"),
        GTEST_BREAK_ON_FAILURE="0",
    )
    running, outcome = [], None
    for shard in range(shards):
        log = open(tree.parent / f"{program}.{shard}.log", "w+")
        running.append(
            (
                subprocess.Popen(
                    [str(path)],
                    cwd=path.parent,
                    env=dict(environment, GTEST_SHARD_INDEX=str(shard)),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=limits,
                ),
                log,
            )
        )
    end = time.monotonic() + seconds
    waiting = list(running)
    while waiting and outcome is None:
        time.sleep(0.05)
        for entry in list(waiting):
            status = entry[0].poll()
            if status is not None:
                waiting.remove(entry)
                if status != 0:
                    entry[1].seek(0)
                    failed = re.findall(r"\[  FAILED  \] ([\w./]+)", entry[1].read())
                    outcome = failed[0] if failed else f"ended with {status}"
        if waiting and time.monotonic() > end:
            outcome = "hangs"
    for process, log in running:
        if process.poll() is None:
            os.killpg(process.pid, 9)
            process.wait()
        log.close()
    return outcome


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of this file.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in", dest="beginning", default="", help="files whose paths begin so")
    parser.add_argument("--goal", type=float, default=95)
    parser.add_argument("--work", type=Path, default=ROOT / "build-mutants")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()

    files = [f for f in tracked() if f.startswith(options.beginning) and f.endswith(EXTENSIONS) and suites_for(f)]
    faults = drawn(files, options.seed)
    if not faults:
        print(f"mutate.py: --in {options.beginning}: no file there in which faults are planted", file=sys.stderr)
        return 2

    def describe(path, position, token, new):
        text = (ROOT / path).read_text()
        number = text.count("\n", 0, position) + 1
        return f"{path}:{number}: {token.strip()} -> {new.strip()}    {line_at(text, position).strip()}"

    if options.list:
        for fault in faults[: options.count]:
            print(describe(*fault))
        return 0

    work, tree = options.work.resolve(), options.work.resolve() / "tree"
    results = work / "results.jsonl"
    tree.mkdir(parents=True, exist_ok=True)
    same_tree(tree)
    if not (tree / "build/build.ninja").exists():
        # One file at a time is compiled anew: no unity build.
        subprocess.run(
            [
                "cmake",
                "-S",
                str(tree),
                "-B",
                str(tree / "build"),
                "-G",
                "Ninja",
                "-DCMAKE_BUILD_TYPE=Release",
                "-DCMAKE_UNITY_BUILD=OFF",
                "-DGRAVEN_BUILD_SAMPLES=OFF",
            ],
            check=True,
            stdout=subprocess.DEVNULL,
        )
    programs = sorted({p for f in files for p in suites_for(f)} | set(TEXTS))
    print(f"building {len(programs)} test programs without a fault", flush=True)
    good, output = build(tree, programs)
    if not good:
        print(output[-4000:], "mutate.py: the tree does not build", sep="\n", file=sys.stderr)
        return 2
    usual = {}
    for program in programs:
        start = time.monotonic()
        failed = run_suite(tree, program, 3600)
        usual[program] = time.monotonic() - start
        if failed:
            print(f"mutate.py: without a fault {program} fails: {failed}", file=sys.stderr)
            return 2

    tried = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        entry = json.loads(line)
        tried[entry["fault"]] = entry
    score, survivors, planted = {"behaviour": 0, "texts": 0, "no": 0}, [], 0
    for fault in faults:
        if planted == options.count:
            break
        path, position, token, new = fault
        name = describe(*fault)
        entry = tried.get(name)
        if entry is None:
            began = time.monotonic()
            original = (ROOT / path).read_text()
            (tree / path).write_text(original[:position] + new + original[position + len(token) :])
            entry = {"fault": name, "noticed": "no", "by": ""}
            for program in suites_for(path) + TEXTS:
                good, output = build(tree, [program])
                if not good:
                    # What a program of the build writes may not compile, either: then the build noticed.
                    inside = "FAILED: eager_table" in output or "FAILED: embedded_files" in output
                    entry["noticed"], entry["by"] = (
                        ("behaviour", "the build") if inside else ("none", "does not compile")
                    )
                    break
                failed = run_suite(tree, program, 60 + 5 * usual[program])
                if failed:
                    entry["noticed"], entry["by"] = (
                        "texts" if program in TEXTS else "behaviour"
                    ), f"{program}: {failed}"
                    break
            (tree / path).write_text(original)
            entry["seconds"] = round(time.monotonic() - began)
            with open(results, "a") as log:
                log.write(json.dumps(entry) + "\n")
        if entry["noticed"] == "none":
            continue
        planted += 1
        score[entry["noticed"]] += 1
        if entry["noticed"] == "no":
            survivors.append(name)
        print(
            f"{planted:4} {'SURVIVED' if entry['noticed'] == 'no' else 'noticed ':8} {name}  [{entry['by']}]",
            flush=True,
        )
    if planted == 0:
        print("mutate.py: no fault was planted", file=sys.stderr)
        return 2
    noticed = 100 * (planted - score["no"]) / planted
    print(
        f"\nmutants: seed {options.seed}: {planted} faults: {score['behaviour']} noticed by behaviour, "
        f"{score['texts']} by stored texts alone, "
        f"{score['no']} not: {noticed:.1f}%"
    )
    for name in survivors:
        print("survived:", name)
    return 0 if noticed >= options.goal else 1


if __name__ == "__main__":
    sys.exit(main())
