"""Generator of a tiny Llama model with random weights: no download, no torch, less than a second.

The weights are random except for three dimensions of the hidden state. These mark "this is a
token", "this is a word" and "this is a full stop", and the output layer reads them. So every answer
consists of whole English words and full stops, is valid UTF-8, has at least one word, and ends on
its own after a few sentences. A request with ``ignore_eos: true`` continues to its ``max_tokens``.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from moorage.common.model.errors import StartupError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

HIDDEN = 128
LAYERS = 2
HEADS = 4
KV_HEADS = 2
FEED_FORWARD = 384
CONTEXT = 2048
HEAD_DIM = HIDDEN // HEADS

SPECIALS = ("<s>", "</s>", "<pad>", "<|system|>", "<|user|>", "<|assistant|>", "<|end|>")
BOS = 0
EOS = 1
PAD = 2
END = 6

CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|' + m['role'] + '|>\\n' + m['content'] + '<|end|>\\n' }}{% "
    "endfor %}"
    "{% if add_generation_prompt %}{{ '<|assistant|>\\n' }}{% endif %}"
)

_TEXT = """
a about above across after again against air all along always among anchor and another any around at away
back bay beach before begins below beside between bird blue boat both bow breeze bright bring but by calm
captain carry channel chart clear cloud coast cold compass course crew current dark dawn day deck deep
distant dock down drift each early east evening every far fast feather find first fleet fog follow from
gentle gives glass goes gold grey guides gull harbour have heavy her high his hold home horizon hour hull
if in into island it its keel keep kind knot lantern last leave light line little long low made many map
mast mist moon more morning moves near never new night no north not of often old on one open or other our
over past path pier port quiet rain rest river road rock rope round rudder sail salt sand sea shadow ship
shore silver slow small soft song south spring star steady stern still stone storm strong summer sun tells
than that the their there they tide time to toward turn under until up voyage wait warm watch water wave
way west when where which while wide wind with without year you young
"""
WORDS = _TEXT.split()

# Dimensions of the hidden state that no layer writes to. The module's docstring explains them.
IS_TOKEN = 0
IS_WORD = 1
IS_STOP = 2
RESERVED = 3


def byte_alphabet() -> list[str]:
    """GPT-2's printable character for each of the 256 byte values, in order."""
    printable = {
        *range(ord("!"), ord("~") + 1),
        *range(ord("¡"), ord("¬") + 1),
        *range(ord("®"), ord("ÿ") + 1),
    }
    others = [byte for byte in range(256) if byte not in printable]
    return [
        chr(byte) if byte in printable else chr(256 + others.index(byte)) for byte in range(256)
    ]


def _word_merges() -> list[tuple[str, str]]:
    """BPE merges that build each word letter by letter after a leading space, so every word is one
    token."""
    merges: dict[tuple[str, str], None] = {}
    for word in WORDS:
        prefix = byte_alphabet()[ord(" ")]
        for letter in word:
            merges[(prefix, letter)] = None
            prefix += letter
    return list(merges)


def _vocabulary() -> list[str]:
    """All tokens, in the order of their ids: special tokens, bytes, merges."""
    return [*SPECIALS, *byte_alphabet(), *(left + right for left, right in _word_merges())]


def _padded_size() -> int:
    return (len(_vocabulary()) + 63) // 64 * 64


def write_tiny_gguf(path: Path, *, seed: int = 0) -> None:
    """Write the model as a GGUF file of about 3 MB; the same ``seed`` yields the same bytes.

    The file is written atomically. Raises ``StartupError`` if numpy or gguf (extra ``demo``) is not
    installed.
    """
    try:
        import gguf
        import numpy as np
    except ImportError as error:
        raise StartupError(
            f"generating the demo model needs numpy and gguf ({error.name or error} is not "
            "installed)",
            next_step="pip install 'moorage[demo]'",
        ) from None

    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        writer = gguf.GGUFWriter(partial, "llama")
        _write_metadata(writer, gguf)
        for name, tensor in _weights(np.random.default_rng(seed)).items():
            writer.add_tensor(name, tensor)

        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        os.replace(partial, path)
    finally:
        partial.unlink(missing_ok=True)


def _write_metadata(writer: Any, gguf: Any) -> None:
    writer.add_name("moorage-tiny-random-llama")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(FEED_FORWARD)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_value_length(HEAD_DIM)
    writer.add_rope_dimension_count(HEAD_DIM)
    writer.add_rope_freq_base(10_000.0)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(_padded_size())
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)

    tokens = _vocabulary()
    kinds = gguf.TokenType
    unused = [f"[PAD{i}]" for i in range(len(tokens), _padded_size())]
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list([*tokens, *unused])
    writer.add_token_types(
        [kinds.CONTROL] * len(SPECIALS)
        + [kinds.NORMAL] * (len(tokens) - len(SPECIALS))
        + [kinds.UNUSED] * len(unused)
    )
    writer.add_token_merges([f"{left} {right}" for left, right in _word_merges()])

    writer.add_bos_token_id(BOS)
    writer.add_eos_token_id(EOS)
    writer.add_eot_token_id(END)
    writer.add_pad_token_id(PAD)
    writer.add_add_bos_token(True)
    writer.add_pooling_type(gguf.PoolingType.MEAN)  # for servers started with embeddings
    writer.add_chat_template(CHAT_TEMPLATE)


def _weights(rng: np.random.Generator) -> dict[str, Floats]:
    import numpy as np

    def random(rows: int, columns: int, deviation: float) -> Floats:
        return (rng.standard_normal((rows, columns)) * deviation).astype(np.float32)

    kv_width = KV_HEADS * HEAD_DIM
    embedding = random(_padded_size(), HIDDEN, 1.0)
    output = random(_padded_size(), HIDDEN, 0.09)
    _make_readable(embedding, output)
    tensors = {
        "token_embd.weight": embedding,
        "output_norm.weight": np.ones(HIDDEN, np.float32),
        "output.weight": output,
    }
    for layer in range(LAYERS):
        attention = random(HIDDEN, HIDDEN, 0.08)
        feed_forward = random(HIDDEN, FEED_FORWARD, 0.08)
        attention[:RESERVED] = feed_forward[:RESERVED] = 0
        block = {
            "attn_norm": np.ones(HIDDEN, np.float32),
            "attn_q": random(HIDDEN, HIDDEN, 0.1),
            "attn_k": random(kv_width, HIDDEN, 0.1),
            "attn_v": random(kv_width, HIDDEN, 0.1),
            "attn_output": attention,
            "ffn_norm": np.ones(HIDDEN, np.float32),
            "ffn_gate": random(FEED_FORWARD, HIDDEN, 0.1),
            "ffn_up": random(FEED_FORWARD, HIDDEN, 0.1),
            "ffn_down": feed_forward,
        }
        tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in block.items()}

    return tensors


def _make_readable(embedding: Floats, output: Floats) -> None:
    """Set the logits so that words follow anything, full stops follow words, and the end follows
    full stops.

    All other tokens are excluded: ``wall`` times the embedding's 6 is 20 to 40 nats, out of reach
    at any usual temperature. The added constants make about one token in fifteen a full stop, and
    every second full stop the last.
    """
    wall = 4.0
    ids = {token: number for number, token in enumerate(_vocabulary())}
    words = [ids[byte_alphabet()[ord(" ")] + word] for word in WORDS]
    stop = ids["."]
    embedding[:, :RESERVED] = 0
    embedding[:, IS_TOKEN] = embedding[words, IS_WORD] = embedding[stop, IS_STOP] = 6
    output[:, :RESERVED] = 0
    output[:, IS_TOKEN] = -wall
    output[words, IS_TOKEN] = wall
    output[[stop, END], RESERVED:] = 0  # nothing is random here: only the two sums below decide
    output[stop, IS_WORD] = 2 * wall + 0.85
    output[END, IS_STOP] = 2 * wall + 1.5


def write_tiny_llama_dir(path: Path) -> None:
    """Write a Hugging Face directory with the same architecture and tokenizer, but no weights
    (about 40 KB).

    It is meant for ``vllm serve DIR --load-format dummy``, which generates random weights. Needs
    only the standard library. Replaces existing files.
    """
    path.mkdir(parents=True, exist_ok=True)
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": _padded_size(),
        "hidden_size": HIDDEN,
        "intermediate_size": FEED_FORWARD,
        "num_hidden_layers": LAYERS,
        "num_attention_heads": HEADS,
        "num_key_value_heads": KV_HEADS,
        "head_dim": HEAD_DIM,
        "hidden_act": "silu",
        "max_position_embeddings": CONTEXT,
        "rms_norm_eps": 1e-5,
        "rope_theta": 10_000.0,
        "tie_word_embeddings": False,
        "attention_bias": False,
        "mlp_bias": False,
        "initializer_range": 0.2,
        "torch_dtype": "float32",
        "bos_token_id": BOS,
        "eos_token_id": EOS,
        "pad_token_id": PAD,
    }
    generation = {"bos_token_id": BOS, "eos_token_id": [EOS, END], "pad_token_id": PAD}
    files = {
        "config.json": config,
        "generation_config.json": generation,
        "tokenizer.json": _hf_tokenizer(),
        "tokenizer_config.json": {
            "tokenizer_class": "PreTrainedTokenizerFast",
            "bos_token": SPECIALS[BOS],
            "eos_token": SPECIALS[EOS],
            "pad_token": SPECIALS[PAD],
            "model_max_length": CONTEXT,
            "clean_up_tokenization_spaces": False,
            "chat_template": CHAT_TEMPLATE,
        },
    }

    for name, content in files.items():
        (path / name).write_text(
            json.dumps(content, ensure_ascii=False, indent=1), encoding="utf-8"
        )


def _hf_tokenizer() -> dict[str, Any]:
    byte_level = {
        "type": "ByteLevel",
        "add_prefix_space": False,
        "trim_offsets": True,
        "use_regex": True,
    }
    flags = {
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": True,
    }
    first = {"SpecialToken": {"id": SPECIALS[BOS], "type_id": 0}}

    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [{"id": i, "content": text, **flags} for i, text in enumerate(SPECIALS)],
        "normalizer": None,
        "pre_tokenizer": byte_level,
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [first, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [
                first,
                {"Sequence": {"id": "A", "type_id": 0}},
                {"Sequence": {"id": "B", "type_id": 1}},
            ],
            "special_tokens": {
                SPECIALS[BOS]: {"id": SPECIALS[BOS], "ids": [BOS], "tokens": [SPECIALS[BOS]]}
            },
        },
        "decoder": byte_level,
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: number for number, token in enumerate(_vocabulary())},
            "merges": [f"{left} {right}" for left, right in _word_merges()],
        },
    }
