"""Serves the runs of the folder and uses the server as its callers do, good and bad. Prints one line a subject."""
import atexit
import base64
import concurrent.futures
import http.client
import json
import os
import re
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

PICTURE = open(os.path.join(os.environ["PICTURES"], "star.png"), "rb").read()


class Server:
    def __init__(self, *words):
        self.process = subprocess.Popen(["tessera", "serve", *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                        text=True)
        atexit.register(self.process.kill)
        line = self.process.stdout.readline()
        found = re.search(r"http://([\d.]+):(\d+)", line)
        self.port = int(found.group(2)) if found else 0
        self.lines = []
        threading.Thread(target=lambda: self.lines.extend(self.process.stderr), daemon=True).start()

    def ask(self, method, path, body=None, headers=None, keep=None):
        connection = keep or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        connection.request(method, path, body=body, headers=headers or {})
        reply = connection.getresponse()
        return reply.status, reply.read(), reply.headers

    def raw(self, request, timeout=15):
        """The status of a request in bytes; 0 if the connection closes without one."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=timeout) as caller:
            caller.sendall(request)
            reply = b""
            while b"\r\n\r\n" not in reply:
                try:
                    got = caller.recv(65536)
                except ConnectionResetError:
                    break
                if not got:
                    break
                reply += got
            return int(reply.split(b" ", 2)[1]) if reply else 0

    def stop(self, number=signal.SIGTERM):
        self.process.send_signal(number)
        return self.process.wait(60)


def check(name, found, wanted):
    if found != wanted:
        print(f"{name}: found {found!r}, must be {wanted!r}")
        sys.exit(1)


def png(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(b"\0" * 1000)) + chunk(b"IEND", b""))


def good(server):
    status, body, _ = server.ask("POST", "/models/run/predict?top=3", PICTURE, {"Content-Type": "image/png"})
    command = json.loads(subprocess.run(["tessera", "predict", "--weights", "run", "--json", "--top", "3", "-"],
                                        input=PICTURE, capture_output=True, check=True).stdout)
    check("predict", (status, json.loads(body)["predictions"]), (200, command["predictions"]))
    form = (b'--b\r\nContent-Disposition: form-data; name="image"; filename="a.png"\r\nContent-Type: image/png\r\n\r\n' +
            PICTURE + b'\r\n--b\r\nContent-Disposition: form-data; name="top"\r\n\r\n3\r\n--b--\r\n')
    check("form", server.ask("POST", "/models/run/predict", form, {"Content-Type": "multipart/form-data; boundary=b"})[1],
          body)
    check("base64", server.ask("POST", "/models/run/predict",
                               json.dumps({"image": base64.b64encode(PICTURE).decode(), "top": 3}),
                               {"Content-Type": "application/json"})[1], body)
    packed = zlib.compressobj(wbits=31)
    check("gzip", server.ask("POST", "/models/run/predict?top=3", packed.compress(PICTURE) + packed.flush(),
                             {"Content-Type": "image/png", "Content-Encoding": "gzip"})[1], body)
    return command["predictions"]


def v2(server, predictions):
    head = json.dumps({"id": "a", "parameters": {"top": 3, "binary_data_output": True}, "inputs": [
        {"name": "image", "datatype": "BYTES", "shape": [2], "parameters": {"binary_data_size": 2 * len(PICTURE) + 8}}]})
    one = struct.pack("<I", len(PICTURE)) + PICTURE
    status, body, headers = server.ask("POST", "/v2/models/run/infer", head.encode() + one + one,
                                       {"Inference-Header-Content-Length": str(len(head))})
    length = int(headers["inference-header-content-length"])
    outputs = json.loads(body[:length])["outputs"]
    check("v2 shapes", [(o["name"], o["shape"]) for o in outputs],
          [("class", [2, 3]), ("index", [2, 3]), ("probability", [2, 3])])
    shares = struct.unpack("<6d", body[-48:])
    error = max(abs(a - b["probability"]) for a, b in zip(shares, predictions * 2))
    check("v2 values", error < 1e-6, True)
    prepared = {"inputs": [{"name": "prepared", "datatype": "FP32", "shape": [1, 3, 32, 32], "data": [0.5] * 3072}]}
    check("v2 list", server.ask("POST", "/v2/models/run/versions/1/infer", json.dumps(prepared))[0], 200)
    prepared["inputs"][0]["data"][7] = 1e39
    check("v2 infinite", server.ask("POST", "/v2/models/run/infer", json.dumps(prepared))[0], 400)
    metadata = json.loads(server.ask("GET", "/v2/models/run")[1])
    check("v2 metadata", (metadata["name"], metadata["parameters"]["preprocessing"]["size"]), ("run", 32))
    for path in "/v2/health/live", "/v2/health/ready", "/v2/models/run/ready", "/health/live", "/health/ready":
        check(path, server.ask("GET", path)[0], 200)


def others(server):
    image = {"Content-Type": "image/png"}
    mask = json.loads(server.ask("POST", "/models/segment/predict", PICTURE, image)[1])
    check("segment", (mask["width"], mask["height"], base64.b64decode(mask["mask"])[:4]), (64, 64, b"\x89PNG"))
    check("mask", server.ask("POST", "/models/segment/predict", PICTURE, {**image, "Accept": "image/png"})[1],
          base64.b64decode(mask["mask"]))
    found = json.loads(server.ask("POST", "/models/detr/predict?threshold=0", PICTURE, image)[1])
    check("detect", len(found["objects"]), 8)
    named = json.loads(server.ask("POST", "/models/clip/predict?class=star&class=disc", PICTURE, image)[1])
    check("zeroshot", sorted(p["class"] for p in named["predictions"]), ["disc", "star"])
    vector = json.loads(server.ask("POST", "/models/clip.features/predict", PICTURE, image)[1])
    check("features", vector["shape"], [16])
    drawn = json.loads(server.ask("POST", "/models/diffuse/predict", json.dumps({"count": 2, "steps": 3, "sampler": "ddim"}),
                                  {"Content-Type": "application/json"})[1])
    check("generate", [one["seed"] for one in drawn["results"]], [0, 1])


def jobs(server):
    body, json_type = json.dumps({"steps": 1000, "count": 64, "sampler": "ddim"}), {"Content-Type": "application/json"}
    status, reply, headers = server.ask("POST", "/models/diffuse/jobs", body, json_type)
    check("job", (status, headers["Location"]), (202, "/jobs/" + json.loads(reply)["id"]))
    while json.loads(server.ask("GET", headers["Location"])[1])["step"] < 2:
        time.sleep(0.01)
    status, reply, _ = server.ask("DELETE", headers["Location"])
    check("delete", status, 202)
    events = server.ask("GET", headers["Location"] + "/events")[1].decode()
    last = events.strip().split("\n\n")[-1]
    check("cancelled", last.startswith("event: cancelled"), True)
    check("steps after DELETE", json.loads(last.split("data: ")[1])["step"] - json.loads(reply)["step"] <= 1, True)
    status, reply, headers = server.ask("POST", "/models/diffuse/jobs", json.dumps({"count": 1, "steps": 20, "sampler": "ddim"}), json_type)
    events = server.ask("GET", headers["Location"] + "/events")[1].decode()
    check("events", events.strip().split("\n\n")[-1].startswith("event: done"), True)
    results = json.loads(server.ask("GET", headers["Location"])[1])["results"]
    check("results", base64.b64decode(results["image"])[:4], b"\x89PNG")
    # A job whose only listener leaves is stopped.
    status, reply, headers = server.ask("POST", "/models/diffuse/jobs", body, json_type)
    with socket.create_connection(("127.0.0.1", server.port)) as caller:
        caller.sendall(b"GET " + headers["Location"].encode() + b"/events HTTP/1.1\r\nHost: localhost\r\n\r\n")
        caller.recv(100)
    began = time.time()
    while json.loads(server.ask("GET", headers["Location"])[1])["state"] != "cancelled":
        check("left job ends", time.time() - began < 10, True)
        time.sleep(0.02)


def wrong(server):
    image = {"Content-Type": "image/png"}
    cases = [
        ("POST", "/models/ruin/predict", PICTURE, image, 404, "did you mean 'run'"),
        ("POST", "/models/run/predict?topp=1", PICTURE, image, 400, "did you mean 'top'"),
        ("POST", "/models/run/predict?top=0", PICTURE, image, 400, "at least 1"),
        ("POST", "/models/run/predict?top=x", PICTURE, image, 400, "whole number"),
        ("POST", "/models/run/predict", b"no image", image, 422, "not an image"),
        ("POST", "/models/run/predict", b"", image, 400, "no input"),
        ("POST", "/models/run/predict", b"text", {"Content-Type": "text/plain"}, 415, "Content-Type"),
        ("POST", "/models/run/predict", png(65535, 65535), image, 413, "pixels"),
        ("POST", "/models/run/predict", PICTURE[:100], image, 422, "image 0"),
        ("POST", "/models/run/predict", b"{", {"Content-Type": "application/json"}, 400, "JSON"),
        ("POST", "/models/run/predict", b"{\"image\": \"*\"}", {"Content-Type": "application/json"}, 400, "base64"),
        ("POST", "/models/run/predict", PICTURE, {**image, "Content-Encoding": "br"}, 415, "gzip"),
        ("POST", "/models/run/predict", PICTURE, {**image, "Content-Encoding": "gzip"}, 400, "gzip"),
        ("POST", "/models/run/predict", zlib_bomb(), {**image, "Content-Encoding": "gzip"}, 413, "inflated"),
        ("GET", "/models/run/predict", None, {}, 405, "POST"),
        ("POST", "/models", b"", {}, 405, "GET"),
        ("GET", "/nothing", None, {}, 404, "openapi"),
        ("GET", "/jobs/1", None, {}, 404, "no job"),
        ("GET", "/models/%00", None, {}, 400, "no text"),
        ("GET", "/models", None, {"Host": "example.org"}, 403, "--host"),
        ("GET", "/models", None, {"Origin": "http://example.org"}, 403, "page"),
        ("POST", "/v2/models/run/infer", b"{}", {}, 400, "no input"),
        ("POST", "/v2/models/run/infer", b"{", {}, 400, "JSON"),
        ("POST", "/v2/models/run/infer", b'{"inputs": [{"name": "imag", "datatype": "BYTES", "shape": [0], "data": []}]}', {},
         400, "did you mean 'image'"),
        ("POST", "/v2/models/run/infer", b'{"inputs": [{"name": "image", "datatype": "FP23", "shape": [0], "data": []}]}', {},
         400, "did you mean 'FP32'"),
        ("POST", "/v2/models/run/infer", b"{}", {"Inference-Header-Content-Length": "99"}, 400, "body has 2 bytes"),
        ("POST", "/v2/models/run/infer",
         b'{"inputs": [{"name": "prepared", "datatype": "FP32", "shape": [4294967296, 3, 32, 32], "data": []}]}', {}, 413,
         "elements"),
        ("POST", "/v2/models/run/versions/2/infer", b"{}", {}, 404, "version 1"),
        ("POST", "/models/diffuse/predict?count=65", b"", {}, 413, "at most 64"),
        ("POST", "/models/diffuse/predict?classes=staar", b"", {}, 400, "no class"),
        ("POST", "/models/diffuse/predict?sampler=ddim&spacing=x", b"", {}, 400, "spacing"),
        ("POST", "/models/clip/predict", PICTURE, image, 400, "class"),
    ]
    for method, path, body, headers, status, words in cases:
        found, reply, _ = server.ask(method, path, body, headers)
        check(f"{method} {path}", (found, words in json.loads(reply)["error"]), (status, True))
    return len(cases)


def zlib_bomb():
    packed = zlib.compressobj(9, wbits=31)
    return b"".join(packed.compress(b"\0" * (1 << 20)) for _ in range(70)) + packed.flush()


def hostile(server):
    post = b"POST /models/run/predict HTTP/1.1\r\nHost: localhost\r\n"
    cases = [
        (post + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", {400}),
        (post + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd", {400}),
        (post + b"Content-Length: -1\r\n\r\n", {400}),
        (post + b"Content-Length: 99999999999999999999999\r\n\r\n", {400}),
        (post + b"Content-Length: 9999999999\r\n\r\n", {413}),
        (post + b"Transfer-Encoding: chunked\r\n\r\n-5\r\nabc\r\n0\r\n\r\n", {400}),
        (post + b"Transfer-Encoding: chunked\r\n\r\nfffffffffffffffff\r\nabc", {400}),
        (post + b"Transfer-Encoding: chunked\r\n\r\nfffffff0\r\nabc", {413}),
        (post + b"Transfer-Encoding: gzip, identity\r\n\r\n", {400, 411}),
        (post + b"\r\n", {411}),
        (post + b"".join(b"X-%d: a\r\n" % i for i in range(1000)) + b"X: " + b"a" * 9000 + b"\r\n\r\n", {431}),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\n\r\n", {431}),
        (b"GET /" + b"a" * 3000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /models\x00 HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"GET /models HTTP/1.1\r\nHost: local\x00host\r\n\r\n", {400}),
        (b"GET /models HTTP/1.1\r\nHost : localhost\r\n\r\n", {400}),
        (b"GET /models HTTP/1.1\r\n\r\n", {403}),
        (b"GET http://localhost/models HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", {400}),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" * 10, {400}),
        (b"GET /../../etc/passwd HTTP/1.1\r\nHost: localhost\r\n\r\n", {400, 404}),
        (b"BREW /models HTTP/1.1\r\nHost: localhost\r\n\r\n", {405}),
        (b"GET /models HTTP/9.9\r\nHost: localhost\r\n\r\n", {400}),
    ]
    for request, wanted in cases:
        found = server.raw(request)
        check(repr(request[:90]), found in wanted or found, True)
        check("the next good request", server.ask("GET", "/health/ready")[0], 200)
    return len(cases)


def overload(server):
    """Many callers at once: each is answered or refused, and health is quick."""
    counts, slow = {}, []

    def press(_):
        return server.ask("POST", "/models/run/predict", PICTURE, {"Content-Type": "image/png"})[0]

    idle = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
    for one in idle[:50]:
        one.sendall(b"POST /models/run/predict HTTP/1.1\r\nHo")
    with concurrent.futures.ThreadPoolExecutor(48) as pool:
        waiting = [pool.submit(press, i) for i in range(600)]
        for _ in range(20):
            began = time.time()
            check("health", server.ask("GET", "/health/ready")[0], 200)
            slow.append(time.time() - began)
        for one in waiting:
            counts[one.result()] = counts.get(one.result(), 0) + 1
    for one in idle:
        one.close()
    check("overload", (set(counts) <= {200, 429}, counts.get(200, 0) > 0, sorted(slow)[10] < 2), (True, True, True))


def described(server):
    document = json.loads(server.ask("GET", "/openapi.json")[1])
    check("openapi", (document["openapi"], "/models/run/predict" in document["paths"]), ("3.0.3", True))
    text = server.ask("GET", "/metrics")[1].decode()
    check("metrics", 'tessera_requests_total{model="run",status="200"}' in text and "tessera_batch_images_sum" in text, True)
    check("models", len(json.loads(server.ask("GET", "/models")[1])["models"]) >= 7, True)


def main():
    server = Server("run", "segment", "detr", "diffuse", "clip", "--port", "0")
    v2(server, good(server))
    others(server)
    print("good requests of every kind")
    jobs(server)
    print("jobs")
    print("refused by name:", wrong(server))
    print("hostile:", hostile(server))
    overload(server)
    print("overload")
    described(server)
    check("exit code", server.stop(), 0)


if __name__ == "__main__":
    main()
