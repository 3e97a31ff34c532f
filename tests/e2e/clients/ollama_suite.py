"""The official `ollama` package against our server: run by run.py."""
import json
import os
import unittest

import ollama

client = ollama.Client(host=os.environ["KTX_URL"])
FOX = [{"role": "user", "content": "Tell me a story about a fox."}]
GREEDY = {"temperature": 0, "num_predict": 24}


def ask(**more):
    return client.chat(**{"model": "qwen3moe", "messages": FOX, "options": GREEDY, **more})


class Ollama(unittest.TestCase):
    def test_chat(self):
        answer = ask()
        self.assertTrue(answer.done)
        self.assertEqual(answer.done_reason, "length")
        self.assertEqual(answer.message.role, "assistant")
        self.assertEqual(answer.eval_count, 24)
        for duration in (answer.total_duration, answer.eval_duration, answer.prompt_eval_count):
            self.assertGreater(duration, 0)
        parts = list(ask(stream=True))
        self.assertEqual("".join(p.message.content for p in parts), answer.message.content)
        self.assertEqual([p.done for p in parts], [False] * (len(parts) - 1) + [True])

    def test_generate(self):
        answer = client.generate(model="qwen3moe", prompt=FOX[0]["content"], options=GREEDY)
        self.assertEqual(answer.response, ask().message.content)
        parts = client.generate(model="qwen3moe", prompt=FOX[0]["content"], options=GREEDY,
                                stream=True)
        self.assertEqual("".join(p.response for p in parts), answer.response)
        raw = client.generate(model="qwen3moe", prompt="Once upon a time", raw=True, options=GREEDY)
        self.assertTrue(raw.response)
        self.assertTrue(client.generate(model="qwen3moe", prompt="").done)

    def test_options(self):
        options = {"temperature": 0.8, "seed": 4, "num_predict": 6, "top_k": 30, "top_p": 0.9,
                   "min_p": 0.01, "repeat_penalty": 1.1, "repeat_last_n": 32, "stop": ["zzz"],
                   "num_ctx": 512, "num_thread": 2}
        self.assertEqual(ask(options=options).message.content, ask(options=options).message.content)

    def test_stop(self):
        whole = ask().message.content
        stop = whole[20:26]
        answer = ask(options={**GREEDY, "stop": [stop]})
        self.assertEqual(answer.message.content, whole[:whole.find(stop)])
        self.assertEqual(answer.done_reason, "stop")

    def test_tools_and_thinking(self):
        def get_weather(city: str) -> str:
            """The weather of a city.

            Args:
              city: its name
            """
            return "sunny"
        self.assertTrue(ask(tools=[get_weather]).done)
        call = {"function": {"name": "get_weather", "arguments": {"city": "Paris"}}}
        answer = ask(messages=[*FOX, {"role": "assistant", "content": "", "tool_calls": [call]},
                               {"role": "tool", "tool_name": "get_weather", "content": "sunny"}])
        self.assertTrue(answer.done)
        self.assertTrue(ask(think=False).done)

    def test_thinking_has_its_own_field(self):
        reasoner = ollama.Client(host=os.environ["KTX_REASONER_URL"])
        def ask(**more):
            return reasoner.chat(**{"model": "deepseek3", "think": True, "messages": [
                {"role": "user", "content": "What is 12 + 30?"}],
                "options": {"temperature": 0, "num_predict": 200}, **more})
        whole = ask().message
        self.assertTrue(whole.thinking)
        self.assertTrue(whole.content)
        parts = list(ask(stream=True))
        self.assertEqual("".join(p.message.thinking or "" for p in parts), whole.thinking)
        self.assertEqual("".join(p.message.content or "" for p in parts), whole.content)
        self.assertFalse(ask(think=False).message.thinking)

    def test_format_json(self):
        answer = ask(format="json", options={"temperature": 0, "num_predict": 300})
        if answer.done_reason == "stop":
            self.assertIsInstance(json.loads(answer.message.content), dict)
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        generated = client.generate(model="qwen3moe", prompt="Is it?", format=schema,
                                    options={"temperature": 0, "num_predict": 100})
        self.assertIn(json.loads(generated.response)["ok"], (True, False))

    def test_a_conversation_with_a_system_prompt(self):
        answer = client.generate(model="qwen3moe", prompt="Hi", system="You are brief.",
                                 keep_alive="5m", options=GREEDY)
        self.assertTrue(answer.response)
        answer = ask(messages=[{"role": "system", "content": "You are brief."}, *FOX],
                     keep_alive=300)
        self.assertTrue(answer.message.content)

    def test_format(self):
        schema = {"type": "object", "properties": {"ok": {"type": "boolean"}}, "required": ["ok"]}
        try:
            answer = ask(format=schema, options={"temperature": 0, "num_predict": 100})
        except ollama.ResponseError as error:
            if error.status_code == 501:
                self.skipTest(str(error))
            raise
        self.assertIn(json.loads(answer.message.content)["ok"], (True, False))

    def test_models(self):
        self.assertEqual([m.model for m in client.list().models], ["qwen3moe:latest"])
        self.assertEqual([m.model for m in client.ps().models], ["qwen3moe:latest"])
        shown = client.show("qwen3moe")
        self.assertEqual(shown.details.family, "qwen3moe")
        self.assertEqual(shown.modelinfo["general.architecture"], "qwen3moe")
        self.assertGreater(shown.modelinfo["qwen3moe.context_length"], 0)
        self.assertIn("completion", shown.capabilities)

    def test_embeddings(self):
        both = client.embed(model="qwen3moe", input=["A fox.", "A hare."])
        self.assertEqual(len(both.embeddings), 2)
        self.assertGreater(both.prompt_eval_count, 2)
        self.assertGreater(both.total_duration, 0)
        one = client.embed(model="qwen3moe", input="A fox.")
        self.assertEqual(one.embeddings[0], both.embeddings[0])
        self.assertEqual(len(client.embed(model="qwen3moe", input="A", dimensions=8).embeddings[0]), 8)
        self.assertTrue(client.embed(model="qwen3moe", input="word " * 5000).embeddings)
        self.assertEqual(client.embeddings(model="qwen3moe", prompt="A fox.").embedding,
                         one.embeddings[0])
        self.assertEqual(client.embed(model="qwen3moe", input="").embeddings, [])

    def test_pull(self):
        puller = ollama.Client(host=os.environ["KTX_PULL_URL"])
        lines = list(puller.pull("hf.co/o/small-GGUF:Q4_K_M", stream=True))
        self.assertEqual(lines[0].status, "pulling manifest")
        self.assertEqual(lines[-1].status, "success")
        bars = [line for line in lines if line.digest]
        self.assertEqual(bars[-1].completed, bars[-1].total)
        self.assertEqual(len({line.digest for line in bars}), 1)
        self.assertIn("hf.co/o/small-GGUF:Q4_K_M", [m.model for m in puller.list().models])
        self.assertTrue(puller.generate("hf.co/o/small-GGUF:Q4_K_M", "A fox", options=GREEDY).response)
        self.assertEqual(puller.pull("hf.co/o/small-GGUF:Q4_K_M").status, "success")
        for stream in (False, True):
            with self.assertRaises(ollama.ResponseError) as caught:
                list(puller.pull("hf.co/o/none", stream=stream))
            self.assertIn("no such model", str(caught.exception))
        with self.assertRaises(ollama.ResponseError) as caught:
            puller.pull("mistral")
        self.assertEqual(caught.exception.status_code, 400)

    def test_errors(self):
        self.assertEqual(ask(model="another").model, "qwen3moe:latest")
        self.assertTrue(client.show("another").modelinfo)
        with self.assertRaises(ollama.ResponseError) as caught:
            ask(options={"temperature": -1})
        self.assertEqual(caught.exception.status_code, 400)
        with self.assertRaises(ollama.ResponseError) as caught:
            client.embed(model="qwen3moe", input="word " * 5000, truncate=False)
        self.assertEqual(caught.exception.status_code, 400)


if __name__ == "__main__":
    unittest.main(verbosity=1)
