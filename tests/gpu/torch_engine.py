"""A small OpenAI server on torch, with random weights: ``python torch_engine.py PORT [WIDTH LAYERS
SLOTS]``.

A decoder with a key-value cache, which works on SLOTS requests at a time, with one step for all of
them. Its output makes no sense, but its steps are those of a model of that size. It prints a line
``stage NAME TIME`` for each stage of its start. It runs as a kernel, with a Python that has torch
and aiohttp, and imports nothing from Moorage. Without CUDA it is very small.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import torch
from aiohttp import web

VOCABULARY = 32_000
HEAD = 128
CONTEXT = 512
PROMPT = 16


def stage(name: str, ago: float = 0.0) -> None:
    print("stage", name, f"{time.time() - ago:.3f}", flush=True)


def age() -> float:
    """Seconds since this process started, most of which it spent on imports."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")


class Model:
    """Weights, caches, and one step for all slots."""

    def __init__(self, width: int, layers: int, slots: int, device: torch.device) -> None:
        self.slots = slots
        self.device = device
        self.heads = width // HEAD
        self._kind = torch.bfloat16 if device.type == "cuda" else torch.float32
        self._embedding = self._weight(VOCABULARY, width)
        self._layers = [
            (
                self._weight(width, 3 * width),
                self._weight(width, width),
                self._weight(width, 4 * width),
                self._weight(4 * width, width),
            )
            for _ in range(layers)
        ]
        shape = (layers, 2, slots, self.heads, CONTEXT, HEAD)
        self._cache = torch.zeros(shape, device=device, dtype=self._kind)
        self.tokens = torch.zeros(slots, device=device, dtype=torch.long)
        self.positions = torch.zeros(slots, device=device, dtype=torch.long)
        self._rows = torch.arange(slots, device=device)
        self._columns = torch.arange(CONTEXT, device=device)
        self._graph: Any = None
        self._output = self.tokens
        self.parameters = self._embedding.numel() + sum(
            w.numel() for layer in self._layers for w in layer
        )

    def _weight(self, *shape: int) -> torch.Tensor:
        return torch.empty(*shape, device=self.device, dtype=self._kind).normal_(
            0, shape[0] ** -0.5
        )

    @torch.inference_mode()
    def capture(self) -> None:
        """Record a step as a CUDA graph: without one, a step is limited by the processor and not by
        the GPU."""
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._compute()

        torch.cuda.current_stream().wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._output = self._compute()

        self._graph = graph

    def forget_graph(self) -> None:
        self._graph = None

    @torch.inference_mode()
    def step(self, tokens: list[int], positions: list[int]) -> list[int]:
        """The next token for each slot."""
        self.tokens.copy_(torch.tensor(tokens))
        self.positions.copy_(torch.tensor(positions))
        if self._graph is None:
            return list(self._compute().tolist())
        self._graph.replay()
        return list(self._output.tolist())

    def _compute(self) -> torch.Tensor:
        functional = torch.nn.functional
        slots = self.slots
        heads = self.heads
        x = self._embedding[self.tokens]
        mask = (self._columns[None, :] <= self.positions[:, None])[:, None, None, :]
        for number, (qkv, out, up, down) in enumerate(self._layers):
            y = functional.rms_norm(x, x.shape[-1:])
            query, key, value = (y @ qkv).view(slots, 3, heads, HEAD).unbind(1)
            keys, values = self._cache[number]
            keys[self._rows, :, self.positions] = key
            values[self._rows, :, self.positions] = value
            attended = functional.scaled_dot_product_attention(
                query[:, :, None], keys, values, attn_mask=mask
            )
            x = x + attended.reshape(slots, heads * HEAD) @ out
            y = functional.rms_norm(x, x.shape[-1:])
            x = x + functional.gelu(y @ up) @ down

        logits = functional.rms_norm(x, x.shape[-1:]) @ self._embedding.T
        return logits.argmax(-1)


class Request:
    def __init__(self, prompt: str, length: int) -> None:
        self.prompt = list(prompt.encode()[-PROMPT:]) or [0]
        self.left = min(length, CONTEXT - PROMPT - 1)
        self.position = 0
        self.token = self.prompt[0]
        self.produced: asyncio.Queue[int | None] = asyncio.Queue()
        self.cancelled = False


class Worker:
    """Runs the steps in a separate thread. Without a request it waits, and the GPU is idle."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._waiting: list[Request] = []
        self._running: dict[int, Request] = {}
        self._wanted = threading.Condition()
        self.steps = 0
        self.cancelled = 0
        self.failed = ""

    @property
    def active(self) -> int:
        return len(self._running) + len(self._waiting)

    def submit(self, request: Request) -> None:
        with self._wanted:
            self._waiting.append(request)
            self._wanted.notify()

    def run(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            while True:
                with self._wanted:
                    while not self.active:
                        self._wanted.wait()
                    self._admit()

                self._step(loop)
        except BaseException:  # noqa: BLE001 - without its thread the server is of no use
            self.failed = traceback.format_exc()
            print(self.failed, flush=True)
            os._exit(3)

    def _admit(self) -> None:
        free = [slot for slot in range(self._model.slots) if slot not in self._running]
        while free and self._waiting:
            self._running[free.pop(0)] = self._waiting.pop(0)

    def _step(self, loop: asyncio.AbstractEventLoop) -> None:
        for slot, request in list(self._running.items()):
            if request.cancelled:
                del self._running[slot]
                self.cancelled += 1

        if not self._running:
            return

        tokens = [0] * self._model.slots
        positions = [0] * self._model.slots
        for slot, request in self._running.items():
            tokens[slot] = request.token
            positions[slot] = request.position

        produced = self._model.step(tokens, positions)
        self.steps += 1
        ready: list[tuple[Request, int | None]] = []
        for slot, request in list(self._running.items()):
            request.position += 1
            if request.position < len(request.prompt):
                request.token = request.prompt[request.position]
                continue

            request.token = produced[slot]
            request.left -= 1
            ready.append((request, produced[slot]))
            if request.left <= 0:
                ready.append((request, None))
                del self._running[slot]

        loop.call_soon_threadsafe(_deliver, ready)


def _deliver(ready: list[tuple[Request, int | None]]) -> None:
    for request, token in ready:
        request.produced.put_nowait(token)


class Server:
    def __init__(self, worker: Worker) -> None:
        self._worker = worker

    async def health(self, _: web.Request) -> web.Response:
        return web.json_response({"status": "ok"})

    async def stats(self, _: web.Request) -> web.Response:
        worker = self._worker
        return web.json_response(
            {"active": worker.active, "steps": worker.steps, "cancelled": worker.cancelled}
        )

    async def chat(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        prompt = " ".join(str(m.get("content", "")) for m in body.get("messages", ()))
        return await self._answer(request, body, prompt, chat=True)

    async def complete(self, request: web.Request) -> web.StreamResponse:
        body = await request.json()
        return await self._answer(request, body, str(body.get("prompt", "")), chat=False)

    async def _answer(
        self, http: web.Request, body: dict[str, Any], prompt: str, *, chat: bool
    ) -> web.StreamResponse:
        asked = Request(
            prompt, int(body.get("max_tokens") or body.get("max_completion_tokens") or 16)
        )
        self._worker.submit(asked)
        finished = False
        try:
            if not body.get("stream"):
                words = []
                while (token := await asked.produced.get()) is not None:
                    words.append(f"w{token}")

                finished = True
                return web.json_response(
                    _whole(body, " ".join(words), len(asked.prompt), len(words), chat=chat)
                )

            response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await response.prepare(http)
            count = 0
            while (token := await asked.produced.get()) is not None:
                count += 1
                await response.write(_chunk(body, f"w{token} ", chat))

            finished = True
            usage = {"prompt_tokens": len(asked.prompt), "completion_tokens": count}
            last = {"object": "chat.completion.chunk", "choices": [], "usage": usage}
            await response.write(f"data: {json.dumps(last)}\n\ndata: [DONE]\n\n".encode())

            return response
        except ConnectionResetError:
            return response  # the client has disconnected
        finally:
            if not finished:
                asked.cancelled = True


def _chunk(body: dict[str, Any], text: str, chat: bool) -> bytes:
    choice = {"index": 0, "delta": {"content": text}} if chat else {"index": 0, "text": text}
    kind = "chat.completion.chunk" if chat else "text_completion"
    value = {"id": "1", "object": kind, "model": body.get("model"), "choices": [choice]}
    return f"data: {json.dumps(value)}\n\n".encode()


def _whole(body: dict[str, Any], text: str, asked: int, said: int, *, chat: bool) -> dict[str, Any]:
    message = {"message": {"role": "assistant", "content": text}} if chat else {"text": text}
    return {
        "id": "1",
        "object": "chat.completion" if chat else "text_completion",
        "model": body.get("model"),
        "choices": [{"index": 0, "finish_reason": "length", **message}],
        "usage": {"prompt_tokens": asked, "completion_tokens": said, "total_tokens": asked + said},
    }


def main(port: int, width: int, layers: int, slots: int) -> None:
    stage("program", age())
    stage("imports")
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    if device.type == "cpu":
        torch.set_num_threads(1)
        width = 128
        layers = 1
    else:
        torch.zeros(1, device=device)
        stage("cuda")

    model = Model(width, layers, slots, device)
    if device.type == "cuda":
        torch.cuda.synchronize()

    stage("weights")
    print("has", model.parameters, "parameters on", device, flush=True)
    model.step([0] * slots, [0] * slots)
    stage("step")

    if device.type == "cuda" and os.environ.get("KIT_GRAPH", "1") == "1":
        try:
            model.capture()
            model.step([0] * slots, [0] * slots)
            stage("graph")
        except Exception:  # noqa: BLE001 - without a graph it is slower
            traceback.print_exc()
            model.forget_graph()

    started = time.monotonic()
    for _ in range(20):
        model.step([1] * slots, [1] * slots)

    print("a step takes", f"{(time.monotonic() - started) / 20 * 1000:.2f}", "ms", flush=True)
    worker = Worker(model)
    server = Server(worker)

    async def begin(_: web.Application) -> None:
        loop = asyncio.get_running_loop()
        threading.Thread(target=worker.run, args=(loop,), daemon=True).start()
        stage("serves")

    app = web.Application()
    app.add_routes(
        [
            web.get("/health", server.health),
            web.get("/stats", server.stats),
            web.post("/v1/chat/completions", server.chat),
            web.post("/v1/completions", server.complete),
        ]
    )
    app.on_startup.append(begin)
    web.run_app(
        app, host=os.environ.get("HOST", "127.0.0.1"), port=port, print=None, access_log=None
    )


if __name__ == "__main__":
    numbers = [int(word) for word in sys.argv[1:]]
    main(*numbers[:1], *(numbers[1:] or (2048, 24, 32)))
