"""serve_peer.py MODEL PRECISION WEIGHTS PORT THREADS: a model behind FastAPI and uvicorn, as its users write it: POST /predict
takes an encoded image and returns the five likeliest classes."""
import asyncio
import io
import sys

import torch
import uvicorn
from fastapi import FastAPI, Request
from PIL import Image
from safetensors.torch import load_file

MODEL, PRECISION, WEIGHTS, PORT, THREADS = sys.argv[1:]


def opened():
    """The network and its transform of an image."""
    import timm

    if MODEL.startswith("vil_"):
        import vil_peer

        model = vil_peer.VisionLstm(vil_peer.WIDTHS[MODEL])
        config = {"input_size": (3, 224, 224), "interpolation": "bicubic", "crop_pct": 1.0}
    else:
        model = timm.create_model(MODEL, pretrained=False)
        config = timm.data.resolve_data_config({}, model=model)
    model.load_state_dict(load_file(WEIGHTS))
    return model.eval(), timm.data.create_transform(**config)


torch.set_num_threads(int(THREADS))
DTYPE = {"fp32": torch.float32, "bf16": torch.bfloat16}[PRECISION]
network, transform = opened()
network = network.to(DTYPE)
app = FastAPI()


def answer(body):
    image = transform(Image.open(io.BytesIO(body)).convert("RGB"))[None].to(DTYPE)
    with torch.inference_mode():
        shares, classes = network(image).float().softmax(-1)[0].topk(5)
    return {"predictions": [{"index": c, "probability": s} for c, s in zip(classes.tolist(), shares.tolist())]}


@app.post("/predict")
async def predict(request: Request):
    return await asyncio.get_running_loop().run_in_executor(None, answer, await request.body())


uvicorn.run(app, host="127.0.0.1", port=int(PORT), log_level="error")
