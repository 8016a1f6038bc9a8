#!/usr/bin/env python3
"""Compares registers, shared memory and blocks a multiprocessor of every GPU kernel with src/kernels/gpu/resources.txt.

  tests/gpu/resources.py BUILD            fails on a spill, a stack frame, a warning C75xx, or a register more than listed
  tests/gpu/resources.py BUILD --write    lists what the compiler reports now

The reports are ptxas's, next to the objects of the build (cmake/gpu.cmake). Shared memory is the kernel's own template argument
(kernels/gpu/launch.h). Registers are compared for the compiler that the list names; another one is checked for spills only.
"""
import pathlib
import re
import subprocess
import sys

LIST = pathlib.Path(__file__).resolve().parents[2] / "src/kernels/gpu/resources.txt"
# Of a multiprocessor: warps, blocks, bytes of shared memory (a block takes 1 KiB more).
MACHINES = {"sm_80": (64, 32, 164 << 10), "sm_90a": (64, 32, 228 << 10), "sm_100": (64, 32, 228 << 10), "sm_120": (48, 24, 100 << 10)}
REGISTERS = 65536
# Kernels whose tiles exceed the shared memory of some cards; the table of forms leaves them out there.
MOST_SHARED = {"sm_80": 163 << 10, "sm_90a": 227 << 10, "sm_100": 227 << 10, "sm_120": 99 << 10}


def blocks(machine, registers, threads, shared):
    """Returns the blocks that fit on a multiprocessor."""
    warps, most, memory = MACHINES[machine]
    of_block = threads // 32
    by_registers = REGISTERS // (-(-registers * 32 // 256) * 256) // of_block
    return min(most, warps // of_block, by_registers, memory // (shared + 1024))


def readable(names):
    plain = subprocess.run(["c++filt"], input="\n".join(names), capture_output=True, text=True, check=True).stdout.split("\n")
    return [re.sub(r"\btessera::kernels::gpu::", "", name) for name in plain]


def kernels(build):
    """Returns {(machine, kernel): (registers, threads, shared, problem)} of all reports."""
    found, warnings = {}, []
    reports = sorted(pathlib.Path(build).glob("src/kernels/*.report"))
    if not reports:
        sys.exit(f"resources: no report in {build}/src/kernels: build target tessera_gpu with an nvcc")
    for report in reports:
        text = report.read_text()
        warnings += [f"{report.name}: {line}" for line in text.split("\n") if re.search(r"\bC75\d\d\b", line)]
        entries = re.findall(r"Compiling entry function '(\S+)' for '(\S+)'(.*?)(?=Compiling entry|\Z)", text, re.S)
        for name, (_, machine, body) in zip(readable([e[0] for e in entries]), entries):
            match = re.match(r"void entry<(.*), (\d+), (\d+)>\(", name)
            if not match:
                sys.exit(f"resources: {report.name} has a kernel '{name}' that launch.h did not start")
            registers = int(re.search(r"Used (\d+) registers", body).group(1))
            stack, stores, loads = map(int, re.search(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+)", body).groups())
            problem = f"{stack} bytes of stack, {stores} stored and {loads} loaded by spills" if stack or stores or loads else ""
            found[machine, match.group(1)] = (registers, int(match.group(2)), int(match.group(3)), problem)
    return found, warnings


def rows(found):
    for (machine, name), (registers, threads, shared, _) in sorted(found.items()):
        fits = shared <= MOST_SHARED[machine]
        yield f"{machine:8}{name:48}{registers:5}{shared:9}{blocks(machine, registers, threads, shared) if fits else '-':>4}"


def compiler(build):
    cache = (pathlib.Path(build) / "CMakeCache.txt").read_text()
    nvcc = re.search(r"^TESSERA_NVCC:\S+=(.+)$", cache, re.M) or re.search(r"^TESSERA_NVCC_FOUND:\S+=(.+)$", cache, re.M)
    return re.search(r"V[\d.]+", subprocess.run([nvcc.group(1), "--version"], capture_output=True, text=True, check=True).stdout).group(0)


def main():
    build, write = sys.argv[1], "--write" in sys.argv[2:]
    found, faults = kernels(build)
    version = compiler(build)
    faults += [f"{machine} {name}: {entry[3]}" for (machine, name), entry in sorted(found.items()) if entry[3]]
    head = f"# nvcc {version}\n# machine, kernel, registers, bytes of shared memory, blocks a multiprocessor (-: does not fit)\n"
    if write:
        LIST.write_text(head + "\n".join(row.rstrip() for row in rows(found)) + "\n")
    listed = LIST.read_text()
    if listed.startswith(f"# nvcc {version}\n"):
        before = {tuple(words[:-3]): words[-3:] for words in (line.split() for line in listed.split("\n")[2:] if line)}
        for row in rows(found):
            words = row.split()
            old = before.get(tuple(words[:-3]))
            if old is None:
                faults.append(f"not in resources.txt: {row}")
            elif int(words[-3]) > int(old[0]) or words[-2:] != old[1:]:
                faults.append(f"{' '.join(words[:-3])}: {' '.join(words[-3:])}, resources.txt has {' '.join(old)}")
        missing = set(before) - {tuple(row.split()[:-3]) for row in rows(found)}
        faults += [f"in resources.txt alone: {' '.join(words)}" for words in sorted(missing)]
    else:
        print(f"resources: nvcc {version} is not the one of resources.txt; only spills are checked")
    print("\n".join(faults) or f"resources: {len(found)} kernels without a spill")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
