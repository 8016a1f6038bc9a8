"""Requests a second, latencies, overload and slow connections of `tessera serve`. Prints rows of Markdown.

    serve.py --program TESSERA rates --model NAME | --weights RUN    against bench infer and FastAPI with PyTorch, in turns
    serve.py --program TESSERA overload                              256 clients on a queue of 64
    serve.py --program TESSERA slow                                  a good client next to 1,000 slow connections
"""
import argparse
import asyncio
import contextlib
import io
import os
import pathlib
import re
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import time

from rounds import row, take_turns, tessera

HERE = pathlib.Path(__file__).parent


# --- what is served

def picture():
    """A smooth image of 224 x 224, as a JPEG."""
    import numpy
    from PIL import Image

    y, x = numpy.mgrid[0:224, 0:224]
    pixels = numpy.stack([127 + 120 * numpy.sin(x / 9), 127 + 120 * numpy.cos(y / 7), (x * y) % 255], -1)
    out = io.BytesIO()
    Image.fromarray(pixels.astype(numpy.uint8)).save(out, "JPEG", quality=90)
    return out.getvalue()


def write_weights(options, folder):
    """Weights of the model, random: speed does not depend on them."""
    import torch

    torch.manual_seed(0)
    if options.model.startswith("vil_"):
        import vil_peer

        model = vil_peer.VisionLstm(vil_peer.WIDTHS[options.model])
        vil_peer.fill(model)
    else:
        import timm

        model = timm.create_model(options.model, pretrained=False)
    torch.save(model.state_dict(), folder / "model.pth")
    weights = folder / "model.safetensors"
    subprocess.run([options.program, "convert", folder / "model.pth", weights, "--model", options.model], check=True,
                   stdout=subprocess.DEVNULL)
    return weights


@contextlib.contextmanager
def served(options, weights, precision, *words):
    """The port of a server of model `m`, and its process."""
    process = subprocess.Popen([options.program, "serve", f"m={weights}", "--port", "0", "--precision", precision,
                                "--threads", str(options.threads), *words], stdout=subprocess.PIPE,
                               stderr=subprocess.DEVNULL, text=True)
    try:
        line = process.stdout.readline()
        found = re.search(r":(\d+)", line)
        if not found:
            sys.exit(f"the server did not start: {line}")
        yield int(found.group(1)), process
    finally:
        process.terminate()
        process.wait(120)


@contextlib.contextmanager
def peer(options, weights, precision):
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen([sys.executable, HERE / "serve_peer.py", options.model, precision, weights, str(port),
                                str(options.threads)])
    try:
        began = time.monotonic()
        while True:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port)):
                break
            if process.poll() is not None or time.monotonic() - began > 120:
                sys.exit("the peer did not start")
            time.sleep(0.1)
        yield port
    finally:
        process.terminate()
        process.wait(60)


# --- clients

class Caller:
    """One keep-alive connection."""

    def __init__(self, port):
        self.port, self.reader, self.writer = port, None, None

    async def ask(self, request):
        """Returns status, seconds and the value of Retry-After."""
        if self.writer is None:
            self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        began = time.perf_counter()
        self.writer.write(request)
        head = (await self.reader.readuntil(b"\r\n\r\n")).lower()
        length = re.search(rb"content-length: *(\d+)", head)
        await self.reader.readexactly(int(length.group(1)))
        wait = re.search(rb"retry-after: *(\d+)", head)
        if b"connection: close" in head:
            self.writer.close()
            self.writer = None
        return int(head.split(b" ", 2)[1]), time.perf_counter() - began, int(wait.group(1)) if wait else 0


def post(path, body):
    return (f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n"
            ).encode() + body


def get(path):
    return f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()


async def press(port, request, clients, seconds, obeys=False):
    """Keeps `clients` requests on their way. Returns [(status, seconds)] of those that ended in time. `obeys`: a caller
    waits after a refusal, at most a second."""
    results, end = [], time.perf_counter() + seconds

    async def one():
        caller = Caller(port)
        while time.perf_counter() < end:
            status, took, wait = await caller.ask(request)
            results.append((status, took))
            if wait and obeys:
                await asyncio.sleep(min(wait, 1))

    await asyncio.gather(*(one() for _ in range(clients)))
    return results


def quantile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else float("nan")


def measured_by_wrk(port, path, body, clients, seconds, folder):
    script = folder / "post.lua"
    (folder / "body").write_bytes(body)
    script.write_text(f'local file = io.open("{folder}/body", "rb")\nwrk.method = "POST"\nwrk.body = file:read("*a")\n'
                      'wrk.headers["Content-Type"] = "image/jpeg"\n'
                      'done = function(summary, latency, requests)\n'
                      '  print(string.format("RESULT %f %f %f %d", summary.requests / summary.duration * 1e6,\n'
                      '    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3,\n'
                      '    summary.errors.status + summary.errors.read + summary.errors.timeout))\nend\n')
    out = subprocess.run(["wrk", "-t1", f"-c{clients}", f"-d{max(1, round(seconds))}s", "--timeout", "60s", "-s", script,
                          f"http://127.0.0.1:{port}{path}"], check=True, capture_output=True, text=True).stdout
    rate, middle, slow, errors = re.search(r"RESULT (\S+) (\S+) (\S+) (\d+)", out).groups()
    if int(errors) > 0:
        sys.exit(f"{errors} requests failed:\n{out}")
    return {"rate": float(rate), "p50": float(middle), "p99": float(slow)}


def measured(port, path, body, clients, seconds, folder):
    """Requests a second, and quantiles in ms, after a second to warm up."""
    asyncio.run(press(port, post(path, body), clients, min(1, seconds)))
    if shutil.which("wrk"):
        return measured_by_wrk(port, path, body, clients, seconds, folder)
    began = time.perf_counter()
    results = asyncio.run(press(port, post(path, body), clients, seconds))
    took = time.perf_counter() - began
    if {status for status, _ in results} != {200}:
        sys.exit(f"requests failed: {sorted({status for status, _ in results})}")
    times = [1e3 * one for _, one in results]
    return {"rate": len(results) / took, "p50": quantile(times, 0.5), "p99": quantile(times, 0.99)}


# --- the three measurements

def rates(options, folder):
    body = picture()
    weights = options.weights or write_weights(options, folder)
    name = options.model or pathlib.Path(options.weights).name
    infer = {"weights": weights, "threads": options.threads, "seconds": min(2, options.seconds)}
    for precision in options.precisions.split(","):
        batches = {batch: tessera(options.program, "infer", batch=batch, precision=precision, **infer)["images_per_second"]
                   for batch in (1, 2, 4, 8, 16)}
        best = max(batches, key=batches.get)

        def own(clients, precision=precision):
            with served(options, weights, precision) as (port, _):
                return measured(port, "/models/m/predict", body, clients, options.seconds, folder)

        def theirs(precision=precision):
            with peer(options, weights, precision) as port:
                return measured(port, "/predict", body, 32, options.seconds, folder)

        def bare(batch, precision=precision):
            rate = tessera(options.program, "infer", batch=batch, precision=precision, **infer)["images_per_second"]
            return {"rate": rate, "p50": 1e3 * batch / rate, "p99": float("nan")}

        ways = {(f"bench infer, batch {best}", ""): lambda: bare(best), ("bench infer, batch 1", ""): lambda: bare(1),
                ("tessera", 32): lambda: own(32), ("tessera", 1): lambda: own(1)}
        if options.model:
            ways["FastAPI, PyTorch", 32] = theirs
        results = take_turns(ways, options.rounds, f"serve {name} {precision}")
        limit = statistics.median(one["rate"] for one in results[f"bench infer, batch {best}", ""])
        for (server, clients), lines in results.items():
            middle = {key: statistics.median(one[key] for one in lines) for key in ("rate", "p50", "p99")}
            row(name, precision, server, clients, f"{middle['rate']:.1f}", f"{middle['rate'] / limit:.2f}",
                f"{middle['p50']:.1f}", f"{middle['p99']:.1f}" if clients else "")


def memory(process):
    with open(f"/proc/{process.pid}/status") as status:
        return {line.split()[0]: int(line.split()[1]) / 1024 for line in status if line.startswith(("VmRSS", "VmHWM"))}


def overload(options, folder):
    body, weights, queue = picture(), write_weights(options, folder), 64
    with served(options, weights, "bf16", "--queue", str(queue)) as (port, process):
        request = post("/models/m/predict", body)
        warm = asyncio.run(press(port, request, 32, options.seconds))
        throughput = len(warm) / options.seconds
        before = memory(process)["VmRSS:"]

        async def probe(path, end):
            times, caller = [], Caller(port)
            while time.perf_counter() < end:
                times.append((await caller.ask(get(path)))[1])
                await asyncio.sleep(0.1)
            return times

        async def all_at_once():
            end = time.perf_counter() + options.overload_seconds
            return await asyncio.gather(press(port, request, 256, options.overload_seconds, obeys=True),
                                        probe("/health/ready", end), probe("/metrics", end))

        results, health, metrics = asyncio.run(all_at_once())
        grown = memory(process)["VmHWM:"] - before
    answered = [took for status, took in results if status == 200]
    refused = [took for status, took in results if status in (429, 503)]
    allowed = queue / throughput * 1.25
    row(f"answered, refused, others of {len(results)} in {options.overload_seconds:g} s",
        f"{len(answered)}, {len(refused)}, {len(results) - len(answered) - len(refused)}", "no others")
    row("memory growth, MB", f"{grown:.1f}", "at most 50")
    for name, times in (("refusals", refused), ("health", health), ("metrics", metrics)):
        row(f"{name}, p99 ms", f"{1e3 * quantile(times, 0.99):.1f}", "at most 100")
    row("slowest answer, s", f"{max(answered):.2f}", f"at most {allowed:.2f}: queue / throughput + 25 %")


async def slow_connections(port, count):
    """A third sends nothing, a third half a header, a third reads one byte a second. They are opened again once closed."""
    async def one(kind):
        while True:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=2)
                writer.write((b"", b"POST /models/m/predict HTTP/1.1\r\nHo", get("/openapi.json"))[kind])
                while kind < 2 or await reader.read(1):
                    await asyncio.sleep(1)
                    if kind < 2 and reader.at_eof():
                        break
                writer.close()
            await asyncio.sleep(1)

    await asyncio.gather(*(one(i % 3) for i in range(count)))


def slow(options, folder):
    body, weights = picture(), write_weights(options, folder)
    with served(options, weights, "bf16") as (port, _):
        request = post("/models/m/predict", body)

        async def next_to_slow_ones():
            slow_ones = asyncio.create_task(slow_connections(port, 1000))
            await asyncio.sleep(min(3, options.seconds))
            results = await press(port, request, 1, options.seconds)
            slow_ones.cancel()
            return results

        alone = asyncio.run(press(port, request, 1, options.seconds))
        beside = asyncio.run(next_to_slow_ones())
    before, after = (1e3 * quantile([took for _, took in results], 0.99) for results in (alone, beside))
    row("one client alone, p99 ms", f"{before:.1f}", "")
    row("next to 1,000 slow connections, p99 ms", f"{after:.1f}", f"at most {2 * before:.1f}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--seconds", type=float, default=10, help="of a measurement")
    parser.add_argument("measurement", choices=("rates", "overload", "slow"))
    parser.add_argument("--model", default="")
    parser.add_argument("--weights", default="", help="a run instead of a model; it has no peer")
    parser.add_argument("--precisions", default="bf16")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--overload-seconds", type=float, default=60)
    options = parser.parse_args()
    options.program = os.path.abspath(options.program)
    if options.measurement != "rates" or not (options.model or options.weights):
        options.model = options.model or "vil_tiny_patch16_224"
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    with tempfile.TemporaryDirectory() as folder:
        {"rates": rates, "overload": overload, "slow": slow}[options.measurement](options, pathlib.Path(folder))


if __name__ == "__main__":
    main()
