"""LangChain and LiteLLM, which make their own requests with the clients of both vendors:
``python -m tests.clients.frameworks PLACES``."""

from __future__ import annotations

from typing import Any

import litellm
from langchain_anthropic import ChatAnthropic
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from pydantic import BaseModel, SecretStr

from tests.clients.checks import Checks, Place, run

langchain = Checks("langchain-openai")
langchain_messages = Checks("langchain-anthropic")
lite = Checks("litellm")
HELLO = [{"role": "user", "content": "hello"}]


class Person(BaseModel):
    name: str
    age: int


@tool
def weather(city: str) -> str:
    """The weather in a city."""
    return f"sunny in {city}"


def chat_model(place: Place, **options: Any) -> ChatOpenAI:
    return ChatOpenAI(
        base_url=place.v1,
        api_key=SecretStr(place.key),
        model=place.model,
        max_retries=0,
        **options,
    )


@langchain
def invoke(place: Place) -> Any:
    return chat_model(place).invoke("hello").content


@langchain
def stream(place: Place) -> Any:
    return [chunk.content for chunk in chat_model(place, stream_usage=True).stream("hello")]


@langchain
def tools(place: Place) -> Any:
    return chat_model(place).bind_tools([weather]).invoke("hello").tool_calls


@langchain
def structured_output(place: Place) -> Any:
    return chat_model(place).with_structured_output(Person).invoke("hello").model_dump()


@langchain
def responses(place: Place) -> Any:
    return chat_model(place, use_responses_api=True).invoke("hello").text


@langchain
def embeddings(place: Place) -> Any:
    return OpenAIEmbeddings(
        base_url=place.v1,
        api_key=SecretStr(place.key),
        model=place.model,
        check_embedding_ctx_length=False,
    ).embed_documents(["a", "b"])


@langchain_messages
def messages(place: Place) -> Any:
    return (
        ChatAnthropic(
            base_url=place.base, api_key=SecretStr(place.key), model=place.model, max_tokens=9
        )
        .invoke("hello")
        .content
    )


def completed(place: Place, provider: str, base: str, **options: Any) -> Any:
    return litellm.completion(
        f"{provider}/{place.model}",
        messages=HELLO,
        api_base=base,
        api_key=place.key,
        max_retries=0,
        **options,
    )


@lite
def openai(place: Place) -> Any:
    return completed(place, "openai", place.v1).choices[0].message.content


@lite
def hosted_vllm_stream(place: Place) -> Any:
    chunks = completed(place, "hosted_vllm", place.v1, stream=True)
    return "".join(chunk.choices[0].delta.content or "" for chunk in chunks)


@lite
def anthropic(place: Place) -> Any:
    return completed(place, "anthropic", place.base).choices[0].message.content


@lite
def embedding(place: Place) -> Any:
    answer = litellm.embedding(
        f"openai/{place.model}", input=["a"], api_base=place.v1, api_key=place.key
    )
    return answer.data[0]["embedding"]


@lite
def rerank(place: Place) -> Any:
    answer = litellm.rerank(
        f"hosted_vllm/{place.model}",
        query="a",
        documents=["a", "b"],
        top_n=1,
        api_base=place.base,
        api_key=place.key,
    )
    return answer.results


if __name__ == "__main__":
    run(langchain, langchain_messages, lite)
