"""Frameworks that applications are built with, unchanged, against our server: run by run.py.

litellm, langchain (its OpenAI and Ollama packages), llama-index and outlines, each as its own
documents say. A package that could not be installed skips its tests.
"""
import asyncio
import importlib
import os
import typing
import unittest
import warnings

import pydantic

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"  # it would look for a newer list of prices

URL = os.environ["KTX_URL"]
MODEL = "qwen3moe"
FOX = "Tell me a story about a fox."


class Place(pydantic.BaseModel):
    city: str = pydantic.Field(max_length=12)
    inhabitants: int = pydantic.Field(ge=0, le=999)


class Trip(pydantic.BaseModel):
    """A trip between two places."""
    start: Place
    kind: typing.Literal["train", "ship"]
    stops: list[Place] = pydantic.Field(max_length=2)


def needs(*names):
    """The modules, or a reason to skip the tests that need them."""
    try:
        return [importlib.import_module(name) for name in names]
    except ImportError as error:
        raise unittest.SkipTest(str(error)) from error


class Litellm(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.litellm, = needs("litellm")
        cls.litellm.suppress_debug_info = True
        cls.litellm.telemetry = False
        cls.openai = {"model": f"openai/{MODEL}", "api_base": URL + "/v1", "api_key": "none",
                      "messages": [{"role": "user", "content": FOX}], "max_tokens": 24,
                      "temperature": 0}

    def test_answers_and_streams(self):
        whole = self.litellm.completion(**self.openai)
        text = whole.choices[0].message.content
        self.assertGreater(len(text), 5)
        self.assertEqual(whole.usage.total_tokens,
                         whole.usage.prompt_tokens + whole.usage.completion_tokens)
        pieces = [chunk.choices[0].delta.content or ""
                  for chunk in self.litellm.completion(stream=True, **self.openai)]
        self.assertEqual("".join(pieces), text)
        again = asyncio.run(self.litellm.acompletion(**self.openai))
        self.assertEqual(again.choices[0].message.content, text)

    def test_other_protocols(self):
        for route, base in (("ollama_chat", URL), ("anthropic", URL)):
            answer = self.litellm.completion(
                **{**self.openai, "model": f"{route}/{MODEL}", "api_base": base})
            self.assertGreater(len(answer.choices[0].message.content), 5, route)

    def test_forms_and_tools(self):
        request = {**self.openai, "max_tokens": 300}
        answer = self.litellm.completion(response_format=Trip, **request)
        Trip.model_validate_json(answer.choices[0].message.content)
        tool = {"type": "function", "function": {"name": "book", "parameters":
                                                 Trip.model_json_schema()}}
        forced = {"type": "function", "function": {"name": "book"}}
        answer = self.litellm.completion(tools=[tool], tool_choice=forced, **request)
        call = answer.choices[0].message.tool_calls[0].function
        self.assertEqual(call.name, "book")
        Trip.model_validate_json(call.arguments)

    def test_embeddings_and_errors(self):
        vectors = self.litellm.embedding(model=f"openai/{MODEL}", input=["a fox", "a hare"],
                                         api_base=URL + "/v1", api_key="none")
        self.assertEqual(len(vectors.data), 2)
        with self.assertRaises(self.litellm.BadRequestError):
            self.litellm.completion(**{**self.openai, "max_tokens": -5})


class Langchain(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.openai, cls.ollama, cls.messages = needs("langchain_openai", "langchain_ollama",
                                                     "langchain_core.messages")
        cls.model = cls.openai.ChatOpenAI(model=MODEL, base_url=URL + "/v1", api_key="none",
                                          temperature=0, max_tokens=300)

    def test_answers_and_streams(self):
        model = self.model.bind(max_tokens=24)
        answer = model.invoke(FOX)
        self.assertGreater(len(answer.content), 5)
        self.assertGreater(answer.usage_metadata["output_tokens"], 0)
        self.assertEqual("".join(piece.content for piece in model.stream(FOX)), answer.content)
        both = model.batch([FOX, FOX])
        self.assertEqual([each.content for each in both], [answer.content] * 2)

    def test_structured_output(self):
        for method in ("json_schema", "function_calling"):
            trip = self.model.with_structured_output(Trip, method=method).invoke(FOX)
            self.assertIsInstance(trip, Trip, method)

    def test_tools_and_their_results(self):
        def weather(city: str) -> str:
            """The weather of a city."""
            return f"rain in {city}"

        model = self.model.bind_tools([weather], tool_choice="weather")
        call = model.invoke("What is the weather in Paris?")
        self.assertEqual(call.tool_calls[0]["name"], "weather")
        self.assertIn("city", call.tool_calls[0]["args"])
        result = self.messages.ToolMessage(weather(**call.tool_calls[0]["args"]),
                                           tool_call_id=call.tool_calls[0]["id"])
        answer = self.model.bind(max_tokens=16).invoke(
            [self.messages.HumanMessage("What is the weather in Paris?"), call, result])
        self.assertIsInstance(answer.content, str)

    def test_ollama(self):
        model = self.ollama.ChatOllama(model=MODEL, base_url=URL, temperature=0, num_predict=24)
        answer = model.invoke(FOX)
        self.assertGreater(len(answer.content), 5)
        self.assertEqual("".join(piece.content for piece in model.stream(FOX)), answer.content)
        vectors = self.ollama.OllamaEmbeddings(model=MODEL, base_url=URL).embed_documents(["a", "b"])
        self.assertEqual(len(vectors), 2)

    def test_embeddings(self):
        model = self.openai.OpenAIEmbeddings(model=MODEL, base_url=URL + "/v1", api_key="none",
                                             check_embedding_ctx_length=False)
        vectors = model.embed_documents(["a fox", "a hare"])
        self.assertEqual(len(vectors), 2)
        self.assertAlmostEqual(sum(x * x for x in vectors[0]), 1, places=3)


class LlamaIndex(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.like, cls.llms = needs("llama_index.llms.openai_like", "llama_index.core.llms")
        cls.model = cls.like.OpenAILike(model=MODEL, api_base=URL + "/v1", api_key="none",
                                        is_chat_model=True, is_function_calling_model=True,
                                        temperature=0, max_tokens=24, context_window=4096)

    def test_answers_and_streams(self):
        message = self.llms.ChatMessage(role="user", content=FOX)
        answer = self.model.chat([message]).message.content
        self.assertGreater(len(answer), 5)
        pieces = [piece.delta or "" for piece in self.model.stream_chat([message])]
        self.assertEqual("".join(pieces), answer)
        self.assertEqual(self.model.complete(FOX).text, answer)

    def test_structured_output(self):
        model = self.like.OpenAILike(model=MODEL, api_base=URL + "/v1", api_key="none",
                                     is_chat_model=True, is_function_calling_model=True,
                                     temperature=0, max_tokens=300, context_window=4096)
        message = self.llms.ChatMessage(role="user", content=FOX)
        trip = model.as_structured_llm(Trip).chat([message]).raw
        self.assertIsInstance(trip, Trip)


class Outlines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.outlines, openai = needs("outlines", "openai")
        client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
        cls.model = cls.outlines.from_openai(client, MODEL)

    def test_answers_in_a_form(self):
        self.assertGreater(len(self.model(FOX, max_tokens=24, temperature=0)), 5)
        Trip.model_validate_json(self.model(FOX, Trip, max_tokens=300, temperature=0))


if __name__ == "__main__":
    warnings.simplefilter("ignore", ResourceWarning)  # connections that litellm keeps
    unittest.main(warnings="ignore")
