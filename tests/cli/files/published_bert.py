"""Writes the weights of a run of task bert as transformers saves a BertForSequenceClassification: RUN OUT KEY=VALUE…"""
import json
import os
import struct
import sys

run, out = sys.argv[1:3]
data = open(run + "/model.safetensors", "rb").read()
start = 8 + struct.unpack("<Q", data[:8])[0]
header = json.loads(data[8:start])
metadata = header.pop("__metadata__")
shape = {name.removeprefix("bert."): tensor["shape"] for name, tensor in header.items()}
words, dim = shape["embeddings.word_embeddings.weight"]
config = {"architectures": ["BertForSequenceClassification"], "model_type": "bert", "vocab_size": words, "hidden_size": dim,
          "num_hidden_layers": 1, "num_attention_heads": 2,
          "intermediate_size": shape["encoder.layer.0.intermediate.dense.weight"][0],
          "max_position_embeddings": shape["embeddings.position_embeddings.weight"][0],
          "id2label": dict(enumerate(json.loads(metadata["tessera.class_names"])))}
config |= dict((key, json.loads(value)) for key, value in (word.split("=", 1) for word in sys.argv[3:]))
os.makedirs(out, exist_ok=True)
text = json.dumps(header).encode()
open(out + "/model.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + data[start:])
open(out + "/config.json", "w").write(json.dumps(config))
open(out + "/tokenizer.json", "w").write(json.loads(metadata["tessera.tokenizer"]))
