"""The official `openai` package against our server: run by run.py."""
import json
import os
import unittest

import openai

URL = os.environ["KTX_URL"]
client = openai.OpenAI(base_url=URL + "/v1", api_key="none", max_retries=0)
FOX = [{"role": "user", "content": "Tell me a story about a fox."}]
WEATHER = [{"type": "function", "function": {
    "name": "get_weather", "description": "The weather of a city",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}},
                   "required": ["city"]}}}]


def ask(messages=FOX, **more):
    more = {"model": "qwen3moe", "temperature": 0, "max_tokens": 24, **more}
    return client.chat.completions.create(messages=messages, **more)


class Chat(unittest.TestCase):
    def test_answer_has_every_field(self):
        answer = ask()
        self.assertEqual(answer.object, "chat.completion")
        self.assertTrue(answer.id.startswith("chatcmpl-"))
        self.assertEqual(answer.model, "qwen3moe")
        self.assertEqual(answer.choices[0].message.role, "assistant")
        self.assertTrue(answer.choices[0].message.content)
        self.assertEqual(answer.choices[0].finish_reason, "length")
        self.assertEqual(answer.usage.completion_tokens, 24)
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + 24)

    def test_stream_equals_whole(self):
        whole = ask().choices[0].message.content
        chunks = list(ask(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(text, whole)
        self.assertEqual(len({c.id for c in chunks}), 1)
        self.assertEqual(chunks[0].choices[0].delta.role, "assistant")
        self.assertEqual(chunks[-1].usage.completion_tokens, 24)
        self.assertEqual(chunks[-1].choices, [])
        self.assertGreater(chunks[-1].usage.prompt_tokens_details.cached_tokens, 0)
        self.assertEqual([c.choices[0].finish_reason for c in chunks if c.choices][-1], "length")

    def test_stream_helper(self):
        # The helper refuses answers that were cut: this one may end by itself.
        with client.chat.completions.stream(model="qwen3moe", messages=FOX, temperature=0,
                                            max_tokens=400) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        whole = ask(max_tokens=400).choices[0].message.content
        self.assertEqual(final.choices[0].message.content, whole)

    def test_stop_strings(self):
        whole = ask().choices[0].message.content
        stop = whole[20:26]
        for value in (stop, [stop, "never this"]):
            answer = ask(stop=value)
            self.assertEqual(answer.choices[0].message.content, whole[:whole.find(stop)])
            self.assertEqual(answer.choices[0].finish_reason, "stop")
        streamed = "".join(c.choices[0].delta.content or "" for c in ask(stop=stop, stream=True))
        self.assertEqual(streamed, whole[:whole.find(stop)])

    def test_choices_and_seeds(self):
        def three(seed):
            return [c.message.content for c in ask(n=3, temperature=1, seed=seed).choices]
        self.assertEqual(three(1), three(1))
        self.assertNotEqual(three(1), three(2))
        self.assertEqual(len(set(three(1))), 3)

    def test_logprobs(self):
        answer = ask(logprobs=True, top_logprobs=4, max_tokens=6)
        content = answer.choices[0].logprobs.content
        self.assertEqual("".join(t.token for t in content), answer.choices[0].message.content)
        for token in content:
            self.assertLessEqual(token.logprob, 0)
            self.assertEqual(len(token.top_logprobs), 4)
            self.assertEqual(token.top_logprobs[0].token, token.token)
            self.assertEqual(bytes(token.bytes).decode(), token.token)

    def test_logprobs_and_choices_are_streamed(self):
        whole = ask(logprobs=True, top_logprobs=2, max_tokens=6, n=2, temperature=1, seed=3)
        said = {0: [], 1: []}
        for chunk in ask(logprobs=True, top_logprobs=2, max_tokens=6, n=2, temperature=1, seed=3,
                         stream=True):
            for choice in chunk.choices:
                said[choice.index] += choice.logprobs.content if choice.logprobs else []
        for choice in whole.choices:
            self.assertEqual([t.token for t in said[choice.index]],
                             [t.token for t in choice.logprobs.content])
            self.assertEqual(len(said[choice.index][0].top_logprobs), 2)

    def test_sampling_fields(self):
        answer = ask(temperature=0.7, top_p=0.9, presence_penalty=0.5, frequency_penalty=0.5,
                     logit_bias={"5": -100}, max_tokens=openai.NOT_GIVEN,
                     max_completion_tokens=7, seed=3, user="somebody",
                     extra_body={"top_k": 20, "min_p": 0.02, "repeat_penalty": 1.1})
        self.assertEqual(answer.usage.completion_tokens, 7)

    def test_conversations(self):
        answer = ask([{"role": "developer", "content": "You are brief."},
                      {"role": "user", "content": [{"type": "text", "text": "What is "},
                                                   {"type": "text", "text": "12 + 30?"}]},
                      {"role": "assistant", "content": "42"},
                      {"role": "user", "content": "And 1 + 1?", "name": "eve"}])
        self.assertTrue(answer.choices[0].message.content)

    def test_tools_are_offered_and_results_are_read(self):
        ask(tools=WEATHER, tool_choice="auto")
        ask(tools=WEATHER, tool_choice="none")
        call = {"id": "call_1", "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Paris"}'}}
        answer = ask([*FOX, {"role": "assistant", "content": None, "tool_calls": [call]},
                      {"role": "tool", "tool_call_id": "call_1", "content": "sunny"}],
                     tools=WEATHER)
        self.assertIn(answer.choices[0].finish_reason, ("length", "stop", "tool_calls"))


class Constrained(unittest.TestCase):
    """Skipped by the server's own word where it cannot constrain answers."""

    def constrained(self, **more):
        try:
            return ask(max_tokens=300, **more)
        except openai.APIStatusError as error:
            if error.status_code == 501:
                self.skipTest(str(error))
            raise

    def test_json_object(self):
        answer = self.constrained(response_format={"type": "json_object"})
        if answer.choices[0].finish_reason == "stop":
            self.assertIsInstance(json.loads(answer.choices[0].message.content), dict)

    def test_json_schema(self):
        schema = {"type": "object", "properties": {
            "name": {"type": "string", "maxLength": 12}, "age": {"type": "integer"},
            "kind": {"enum": ["fox", "hare"]}}, "required": ["name", "age", "kind"],
            "additionalProperties": False}
        answer = self.constrained(response_format={
            "type": "json_schema", "json_schema": {"name": "animal", "schema": schema}})
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        value = json.loads(answer.choices[0].message.content)
        self.assertEqual(set(value), {"name", "age", "kind"})
        self.assertIn(value["kind"], ("fox", "hare"))

    def test_required_tool(self):
        for choice in ("required", {"type": "function", "function": {"name": "get_weather"}}):
            answer = self.constrained(tools=WEATHER, tool_choice=choice)
            self.assertEqual(answer.choices[0].finish_reason, "tool_calls")
            call = answer.choices[0].message.tool_calls[0]
            self.assertEqual(call.function.name, "get_weather")
            self.assertIn("city", json.loads(call.function.arguments))
            streamed = list(ask(tools=WEATHER, tool_choice=choice, stream=True, max_tokens=300))
            text = "".join(p.function.arguments or "" for c in streamed if c.choices
                           for p in c.choices[0].delta.tool_calls or [])
            self.assertEqual(json.loads(text), json.loads(call.function.arguments))


    def test_parsed_into_a_class(self):
        import pydantic  # the package itself needs it

        class Animal(pydantic.BaseModel):
            name: str = pydantic.Field(max_length=12)
            legs: int

        answer = client.chat.completions.parse(model="qwen3moe", messages=FOX, temperature=0,
                                               max_tokens=200, response_format=Animal)
        self.assertIsInstance(answer.choices[0].message.parsed, Animal)


class Reasoning(unittest.TestCase):
    """Against a model that reasons: what it thinks has a field of its own."""

    def ask(self, **more):
        reasoner = openai.OpenAI(base_url=os.environ["KTX_REASONER_URL"] + "/v1", api_key="none",
                                 max_retries=0)
        return reasoner.chat.completions.create(
            **{"model": "deepseek3", "temperature": 0, "max_tokens": 200, "reasoning_effort": "low",
               "messages": [{"role": "user", "content": "What is 12 + 30?"}], **more})

    def test_reasoning_is_split_off_whole_and_streamed(self):
        whole = self.ask()
        message = whole.choices[0].message
        self.assertTrue(message.reasoning_content)
        self.assertTrue(message.content)
        self.assertNotIn("think>", message.content + message.reasoning_content)
        self.assertGreater(whole.usage.completion_tokens_details.reasoning_tokens, 3)
        reasoning = content = ""
        for chunk in self.ask(stream=True):
            for choice in chunk.choices:
                said = getattr(choice.delta, "reasoning_content", None) or ""
                self.assertFalse(said and content, "reasoning comes first")
                reasoning += said
                content += choice.delta.content or ""
        self.assertEqual((reasoning, content), (message.reasoning_content, message.content))

    def test_a_schema_begins_behind_the_reasoning(self):
        schema = {"type": "object", "properties": {"sum": {"type": "integer"}},
                  "required": ["sum"], "additionalProperties": False}
        message = self.ask(extra_body={"chat_template_kwargs": {"reasoning": True}},
                           response_format={"type": "json_schema", "json_schema": {
                               "name": "sum", "schema": schema}}).choices[0].message
        self.assertTrue(message.reasoning_content)
        self.assertEqual(set(json.loads(message.content)), {"sum"})


class Others(unittest.TestCase):
    def test_completions(self):
        def complete(**more):
            more = {"model": "qwen3moe", "temperature": 0, "max_tokens": 8, **more}
            return client.completions.create(**more)
        whole = complete(prompt="Once upon a time")
        self.assertEqual(whole.object, "text_completion")
        text = "".join(c.choices[0].text for c in complete(prompt="Once upon a time", stream=True))
        self.assertEqual(text, whole.choices[0].text)
        self.assertEqual(len(complete(prompt=["Once", "The fox"], n=2).choices), 4)
        echoed = complete(prompt="Once upon", echo=True).choices[0].text
        self.assertTrue(echoed.startswith("Once upon"))
        scored = complete(prompt="Once upon", logprobs=2).choices[0].logprobs
        self.assertEqual(len(scored.tokens), 8)
        self.assertEqual(len(scored.top_logprobs[0]), 2)

    def test_embeddings(self):
        def embed(texts, **more):
            more = {"encoding_format": "float", **more}
            answer = client.embeddings.create(model="qwen3moe", input=texts, **more)
            self.assertEqual([item.index for item in answer.data], list(range(len(answer.data))))
            return [item.embedding for item in answer.data]
        texts = ["A fox.", "A hare in the snow.", "42"]
        vectors = embed(texts)
        for vector, text in zip(vectors, texts):
            self.assertAlmostEqual(sum(x * x for x in vector), 1, places=4)
            self.assertEqual(embed(text)[0], vector)
            # The package requests base64 by default.
            packed = client.embeddings.create(model="qwen3moe", input=text).data[0].embedding
            for a, b in zip(packed, vector):
                self.assertAlmostEqual(a, b, places=6)
        self.assertEqual(len({tuple(vector) for vector in vectors}), 3)
        cut = embed(texts[0], dimensions=8)[0]
        scale = sum(x * x for x in vectors[0][:8]) ** 0.5
        for a, b in zip(cut, vectors[0]):
            self.assertAlmostEqual(a, b / scale, places=5)
        self.assertEqual(embed([[5, 6, 7], [8]])[0], embed([5, 6, 7])[0])
        self.assertEqual(len(embed(["a"] * 40)), 40)
        usage = client.embeddings.create(model="qwen3moe", input=[[5, 6, 7], [8]]).usage
        self.assertEqual((usage.prompt_tokens, usage.total_tokens), (4, 4))

    def test_models(self):
        self.assertEqual([m.id for m in client.models.list()], ["qwen3moe"])
        self.assertEqual(client.models.retrieve("qwen3moe").owned_by, "ktx")

    def test_responses(self):
        whole = client.responses.create(model="qwen3moe", input="Tell me a story about a fox.",
                                        temperature=0, max_output_tokens=24)
        self.assertEqual(whole.output_text, ask().choices[0].message.content)
        self.assertEqual(whole.usage.output_tokens, 24)
        with client.responses.stream(model="qwen3moe", input=FOX, temperature=0,
                                     max_output_tokens=24) as stream:
            text = "".join(e.delta for e in stream if e.type == "response.output_text.delta")
        self.assertEqual(text, whole.output_text)

    def test_errors_are_their_classes(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            ask(temperature=-1)
        self.assertEqual(caught.exception.param, "temperature")
        self.assertEqual(ask(model="another").model, "qwen3moe")
        with self.assertRaises(openai.NotFoundError):
            client.models.retrieve("another")
        with self.assertRaises(openai.BadRequestError) as caught:
            ask([{"role": "user", "content": "word " * 5000}])
        self.assertEqual(caught.exception.code, "context_length_exceeded")
        with self.assertRaises(openai.BadRequestError):
            ask(messages=[])
        for wrong in ({"input": ""}, {"input": "a", "dimensions": 100000},
                      {"input": [[-1]]}, {"input": "word " * 5000}):
            with self.assertRaises(openai.BadRequestError):
                client.embeddings.create(model="qwen3moe", **wrong)
        self.assertEqual(client.embeddings.create(model="another", input="a").model, "qwen3moe")
        # What is no known path is 404, a wrong method 405.
        with self.assertRaises(openai.NotFoundError):
            client.images.generate(prompt="a fox")

    def test_keys_and_full_queues_are_their_classes(self):
        url = os.environ["KTX_NARROW_URL"] + "/v1"
        with self.assertRaises(openai.AuthenticationError):
            openai.OpenAI(base_url=url, api_key="wrong", max_retries=0).models.list()
        narrow = openai.OpenAI(base_url=url, api_key="secret", max_retries=0)
        self.assertEqual(len(list(narrow.models.list())), 1)
        # One runs, one waits, the third is refused; patient clients come again.
        def endless():
            return narrow.chat.completions.create(
                model="qwen3moe", messages=FOX, max_tokens=3000, stream=True,
                extra_body={"ignore_eos": True})

        streams = [endless()]
        next(chunk for chunk in streams[0] if chunk.choices and chunk.choices[0].delta.content)
        streams.append(endless())  # the first one has left the queue
        with self.assertRaises(openai.RateLimitError) as caught:
            for _ in range(2):
                narrow.chat.completions.create(model="qwen3moe", messages=FOX, max_tokens=1)
        self.assertIn("retry-after", caught.exception.response.headers)
        for stream in streams:
            stream.close()
        patient = narrow.with_options(max_retries=5)
        self.assertTrue(patient.chat.completions.create(model="qwen3moe", messages=FOX,
                                                        max_tokens=1).choices)

    def test_required_arguments_are_streamed(self):
        with client.chat.completions.stream(
                model="qwen3moe", messages=FOX, temperature=0, max_tokens=300,
                tools=WEATHER, tool_choice="required") as stream:
            said = [e.arguments_delta for e in stream
                    if e.type == "tool_calls.function.arguments.delta"]
            final = stream.get_final_completion().choices[0]
        call = final.message.tool_calls[0].function
        self.assertEqual("".join(said), call.arguments)
        self.assertGreater(len([piece for piece in said if piece]), 2)
        self.assertIn("city", json.loads(call.arguments))
        self.assertEqual(final.finish_reason, "tool_calls")

    def test_responses_stream_arguments(self):
        tool = {"type": "function", "name": "get_weather", "strict": False,
                "parameters": WEATHER[0]["function"]["parameters"]}
        with client.responses.stream(model="qwen3moe", input=FOX, temperature=0,
                                     max_output_tokens=300, tools=[tool],
                                     tool_choice="required") as stream:
            said = [e.delta for e in stream if e.type == "response.function_call_arguments.delta"]
            final = stream.get_final_response()
        self.assertGreater(len(said), 2)
        self.assertEqual(final.output[0].name, "get_weather")
        self.assertEqual("".join(said), final.output[0].arguments)

    def test_a_client_that_leaves_disturbs_nobody(self):
        whole = ask().choices[0].message.content
        stream = ask(stream=True, max_tokens=2000)
        next(iter(stream))
        stream.close()
        self.assertEqual(ask().choices[0].message.content, whole)


if __name__ == "__main__":
    unittest.main(verbosity=1)
