"""Compares the answers of a server with those of the commands, for answers with options, conversations and streams."""
import base64
import glob
import json
import os
import re
import subprocess

from serve import PICTURE, Server, check, png

STAR = os.path.join(os.environ["PICTURES"], "star.png")
IMAGE, JSON = {"Content-Type": "image/png"}, {"Content-Type": "application/json"}


def command(*words, given=None):
    done = subprocess.run(["tessera", *words], input=given, capture_output=True, check=True, text=True)
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def ask(server, model, body, headers=JSON, query=""):
    status, reply, _ = server.ask("POST", f"/models/{model}/predict{query}",
                                  json.dumps(body) if headers is JSON else body, headers)
    check(f"{model}{query}: {reply[:200]}", status, 200)
    return json.loads(reply)


def texts(server):
    """A language model's answer, at once, as events, and as a job."""
    wanted = command("chat", "--weights", "lm", "--prompt", "the cat", "--max-tokens", "12", "--json")[0]
    body = {"prompt": "the cat", "max_tokens": 12}
    found = ask(server, "lm", body)
    check("chat", {key: found[key] for key in ("answer", "end", "tokens")},
          {key: wanted[key] for key in ("answer", "end", "tokens")})
    reply = server.ask("POST", "/models/lm/predict", json.dumps(body), {**JSON, "Accept": "text/event-stream"})
    events = [event.split("\ndata: ") for event in reply[1].decode().strip().split("\n\n")]
    check("streamed", "".join(json.loads(data)["text"] for kind, data in events if kind == "event: text"), wanted["answer"])
    check("last event", (reply[0], events[-1][0], json.loads(events[-1][1])["results"]["answer"]),
          (200, "event: done", wanted["answer"]))
    _, reply, headers = server.ask("POST", "/models/lm/jobs", json.dumps(body), JSON)
    events = server.ask("GET", headers["Location"] + "/events")[1].decode()
    check("job", "event: done" in events and "event: text" in events, True)
    infer = {"parameters": body, "inputs": []}
    outputs = json.loads(server.ask("POST", "/v2/models/lm/infer", json.dumps(infer))[1])["outputs"]
    check("v2", outputs[0]["data"], [wanted["answer"]])
    for wrong, why in (({}, "prompt"), ({"prompt": "a", "top_p": 0.5}, "option 'temperature'"),
                       ({"prompt": "a", "beams": 17}, "from 1 to 16"),
                       ({"messages": [{"role": "assistant", "content": "a"}]}, "message 0"),
                       ({"messages": [{"role": "user"}]}, "content"), ({"prompt": "a", "messages": []}, "message"),
                       ({"prompt": "a", "template": "v2"}, "v2"), ({"prompt": "a " * 400}, "tokens")):
        status, reply, _ = server.ask("POST", "/models/lm/predict", json.dumps(wrong), JSON)
        check(f"{wrong}: {reply}", (status, why in json.loads(reply)["error"]), (400, True))
    metrics = server.ask("GET", "/metrics")[1].decode()
    requests = sum(map(int, re.findall(r'tessera_requests_total{model="lm",status="\d+"} (\d+)', metrics)))
    timed = int(re.search(r'tessera_request_seconds_count{model="lm"} (\d+)', metrics).group(1))
    check("requests with their time, streams too", timed, requests)
    check("event streams of jobs", 'tessera_requests_total{model="",status="200"}' in metrics, True)


def classes(server):
    """Classes of texts."""
    wanted = command("predict", "--weights", "bert", "--text", "the cat", "--pair", "a rat", "--json")[0]["predictions"]
    body = {"text": "the cat", "pair": "a rat"}
    check("classes", ask(server, "bert", body)["predictions"], wanted)
    infer = {"parameters": body, "inputs": []}
    outputs = json.loads(server.ask("POST", "/v2/models/bert/infer", json.dumps(infer))[1])["outputs"]
    check("v2", [one["data"] for one in outputs], [[line[key] for line in wanted] for key in ("class", "index", "probability")])
    for wrong, code, why in (({"text": " "}, 400, "text"), ({"text": "a", "top": 0}, 400, "top"),
                             ({"text": "a " * 600000}, 413, "at most")):
        status, reply, _ = server.ask("POST", "/models/bert/predict", json.dumps(wrong), JSON)
        check(f"{wrong}: {reply}"[:300], (status, why in json.loads(reply)["error"]), (code, True))


def conversation(server):
    """Questions about an image: earlier turns are given again."""
    lines = command("chat", "--weights", "llava", "--image", STAR, "--template", "short", "--max-tokens", "4", "--json",
                    given="the cat\nthe rat\n")
    messages = [{"role": "user", "content": "the cat"}, {"role": "assistant", "content": lines[0]["answer"]},
                {"role": "user", "content": "the rat"}]
    image = base64.b64encode(PICTURE).decode()
    for turns, wanted in ((messages[:1], lines[0]), (messages, lines[1])):
        found = ask(server, "llava", {"messages": turns, "image": image, "template": "short", "max_tokens": 4})
        check("llava", (found["answer"], found["prompt_tokens"]), (wanted["answer"], wanted["prompt_tokens"]))
    messages[1]["content"] = "an <image>"
    ask(server, "llava", {"messages": messages, "image": image, "template": "short", "max_tokens": 4})


def completions(server):
    command("complete", STAR, "--weights", "darl", "--folder", "drawn", "--samples", "2", "--steps", "3", "--seed", "5")
    found = ask(server, "darl", PICTURE, IMAGE, "?samples=2&steps=3&seed=5")["results"]
    check("complete", [base64.b64decode(one["image"]) for one in found],
          [open(name, "rb").read() for name in sorted(glob.glob("drawn/*.png"))])
    broken = base64.b64encode(PICTURE[:200]).decode()
    body = {"image": [base64.b64encode(PICTURE).decode(), broken], "count": 1, "samples": 1, "steps": 2}
    check("images that are not completed are not decoded", "results" in ask(server, "darl", body), False)
    check("from nothing", len(ask(server, "darl", {"count": 3, "steps": 2})["results"]), 3)


def searches(server):
    wanted = command("retrieve", "a star", "--weights", "clip", "--in", os.environ["PICTURES"], "--top", "2", "--json")
    found = ask(server, "clip.retrieve", {"text": "a star", "top": 2})["images"]
    check("retrieve", [(one["file"], round(one["cosine"], 5)) for one in found],
          [(one["file"], round(one["cosine"], 5)) for one in wanted])
    check("an index of each model", os.path.exists("vectors.clip"), True)
    check("by image", ask(server, "clip.retrieve", PICTURE, IMAGE, "?top=1")["images"][0]["file"], STAR)


def views(server):
    command("segment", STAR, "--weights", "segment", "-o", "mask.png", "--tile", "32", "--flip", "--json")
    found = ask(server, "segment", PICTURE, IMAGE, "?tile=32&flip=true")
    check("segment", base64.b64decode(found["mask"]), open("mask.png", "rb").read())
    wanted = command("detect", STAR, "--weights", "detr", "--threshold", "0", "--scales", "1,0.5", "--flip", "--json")
    plain = ask(server, "detr", PICTURE, IMAGE, "?threshold=0")
    found = ask(server, "detr", PICTURE, IMAGE, "?threshold=0&scales=1,0.5&flip=true")
    check("detect", found["objects"], wanted[0]["objects"])
    check("views of one request", ask(server, "detr", PICTURE, IMAGE, "?threshold=0"), plain)
    for query in "segment/predict?tile=4", "segment/predict?scales=99", "detr/predict?scales=1,1,1,1,1,1,1,1,1":
        check(query, server.ask("POST", "/models/" + query, PICTURE, IMAGE)[0], 413)
    # Bounds on pixels are checked before this image, which is cut, is decoded.
    large = png(5000, 5000)
    for query in "segment/predict?tile=32&stride=8", "detr/predict?tile=64":
        status, reply, _ = server.ask("POST", "/models/" + query, large, IMAGE)
        check(f"{query}: {reply}", (status, " at most" in json.loads(reply)["error"]), (413, True))
    many = {"image": [base64.b64encode(large).decode()] * 9}
    check("pixels of all images", server.ask("POST", "/models/detr/predict", json.dumps(many), JSON)[0], 413)


def main():
    server = Server("lm", "bert", "llava", "darl", "clip", "segment", "detr", "--gallery", os.environ["PICTURES"], "--index", "vectors",
                    "--port", "0")
    for act in texts, classes, conversation, completions, searches, views:
        act(server)
        print(act.__name__)
    check("exit code", server.stop(), 0)


main()
