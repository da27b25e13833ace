#!/usr/bin/env python3
"""How many small faults the tests notice.

    python3 tests/mutants/mutate.py                            20 faults, seed 1
    python3 tests/mutants/mutate.py --count 100 --seed 7       100 others
    python3 tests/mutants/mutate.py --in frontend --count 30   in files whose paths begin with frontend
    python3 tests/mutants/mutate.py --list --count 10          what would be tried; nothing is built
    python3 tests/mutants/mutate.py --seconds 300              a fault that no test has noticed by then has survived
    python3 tests/mutants/mutate.py --survivors --count 100    those that survived are tried again

One fault at a time, chosen by the seed, is planted into a copy of the tracked files in --work (default: build-mutants):
an operator, a bound or a constant is changed. What the change reaches is compiled beside the build, which stays as it
is, and a test program is linked of it when its turn comes: first the tests that are called after the changed file, then
whole suites, the cheapest first, then single tests that take long, at last those of stored texts, until one fails. A
test that fails without the fault, too, does not count. A fault that does not compile, or that leaves the machine code
as it is, is none, and another one is drawn. Nothing is written into the tree itself, so a run can be stopped at any
time; what is done is kept in --work/results.jsonl, and the same command goes on where it was, also after other files of
the tree have changed. At the end stand the score (noticed by behaviour, by stored texts alone, not at all) and the
survivors.

Exits with 0 when --goal (percent noticed; default 95) is reached, 1 when not, 2 when nothing could be measured.
"""
import argparse
import concurrent.futures
import fnmatch
import hashlib
import json
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Where faults are planted, and the programs that could notice, the likeliest and cheapest first: the longest beginning
# of a path that fits decides. Those that compare stored texts alone come last in every list: they notice any change,
# also one that nobody would.
TEXTS = ["test_print", "test_golden"]
SUITES = {
    "ir/": [
        "test_ir",
        "test_passes",
        "test_plan",
        "test_operators",
        "test_ops",
        "test_errors",
        "test_frontend",
        "test_differential",
        "test_emit",
    ],
    "ir/ops/": [
        "test_ops",
        "test_operators",
        "test_passes",
        "test_plan",
        "test_frontend",
        "test_networks",
        "test_emit",
    ],
    "ir/passes/": [
        "test_passes",
        "test_plan",
        "test_frontend",
        "test_differential",
        "test_models",
        "test_networks",
        "test_ops",
        "test_emit",
    ],
    "codegen/": ["test_command", "test_ops", "test_differential", "test_emit"],
    "codegen/plan/": ["test_plan", "test_passes", "test_command", "test_differential", "test_networks", "test_emit"],
    "codegen/emit/": ["test_command", "test_ops", "test_emit", "test_differential", "test_networks"],
    "codegen/build/": ["test_build", "test_frontend"],
    "codegen/cli/": ["test_command", "test_errors"],
    "codegen/eager_table/": ["test_operators", "test_ops"],
    "frontend/": [
        "test_operators",
        "test_frontend",
        "test_errors",
        "test_models",
        "test_ops",
        "test_differential",
        "test_networks",
    ],
    "frontend/models/": ["test_models", "test_networks", "test_errors"],
    "frontend/include/graven/models/": ["test_models", "test_networks", "test_errors"],
    "frontend/emit/": ["test_command", "test_frontend", "test_emit"],
    "kernels/cpu/": [
        "test_kernels_native",
        "test_kernels_baseline",
        "test_ops",
        "test_operators",
        "test_models",
        "test_networks",
    ],
    "kernels/config/": ["test_kernels_native", "test_cuda_on_cpu", "test_ops", "test_operators", "test_networks"],
    "kernels/reference/": ["test_kernels_native", "test_ops", "test_operators", "test_passes", "test_frontend"],
    "kernels/cuda/": ["test_cuda_on_cpu", "test_cuda_projects"],
    "runtime_min/": ["test_runtime", "test_command", "test_errors", "test_emit", "test_projects"],
    "codegen/targets/cuda/": ["test_cuda_on_cpu", "test_cuda_projects"],
    "templates/": ["test_emit", "test_projects"],
}
EXTENSIONS = (".h", ".cpp", ".cuh", ".inc")
# Programs whose children are built with the address sanitizer, which maps more memory than there is; all of its tests
# share what is built in one folder.
SANITIZED = {"test_projects"}
# Programs that run build/graven; and what codegen/eager_table and the emission of projects read.
RUN_THE_COMMAND = {"test_command", "test_emit", "test_errors", "test_projects", "test_attack"}
EMBEDDED = ("templates/", "codegen/targets/cpu/templates/", "codegen/targets/cuda/templates/", "kernels/",
            "runtime_min/")

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


class Fault:
    """One change of one file. Its name is the same after other lines of the file, or other files, have changed."""

    def __init__(self, path, text, position, token, new):
        self.path, self.position, self.token, self.new = path, position, token, new
        self.line = line_at(text, position).strip()
        self.number = text.count("\n", 0, position) + 1
        start = text.rfind("\n", 0, position) + 1
        same_line = [m.start() for m in re.finditer(re.escape(line_at(text, position)), text[:start])]
        self.name = f"{path}: {token.strip()} -> {new.strip()} at {position - start} of {self.line}" + (
            f" ({len(same_line) + 1})" if same_line else ""
        )

    def __str__(self):
        return f"{self.path}:{self.number}: {self.token.strip()} -> {self.new.strip()}    {self.line}"

    def planted_in(self, text):
        return text[: self.position] + self.new + text[self.position + len(self.token) :]


def drawn(files, seed):
    """All faults in the order that the seed gives: one of each file, in any order of the files, then a second one of
    each, and so on. So a long file of tables is tried no more often than a short one of logic. Each file has a chance
    of its own, so that what is drawn from one, and when, does not depend on the others.
    """
    rules, order = exclusions(), []
    for path in files:
        text = (ROOT / path).read_text()
        places = excluded(text, path, rules)
        own = [s for s in sites(text) if not any(first <= s[0] < behind for first, behind in places)]
        chance = random.Random(f"{seed} {path}")
        chance.shuffle(own)
        for number, (position, token, new) in enumerate(own):
            place = hashlib.sha256(f"{seed} {path} {number}".encode()).digest()
            order.append((number, place, Fault(path, text, position, token, new)))
    return [fault for _, _, fault in sorted(order, key=lambda entry: entry[:2])]


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


def related(path, tests):
    """Those of the tests that are called after the file: after its words first, then after its folder's.

    >>> related("ir/ops/avg_pool2d_backward.cpp", ["Plan.Chains", "Pool2d.Average", "Operator.Same/avg_pool2d"])
    ['Operator.Same/avg_pool2d']
    >>> related("frontend/functional/windows.cpp", ["Windows.Unfold", "Operators.Same/unfold"])
    ['Windows.Unfold']
    """

    def plain(text):
        return re.sub(r"[^a-z0-9]", "", text.lower())

    stem = re.sub(r"_(?:backward|gradient|shared|detail|update)$", "", Path(path).stem)
    exact = [t for t in tests if stem in re.split(r"[./]", t)]
    inside = [t for t in tests if len(plain(stem)) > 2 and plain(stem) in plain(t) and t not in exact]
    return (exact + inside)[:400]


class Build:
    """A build of the copy without a fault, and what a fault makes of its objects and programs."""

    def __init__(self, work):
        self.work, self.tree = work, work / "tree"
        self.folder, self.scratch = self.tree / "build", work / "planted"
        self.tests, self.ready, self.links = {}, set(), {}

    def configure(self):
        if not (self.folder / "compile_commands.json").exists():
            options = ["-DCMAKE_BUILD_TYPE=Release", "-DCMAKE_EXPORT_COMPILE_COMMANDS=ON"]
            subprocess.run(
                ["cmake", "-S", str(self.tree), "-B", str(self.folder), "-G", "Ninja", *options],
                check=True,
                stdout=subprocess.DEVNULL,
            )

    def ninja(self, *arguments):
        return subprocess.run(
            ["ninja", "-C", str(self.folder), *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )

    def make(self, program):
        """Builds the program without a fault, once; and knows its tests then."""
        if program in self.ready:
            return
        more = ["graven_command"] if program in RUN_THE_COMMAND else []
        done = self.ninja(program, "graven_eager_table", "libgraven.a", *more)
        if done.returncode != 0:
            sys.exit(f"{done.stdout[-4000:]}\nmutate.py: without a fault {program} does not build")
        self.ready.add(program)
        self.read_graph()
        if not program.startswith("test_"):
            return
        listed = subprocess.run(
            [str(self.output_of(program)), "--gtest_list_tests"], stdout=subprocess.PIPE, text=True, cwd=self.folder
        ).stdout
        suite, tests = "", []
        for line in listed.splitlines():
            name = line.partition("#")[0].strip()
            if line.startswith("  "):
                tests.append(suite + name)
            elif name.endswith("."):
                suite = name
        self.tests[program] = tests

    def read_graph(self):
        """What each object is compiled of, and how."""
        entries = json.loads((self.folder / "compile_commands.json").read_text())
        self.command = {os.path.normpath(re.search(r" -o (\S+)", e["command"])[1]): e for e in entries}
        self.of_file, target = {}, None
        for line in self.ninja("-t", "deps").stdout.splitlines():
            if line.startswith("    "):
                path = os.path.normpath(os.path.join(self.folder, line.strip()))
                self.of_file.setdefault(path, set()).add(target)
            elif ": #deps" in line:
                target = os.path.normpath(line.split(": #deps")[0])
        # What is precompiled stands in no list of what is compiled with it.
        for target, entry in self.command.items():
            for header in re.findall(r"-include (\S+cmake_pch\.hxx)", entry["command"]):
                precompiled = os.path.relpath(header + ".gch", self.folder)
                for targets in self.of_file.values():
                    if precompiled in targets:
                        targets.add(target)
        self.links = {}

    def link_of(self, target):
        """The words of the command that makes a program or an archive of objects."""
        if target not in self.links:
            line = self.ninja("-t", "commands", target).stdout.strip().splitlines()[-1]
            for part in line.split(" && "):
                if " -o " in part or "/ar " in part or part.startswith("ar "):
                    self.links[target] = part.split()
                    break
        return self.links[target]

    def output_of(self, program):
        words = self.link_of(program)
        return self.folder / words[words.index("-o") + 1]

    def objects_of(self, program):
        """Everything compiled that the program is linked of, those in archives included."""
        found = []
        for word in self.link_of(program):
            if word.endswith(".o"):
                found.append(os.path.normpath(word))
            elif word.endswith(".a") and not word.startswith("/"):
                found += [os.path.normpath(w) for w in self.link_of(word) if w.endswith(".o")]
        return found


class DoesNotCompile(Exception):
    pass


class BuildNotices(Exception):
    pass


class Trial:
    """A fault, planted in the copy until it is closed."""

    def __init__(self, build, fault):
        self.build, self.fault = build, fault
        self.file = build.tree / fault.path
        self.original, self.times = self.file.read_text(), self.file.stat()
        shutil.rmtree(build.scratch, ignore_errors=True)
        build.scratch.mkdir(parents=True)
        self.made, self.kept_command, self.written = {}, None, None

        self.plant()

    def plant(self):
        self.file.write_text(self.fault.planted_in(self.original))
        self.reached = set(self.build.of_file.get(str(self.file), ()))

    def lift(self):
        """Without the fault the file is as old as what was built of it."""
        self.file.write_text(self.original)
        os.utime(self.file, ns=(self.times.st_atime_ns, self.times.st_mtime_ns))

    def make(self, program):
        """Has the program without a fault, which is built when it is first asked for."""
        if program in self.build.ready:
            return
        self.lift()
        self.restore_command()
        self.build.make(program)
        self.plant()

    def restore_command(self):
        if self.kept_command:
            os.replace(self.kept_command, self.build.folder / "graven")
            self.kept_command = None

    def close(self):
        self.lift()
        self.restore_command()

    def compile_all(self, sources):
        """The objects with the fault in them; `sources`: of each, where it is not the usual one."""
        targets = [t for t in sources if t not in self.made]
        places = [self.build.scratch / (re.sub(r"\W", "_", t) + ".o") for t in targets]
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            self.made.update(zip(targets, pool.map(self.compile, targets, places, [sources[t] for t in targets])))

    def compile(self, target, place, source=None):
        entry = self.build.command[target]
        command = entry["command"].replace(f"-o {target} ", f"-o {place} ").replace(" -Werror", "") + " -w"
        if source:
            command = command.replace(entry["file"], str(source))
        # What is precompiled without the fault is read anew.
        for header in set(re.findall(r"-include (\S+cmake_pch\.hxx)", command)):
            if os.path.relpath(header + ".gch", self.build.folder) in self.reached:
                name = re.sub(r"\W", "_", os.path.relpath(header, self.build.folder))
                copied = self.build.scratch / f"headers_{name}"
                if not copied.exists():
                    shutil.copy(header, copied)
                command = command.replace(header, str(copied))
        command = re.sub(r" -MF \S+| -MT \S+| -MD", "", command)
        try:
            done = subprocess.run(
                command,
                shell=True,
                cwd=self.build.folder,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=1800,
            )
        except subprocess.TimeoutExpired:
            raise DoesNotCompile from None
        if done.returncode != 0:
            raise BuildNotices if source else DoesNotCompile
        return place

    def is_the_same(self):
        """Whether what has been compiled is byte for byte what it is without the fault."""
        if any(self.generated().values()):
            return False
        self.lift()
        try:
            return all(
                self.compile(target, self.build.scratch / "usual.o").read_bytes() == place.read_bytes()
                for target, place in self.made.items()
            )
        finally:
            self.plant()

    def generated(self):
        """What programs of the build write when they have the fault: object -> its source, where that is another."""
        if self.written is not None:
            return self.written
        self.written, folder = {}, self.build.folder
        if self.fault.path.startswith(EMBEDDED):
            output = self.build.scratch / "embedded_files.cpp"
            definitions = {"ROOT": self.build.tree, "LIST": folder / "embedded_files.txt", "OUTPUT": output}
            subprocess.run(
                ["cmake"]
                + [f"-D{name}={value}" for name, value in definitions.items()]
                + ["-P", str(self.build.tree / "cmake/embed.cmake")],
                check=True,
            )
            self.add_source(folder / "embedded_files.cpp", output)
        if any(target in self.reached for target in self.build.objects_of("graven_eager_table")):
            program = self.linked("graven_eager_table")
            if program:
                tables = self.build.scratch / "eager_table"
                parts = len(list((folder / "eager_table").glob("part_*.cpp")))
                arguments = [str(program), str(self.build.tree), str(tables), str(parts)]
                tables.mkdir()
                try:
                    done = subprocess.run(
                        arguments,
                        preexec_fn=lambda: limits(60),
                        timeout=600,
                        stdout=subprocess.PIPE,
                        stderr=subprocess.STDOUT,
                    )
                except subprocess.TimeoutExpired:
                    raise BuildNotices from None
                if done.returncode != 0:
                    raise BuildNotices
                for path in sorted(tables.glob("*.cpp")):
                    self.add_source(folder / "eager_table" / path.name, path)
        return self.written

    def add_source(self, usual, planted):
        if usual.read_bytes() == planted.read_bytes():
            return
        for target, entry in self.build.command.items():
            if entry["file"] == str(usual):
                self.written[target] = planted

    def linked(self, program):
        """The program with the fault in it; None where nothing of it has changed."""
        objects = self.build.objects_of(program)
        generated = self.generated() if any("embedded_files" in target for target in objects) else {}
        sources = {t: generated.get(t) for t in objects if t in generated or t in self.reached}
        self.compile_all(sources)
        planted = {target: str(self.made[target]) for target in sources}
        if not planted:
            return None
        output = self.build.scratch / program
        words, direct = [], {os.path.normpath(w) for w in self.build.link_of(program) if w.endswith(".o")}
        for word in self.build.link_of(program):
            path = os.path.normpath(word)
            # An archive's member is not taken where what it defines has been defined.
            if word.endswith(".a") and not word.startswith("/"):
                members = {os.path.normpath(w) for w in self.build.link_of(word) if w.endswith(".o")}
                words += [planted[t] for t in objects if t in planted and t in members and t not in direct]
                words.append(word)
            else:
                words.append(planted.get(path, word))
        words[words.index("-o") + 1] = str(output)
        done = subprocess.run(
            words, cwd=self.build.folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace"
        )
        if done.returncode != 0:
            raise DoesNotCompile
        return output

    def give_command(self):
        """build/graven with the fault in it."""
        if self.kept_command:
            return
        program = self.linked("graven_command")
        usual = self.build.folder / "graven"
        if program:
            kept = self.build.work / "graven_without_fault"
            os.replace(usual, kept)
            self.kept_command = kept
            shutil.copy(program, usual)


def limits(seconds, memory=True):
    if memory:  # what asks for all memory ends with an error
        resource.setrlimit(resource.RLIMIT_AS, (24 << 30, 24 << 30))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))
    os.setsid()


class Tests:
    """Runs tests of programs, and remembers how long each took."""

    def __init__(self, build):
        self.build, self.file = build, build.work / "times.json"
        self.seconds = json.loads(self.file.read_text()) if self.file.exists() else {}
        self.failing = set()  # without a fault
        self.deadline = None  # of the fault that is tried: then it has survived

    def usual(self, program, test):
        return self.seconds.get(f"{program} {test}", 0.05)

    def run(self, path, program, tests):
        """None when all pass; else the first that does not, or that ran when the program ended."""
        pieces = os.cpu_count() if len(tests) > 8 and program not in SANITIZED else 1
        expected = sum(self.usual(program, t) for t in tests)
        unknown = sum(f"{program} {t}" not in self.seconds for t in tests)
        cpu = int(60 + 4 * expected + 10 * unknown)
        environment = dict(
            os.environ,
            GTEST_FAIL_FAST="1",
            GTEST_COLOR="no",
            GTEST_BREAK_ON_FAILURE="0",
            CXXFLAGS="-O1",
            GRAVEN_CACHE=str(self.build.work / "cache"),
        )
        running, outcome = [], None
        where = self.build.output_of(program).parent
        for piece in range(pieces):
            flags = self.build.work / f"{program}.{piece}.flags"
            # Long ones are dealt out.
            own = sorted(tests, key=lambda t: -self.usual(program, t))[piece::pieces]
            if not own:
                continue
            flags.write_text("--gtest_filter=" + ":".join(own) + "\n")
            log = open(self.build.work / f"{program}.{piece}.log", "w+")
            process = subprocess.Popen(
                [str(path), f"--gtest_flagfile={flags}"],
                cwd=where,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=lambda: limits(cpu, program not in SANITIZED),
            )
            running.append((process, log))
        hangs, waiting = time.monotonic() + 120 + 20 * expected + 20 * unknown, list(running)
        try:
            while waiting and outcome is None:
                time.sleep(0.02)
                for entry in list(waiting):
                    status = entry[0].poll()
                    if status is not None:
                        waiting.remove(entry)
                        if status != 0:
                            outcome = self.first_failure(entry[1]) or f"ended with {status}"
                if waiting and time.monotonic() > hangs:
                    outcome = self.first_failure(waiting[0][1]) or "hangs"
                if self.is_late():
                    break
        finally:
            for process, log in running:
                if process.poll() is None:
                    os.killpg(process.pid, signal.SIGKILL)
                    process.wait()
                log.seek(0)
                for name, milliseconds in re.findall(r"\[       OK \] (.*) \((\d+) ms\)", log.read()):
                    key, took = f"{program} {name}", int(milliseconds) / 1000
                    self.seconds[key] = min(took, self.seconds.get(key, took))
                log.close()
        self.file.write_text(json.dumps(self.seconds, indent=0, sort_keys=True))
        return outcome

    def is_late(self):
        return self.deadline is not None and time.monotonic() > self.deadline

    @staticmethod
    def first_failure(log):
        log.seek(0)
        text = log.read()
        failed = re.findall(r"\[  FAILED  \] ([^\s,]+)", text)
        begun = re.findall(r"\[ RUN      \] (\S+)", text)
        return failed[0] if failed else begun[-1] if begun else None

    def notice(self, path, program, tests, trial):
        """The first test that fails, and passes without the fault; None."""
        tests = [t for t in tests if (program, t) not in self.failing]
        while tests:
            failed = self.run(path, program, tests)
            if failed is None:
                return None
            # Where it is no test by itself, such as what is set up before all of them, it is one of them that tells.
            asked = [failed] if failed in tests else tests
            deadline, self.deadline = self.deadline, None
            given = trial.kept_command
            trial.restore_command()
            usual = self.run(self.build.output_of(program), program, asked)
            if given:
                trial.give_command()
            again = self.run(path, program, asked) if usual is None else None
            self.deadline = deadline
            if again is not None:
                return failed
            if usual is not None:
                print(f"     (without a fault {program} fails, too: {failed})", flush=True)
                self.failing.update((program, t) for t in asked)
            tests = [t for t in tests if t not in asked]
        return None


SLOW = 8  # seconds: such a test comes after all others


def judged(build, tests, fault, seconds):
    """Who notices the fault: ("behaviour" or "texts", test), ("no", ""), or ("none", why it is no fault)."""
    suites = suites_for(fault.path)
    trial = Trial(build, fault)
    tests.deadline = time.monotonic() + seconds if seconds else None
    done = {p: set() for p in suites + TEXTS}

    def run(program, choose):
        trial.make(program)
        if tests.is_late():
            return None
        wanted = [t for t in choose(program) if t not in done[program]]
        if not wanted:
            return None
        done[program].update(wanted)
        if program in RUN_THE_COMMAND:
            trial.give_command()
        path = trial.linked(program)
        if path is None and not (program in RUN_THE_COMMAND and trial.kept_command):
            return None
        return tests.notice(path or build.output_of(program), program, wanted, trial)

    try:
        stages = (
            lambda p: related(fault.path, build.tests[p]),
            lambda p: [t for t in build.tests[p] if tests.usual(p, t) < SLOW],
            lambda p: build.tests[p],
        )
        for number, choose in enumerate(stages):
            for program in suites:
                failed = run(program, choose)
                if failed:
                    return "behaviour", f"{program}: {failed}"
            if number == 0 and trial.made and trial.is_the_same():
                return "none", "the same machine code"
        for program in TEXTS:
            failed = run(program, stages[-1])
            if failed:
                return "texts", f"{program}: {failed}"
        return "no", f"not within {seconds} s" if tests.is_late() else ""
    except DoesNotCompile:
        return "none", "does not compile"
    except BuildNotices:
        return "behaviour", "the build"
    finally:
        trial.close()


def cheapest_first(faults, count, build, planted):
    """The first `count` faults that can be planted; of those drawn together, what reaches little comes first."""
    begin = 0
    while planted() < count and begin < len(faults):
        end = begin + count - planted()
        yield from sorted(faults[begin:end], key=lambda f: len(build.of_file.get(str(build.tree / f.path), ())))
        begin = end


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0], epilog="See the head of this file.")
    parser.add_argument("--count", type=int, default=20)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--in", dest="beginning", default="", help="files whose paths begin so")
    parser.add_argument("--goal", type=float, default=95)
    parser.add_argument("--work", type=Path, default=ROOT / "build-mutants")
    parser.add_argument("--seconds", type=float, default=0, help="how long a fault is tried; 0: all tests are run")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--survivors", action="store_true", help="try again those that survived")
    options = parser.parse_args()

    files = [f for f in tracked() if f.startswith(options.beginning) and f.endswith(EXTENSIONS) and suites_for(f)]
    faults = drawn(files, options.seed)
    if not faults:
        print(f"mutate.py: --in {options.beginning}: no file there in which faults are planted", file=sys.stderr)
        return 2
    if options.list:
        for fault in faults[: options.count]:
            print(fault)
        return 0

    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # the fault that is planted is lifted
    work = options.work.resolve()
    results = work / "results.jsonl"
    (work / "tree").mkdir(parents=True, exist_ok=True)
    same_tree(work / "tree")
    build = Build(work)
    build.configure()
    tests = Tests(build)
    build.make("graven_eager_table")

    tried = {}
    for line in results.read_text().splitlines() if results.exists() else []:
        entry = json.loads(line)
        tried[entry["fault"]] = entry
    score, survivors, planted = {"behaviour": 0, "texts": 0, "no": 0}, [], 0
    for fault in cheapest_first(faults, options.count, build, lambda: planted):
        entry = tried.get(fault.name)
        if entry is None or (options.survivors and entry["noticed"] == "no"):
            began = time.monotonic()
            noticed, by = judged(build, tests, fault, options.seconds)
            entry = {"fault": fault.name, "noticed": noticed, "by": by, "seconds": round(time.monotonic() - began)}
            with open(results, "a") as log:
                log.write(json.dumps(entry) + "\n")
        if entry["noticed"] == "none":
            continue
        planted += 1
        score[entry["noticed"]] += 1
        if entry["noticed"] == "no":
            survivors.append(fault)
        said = "SURVIVED" if entry["noticed"] == "no" else "noticed "
        print(f"{planted:4} {said:8} {fault}  [{entry['by']}; {entry['seconds']} s]", flush=True)
    if planted == 0:
        print("mutate.py: no fault was planted", file=sys.stderr)
        return 2
    noticed = 100 * (planted - score["no"]) / planted
    print(
        f"\nmutants: seed {options.seed}: {planted} faults: {score['behaviour']} noticed by behaviour, "
        f"{score['texts']} by stored texts alone, "
        f"{score['no']} not: {noticed:.1f}%"
    )
    for fault in survivors:
        print("survived:", fault)
    return 0 if noticed >= options.goal else 1


if __name__ == "__main__":
    sys.exit(main())
