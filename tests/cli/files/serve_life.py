"""serve_life.py [STOPS]: ends a server under load and while it opens, and opens its weights again under load."""
import http.client
import json
import os
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import zlib

from serve import PICTURE, Server, check

IDLE = 0.5  # seconds after which a server that ends may close a connection without a request
HEADERS = {"Content-Type": "image/png"}


class Caller(threading.Thread):
    """Sends one request after another until none can be sent. A request that was sent has to be answered."""

    def __init__(self, server, keeps):
        super().__init__()
        self.server, self.keeps, self.answered, self.lost = server, keeps, 0, []
        self.start()

    def run(self):
        connection, last = None, time.time()
        while True:
            idle = connection is not None and connection.sock is not None and time.time() - last > IDLE
            try:
                if connection is None or not self.keeps:
                    connection = http.client.HTTPConnection("127.0.0.1", self.server.port, timeout=60)
                connection.request("POST", "/models/run/predict", PICTURE, HEADERS)
                reply = connection.getresponse()
                reply.read()
                if reply.status != 200:
                    self.lost.append(f"status {reply.status}")
                self.answered, last = self.answered + 1, time.time()
            except ConnectionRefusedError:
                return
            except (OSError, http.client.HTTPException) as error:
                if not idle:
                    self.lost.append(repr(error))
                return


def stop_under_load(stops):
    for _ in range(stops):
        server = Server("run", "--port", "0", "--batch", "4")
        callers = [Caller(server, keeps) for keeps in (True, False) * 4]
        time.sleep(0.2)
        check("exit code", server.stop(), 0)
        for one in callers:
            one.join()
        check("lost requests", [line for one in callers for line in one.lost], [])
        check("answered", all(one.answered > 0 for one in callers), True)


def large_png(side):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    rows = (b"\0" + os.urandom(3 * side // 2).ljust(3 * side, b"\7")) * side
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", side, side, 8, 2, 0, 0, 0)) +
            chunk(b"IDAT", zlib.compress(rows, 1)) + chunk(b"IEND", b""))


def is_live(place):
    with socket.socket(socket.AF_UNIX) as caller:
        try:
            caller.connect(place)
            caller.sendall(b"GET /health/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
            return caller.recv(100).startswith(b"HTTP/1.1 200")
        except OSError:
            return False


def stop_while_opening():
    """A gallery that takes minutes to open does not keep a server from its end."""
    os.mkdir("gallery")
    with open("gallery/0.png", "wb") as file:
        file.write(large_png(2000))
    for i in range(1, 4000):
        os.link("gallery/0.png", f"gallery/{i}.png")
    process = subprocess.Popen(["tessera", "serve", "clip", "--gallery", "gallery", "--socket", "opening"],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    began = time.time()
    while not is_live("opening"):
        check("live", time.time() - began < 60 and process.poll() is None, True)
        time.sleep(0.05)
    time.sleep(1)
    process.send_signal(signal.SIGTERM)
    check("exit code", process.wait(20), 0)
    check("it was not open", process.stdout.read(), b"")


def probabilities(server, keep=None):
    """The probabilities of two images of one request."""
    body = json.dumps({"parameters": {"top": 10}, "inputs": [
        {"name": "prepared", "datatype": "FP32", "shape": [2, 3, 32, 32], "data": [0.5] * 3072 + [-0.5] * 3072}]})
    status, reply, _ = server.ask("POST", "/v2/models/live/infer", body, keep=keep)
    check("status", status, 200)
    outputs = {one["name"]: one["data"] for one in json.loads(reply)["outputs"]}
    pairs = list(zip(outputs["index"], outputs["probability"]))
    half = len(pairs) // 2
    return [share for _, share in sorted(pairs[:half]) + sorted(pairs[half:])]


def same(a, b):
    return all(abs(x - y) < 1e-5 for x, y in zip(a, b))


def put(run):
    shutil.copy(f"{run}/model.safetensors", "live/next")
    os.replace("live/next", "live/model.safetensors")


def reload_under_load(hups):
    """No request fails while weights are replaced, and each answer is wholly from the old or the new ones."""
    shutil.copytree("run", "live")
    states = []
    for run in "other", "run":
        put(run)
        server = Server("live", "--port", "0")
        states.append(probabilities(server))
        if run == "other":
            server.stop()
    check("two states", same(*states), False)
    done, answers, failures = threading.Event(), [], []

    def press():
        keep = http.client.HTTPConnection("127.0.0.1", server.port, timeout=60)
        try:
            while not done.is_set():
                answers.append(probabilities(server, keep))
        except BaseException as error:
            failures.append(repr(error))

    callers = [threading.Thread(target=press) for _ in range(4)]
    for one in callers:
        one.start()
    for i in range(hups):
        put(("other", "run")[i % 2])
        server.process.send_signal(signal.SIGHUP)
        time.sleep(0.15)
    with open("live/next", "wb") as file:
        file.write(b"damaged")
    os.replace("live/next", "live/model.safetensors")
    server.process.send_signal(signal.SIGHUP)
    began = time.time()
    while not any("the models of before stay" in line for line in server.lines) and time.time() - began < 20:
        time.sleep(0.05)
    done.set()
    for one in callers:
        one.join()
    check("failures", failures, [])
    check("mixed answers", [one for one in answers if not any(same(one, state) for state in states)], [])
    check("both states", [any(same(one, state) for one in answers) for state in states], [True, True])
    check("the weights of before stay", any("the models of before stay" in line for line in server.lines), True)
    check("an answer after damage", any(same(probabilities(server), state) for state in states), True)
    check("exit code", server.stop(), 0)


def main():
    stop_under_load(int((sys.argv[1:] or ["5"])[0]))
    print("stopped under load")
    stop_while_opening()
    print("stopped while opening")
    reload_under_load(20)
    print("reloaded under load")


main()
